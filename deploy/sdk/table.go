package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/ironplane/ironplane/deploy/sdk/model"
	"github.com/ironplane/ironplane/pkg/client/operations"
)

const tableFile = "operations/operations.gen.json"

// shortVerbs are verbs of the command line where a method's name says more than its noun needs.
var shortVerbs = map[string]string{
	"allocate-entities":    "allocate",
	"get-utilization":      "utilization",
	"customize":            "update",
	"begin-open-id-login":  "begin",
	"finish-open-id-login": "finish",
	"exchange-sso-code":    "exchange",
	"end-other":            "end-others",
}

// shortNouns are nouns of the command line where a resource's name says more than people type.
var shortNouns = map[string]string{"log-item": "log", "open-id-choice": "openid"}

func noun(r *model.Resource) string {
	slug := model.Slug(r.Singular)
	return cmp.Or(shortNouns[slug], slug)
}

// generateTable returns the table of package operations: a line for each operation and each body, so that changes are easy to read.
func generateTable(d *model.Document) ([]byte, error) {
	w := &tableWriter{d, d.Resources(), map[string][]operations.Parameter{}, map[string][]operations.Parameter{}}
	var b bytes.Buffer
	b.WriteString("{\"operations\": [\n")
	first := true
	for _, r := range w.resources {
		for _, m := range r.Methods {
			text, err := encode(w.operation(m))
			if err != nil {
				return nil, err
			}
			if !first {
				b.WriteString(",\n")
			}
			first = false
			b.Write(text)
		}
	}
	b.WriteString("\n], \"bodies\": {\n")
	if err := writeMembers(&b, w.bodies); err != nil {
		return nil, err
	}
	b.WriteString("\n}, \"answers\": {\n")
	if err := writeMembers(&b, w.answers); err != nil {
		return nil, err
	}
	b.WriteString("\n}}\n")
	return b.Bytes(), nil
}

// writeMembers writes a line for each name.
func writeMembers(b *bytes.Buffer, members map[string][]operations.Parameter) error {
	for i, name := range slices.Sorted(maps.Keys(members)) {
		text, err := encode(members[name])
		if err != nil {
			return err
		}
		if i > 0 {
			b.WriteString(",\n")
		}
		fmt.Fprintf(b, "%q: %s", name, text)
	}
	return nil
}

// encode returns a value as one line of JSON.
func encode(value any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(value)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

type tableWriter struct {
	document  *model.Document
	resources []*model.Resource
	bodies    map[string][]operations.Parameter
	answers   map[string][]operations.Parameter
}

func (w *tableWriter) operation(m *model.Method) operations.Operation {
	o := operations.Operation{
		ID:      m.ID,
		Noun:    noun(m.Resource),
		Verb:    cmp.Or(shortVerbs[model.Slug(m.Name)], model.Slug(m.Name)),
		Service: m.Plural,
		Call:    m.Name,
		Method:  m.Verb,
		Route:   m.Route,
		Tag:     m.Tags[0],
		Summary: m.Summary,
		Doc:     m.Description,
		Retry:   retryOf(m),
		Answer:  answerOf(m),
		ReadCSV: m.ReadsCSV,
		Paged:   m.Paged,
		DryRun:  m.DryRun,
		IfMatch: m.IfMatch,
		Several: m.Several,
		Columns: w.columns(m),
	}
	for _, p := range m.Path {
		id := w.parameter(p.Name, p.Schema, p.Description, true, o.Noun)
		if id.Of = w.collection(m.Route, p.Name); slices.Contains([]string{"sub_id", "super_id"}, p.Name) {
			id.Of = "client"
		}
		o.Path = append(o.Path, id)
	}
	for _, p := range m.Query {
		if !slices.Contains([]string{"page", "cursor", "per_page", "count"}, p.Name) || !m.Paged && p.Name != "per_page" {
			o.Query = append(o.Query, w.parameter(p.Name, p.Schema, p.Description, p.Required, o.Noun))
		}
	}
	switch {
	case m.Body != nil:
		o.Body = m.Body.RefName()
		if _, ok := w.bodies[o.Body]; !ok {
			w.bodies[o.Body] = w.members(m.Body, "", true, o.Noun)
		}
	case m.RawBody:
		o.RawBody = slices.Sorted(maps.Keys(m.Operation.Body.Content))[0]
	}
	if item := viewed(m); item != nil {
		o.Item = item.RefName()
		w.answers[o.Item] = w.members(item, "", true, o.Noun)
	}
	return o
}

// viewed returns the schema of the one item that a method views, or nil.
func viewed(m *model.Method) *model.Schema {
	item := m.Answer
	if m.Verb != "GET" || item == nil || m.Paged {
		return nil
	}
	if item.Items != nil { // the permissions of an integration are a list of one
		item = item.Items
	}
	if item.RefName() == "" {
		return nil
	}
	return item
}

// answerOf returns the kind of a method's answer.
func answerOf(m *model.Method) string {
	ok := m.Responses["200"]
	body := ok.Content["application/json"].Schema
	switch {
	case m.Answer != nil && m.Answer.RefName() == "" && slices.Contains(m.Answer.Type, "array"):
		return "list"
	case body != nil && body.Format != "binary":
		return "json"
	case len(ok.Content) > 0:
		return "text"
	default:
		return ""
	}
}

// maxColumns is how many members of an item a table shows, unless the caller names others.
const maxColumns = 7

// columns returns the members of a method's answer that fit into a table: texts, numbers, references and times.
func (w *tableWriter) columns(m *model.Method) (names []string) {
	item := m.Answer
	if item == nil {
		return nil
	}
	if item.Items != nil {
		item = item.Items
	}
	item = w.resolve(item)
	for _, name := range slices.Sorted(maps.Keys(item.Properties)) {
		member, _ := item.Properties[name].Nullable()
		fits := slices.Contains([]string{"Ref", "Timestamp"}, member.RefName()) ||
			len(member.Type) == 1 && slices.Contains([]string{"string", "integer", "boolean", "number"}, member.Type[0])
		if fits && name != "id" && name != "name" && len(names) < maxColumns-2 {
			names = append(names, name)
		}
	}
	for _, name := range []string{"name", "id"} {
		if item.Properties[name] != nil {
			names = slices.Insert(names, 0, name)
		}
	}
	return names
}

func (w *tableWriter) resolve(s *model.Schema) *model.Schema {
	if s.Ref != "" {
		return w.document.Components.Schemas[s.RefName()]
	}
	return s
}

// members returns the leaves of a body or an answer. Nested ones have their parents' names before their own.
func (w *tableWriter) members(body *model.Schema, prefix string, required bool, own string) (all []operations.Parameter) {
	of := w.resolve(body)
	for _, name := range slices.Sorted(maps.Keys(of.Properties)) {
		schema, _ := of.Properties[name].Nullable()
		isRequired := required && slices.Contains(of.Required, name)
		isLeaf := slices.Contains([]string{"RefBody", "TimestampBody", "Ref", "Timestamp"}, schema.RefName())
		if nested := w.resolve(schema); !isLeaf && len(nested.Properties) > 0 {
			all = append(all, w.members(schema, prefix+name+".", isRequired, own)...)
			continue
		}
		all = append(all, w.parameter(prefix+name, of.Properties[name], of.Properties[name].Description, isRequired, own))
	}
	return all
}

// parameter describes a value. own is the operation's noun.
func (w *tableWriter) parameter(name string, s *model.Schema, doc string, required bool, own string) operations.Parameter {
	s, isNullable := s.Nullable()
	p := operations.Parameter{Name: name, Required: required, Doc: doc, Enum: s.Enum, Null: isNullable}
	p.Secret = s.WriteOnly && !strings.HasSuffix(name, "url")
	if s.Items != nil {
		p.List = true
		s = s.Items
		p.Enum = s.Enum
	}
	switch {
	case s.RefName() == "RefBody", s.RefName() == "Ref":
		p.Kind = "ref"
	case s.RefName() == "TimestampBody", s.RefName() == "Timestamp", s.Format == "date-time":
		p.Kind = "time"
	case len(s.AnyOf) == 2 && s.AnyOf[1].RefName() == "RefBody":
		p.Kind = "name"
	case s.Additional != nil:
		p.Kind = "map"
	case len(s.Type) > 0 && slices.Contains([]string{"string", "integer", "boolean", "number"}, s.Type[0]):
		p.Kind = s.Type[0]
	default:
		p.Kind = "json"
	}
	if p.Kind == "ref" || p.Kind == "integer" {
		p.Of = w.target(name, doc, own)
	}
	return p
}

var pathInDoc = regexp.MustCompile(`(?:[Oo]ne of|from) (?:GET )?((?:/[a-z0-9-]+)+)`)

// target returns the noun of the item that an id names, or an empty text for a number that is no id. own is the operation's noun.
func (w *tableWriter) target(name, doc, own string) string {
	if found := pathInDoc.FindStringSubmatch(doc); found != nil {
		return w.nounOf(found[1])
	}
	last := name[strings.LastIndex(name, ".")+1:]
	word := strings.TrimSuffix(last, "_id")
	switch {
	case strings.HasSuffix(name, "owner.id") && !strings.Contains(doc, "unless url"), name == "owner_id" && own == "entity":
		return "client"
	case name == "owner" && own == "entity":
		return "client"
	case name == "parent_id":
		return own
	case last == "ids":
		return "entity"
	case last == "auth":
		return "authenticator"
	case strings.HasSuffix(word, "dhcp_server"):
		return "dhcp-server"
	}
	for _, r := range w.resources {
		if n := noun(r); n == model.Slug(word) || n+"s" == model.Slug(word) {
			return n
		}
	}
	return ""
}

// collection returns the noun of the collection that a parameter of a path names an item of.
func (w *tableWriter) collection(route, parameter string) string {
	path, _, _ := strings.Cut(route, "/{"+parameter+"}")
	return w.nounOf(path)
}

// nounOf returns the noun of the resource with a path, or an empty text.
func (w *tableWriter) nounOf(path string) string {
	for _, r := range w.resources {
		if r.Path == path {
			return noun(r)
		}
	}
	return ""
}
