// Package operations describes all operations of the API as data, for programs that build requests when they run, such as the
// command line. Programs that know at compile time what they call use package client.
package operations

import (
	_ "embed"
	"encoding/json"
	"slices"
	"strings"
	"sync"
)

//go:embed operations.gen.json
var table []byte

// Operation is an operation of the API.
type Operation struct {
	ID      string `json:"id"`   // createIPEntity
	Noun    string `json:"noun"` // entity
	Verb    string `json:"verb"` // create
	Service string `json:"service"`
	Call    string `json:"call"` // the method of package client's Service
	Method  string `json:"method"`
	Route   string `json:"route"` // /entity/{entity_id}
	Tag     string `json:"tag"`   // the section of the API document
	Summary string `json:"summary"`
	Doc     string `json:"doc,omitempty"`
	// Retry is what sending the request twice does. once: it is carried out twice, or refused. keyed: it is carried out once,
	// thanks to its Idempotency-Key. same: it changes nothing more.
	Retry   string      `json:"retry"`
	Path    []Parameter `json:"path,omitempty"`
	Query   []Parameter `json:"query,omitempty"`
	Body    string      `json:"body,omitempty"`    // the name of a JSON body's members in Bodies
	RawBody string      `json:"rawBody,omitempty"` // the type of a body that is not JSON
	ReadCSV bool        `json:"readCSV,omitempty"` // whether a body of CSV creates and edits many items
	Answer  string      `json:"answer,omitempty"`  // json, list, text or nothing
	Item    string      `json:"item,omitempty"`    // of an operation that views an item: the name of the item's members in Answers
	Columns []string    `json:"columns,omitempty"` // the members of the answer that fit into a table
	Paged   bool        `json:"paged,omitempty"`   // whether the answer is a list with pages, also as CSV
	DryRun  bool        `json:"dryRun,omitempty"`
	IfMatch bool        `json:"ifMatch,omitempty"`
	Several int         `json:"several,omitempty"` // how many items the last id may name
}

// Parameter is a parameter of a path or a query, or a member of a body.
type Parameter struct {
	Name string `json:"name"` // of a nested member with dots: v4.address
	// Kind is string, integer, number, boolean, time, json, ref (an id), or name (an id, or a name that the API knows). map is an
	// object with texts.
	Kind     string   `json:"kind"`
	List     bool     `json:"list,omitempty"`
	Required bool     `json:"required,omitempty"`
	Secret   bool     `json:"secret,omitempty"`
	Null     bool     `json:"null,omitempty"` // whether null clears it
	Enum     []string `json:"enum,omitempty"`
	Of       string   `json:"of,omitempty"` // the noun of the item that an id names
	Doc      string   `json:"doc,omitempty"`
}

// Table has all operations, ordered by noun and by route, and the members of their bodies and of the items that they view.
type Table struct {
	Operations []*Operation           `json:"operations"`
	Bodies     map[string][]Parameter `json:"bodies"`
	Answers    map[string][]Parameter `json:"answers"`
}

// All returns the table. Callers do not change it.
var All = sync.OnceValue(func() *Table {
	var t Table
	if err := json.Unmarshal(table, &t); err != nil {
		panic("operations: " + err.Error()) // the file is part of the program
	}
	return &t
})

// Find returns the operation with an id, or nil.
func (t *Table) Find(id string) *Operation {
	i := slices.IndexFunc(t.Operations, func(o *Operation) bool { return o.ID == id })
	if i < 0 {
		return nil
	}
	return t.Operations[i]
}

// List returns the operation that lists a noun's items and needs no other id, or nil.
func (t *Table) List(noun string) *Operation {
	i := slices.IndexFunc(t.Operations, func(o *Operation) bool {
		return o.Noun == noun && o.Verb == "list" && !strings.Contains(o.Route, "{")
	})
	if i < 0 {
		return nil
	}
	return t.Operations[i]
}

// Put sets a member of a body by its name with dots.
func Put(body map[string]any, name string, value any) {
	for {
		first, rest, nested := strings.Cut(name, ".")
		if !nested {
			body[name] = value
			return
		}
		inner, ok := body[first].(map[string]any)
		if !ok {
			inner = map[string]any{}
			body[first] = inner
		}
		body, name = inner, rest
	}
}
