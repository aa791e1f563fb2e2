// Package lookup finds items by the names that people have for them.
package lookup

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/ironplane/ironplane/pkg/client"
	"github.com/ironplane/ironplane/pkg/client/operations"
)

// nameMembers are the members by which people name an item. A list with a filter of that name finds it at once.
var nameMembers = []string{"name", "email", "username", "slug", "hostname", "nickname", "full_ip", "address", "host"}

// maxCandidates is how many items an error about a name lists.
const maxCandidates = 10

// Candidate is an item that a name may mean.
type Candidate struct {
	ID    int64
	Names []string
}

// Error says that a name does not name exactly one item.
type Error struct {
	Noun, Name string
	Matches    []Candidate // several items that have the name
	Similar    []Candidate // items whose names contain it, if none has it
}

// ErrAmbiguous is the kind of an error about a name that several items have. One that no item has is a client.ErrNotFound.
var ErrAmbiguous = errors.New("ambiguous name")

// ErrNoID says that a text is no id, and that the items have no names.
var ErrNoID = errors.New("is not an id")

func (e *Error) Error() string {
	text, listed := fmt.Sprintf("no %s has the name %q", e.Noun, e.Name), e.Similar
	switch {
	case len(e.Matches) > 0:
		text, listed = fmt.Sprintf("several items have the name %q. Use the id of one %s", e.Name, e.Noun), e.Matches
	case len(e.Similar) > 0:
		text += ". Similar ones"
	default:
		return text
	}
	text += ":"
	for i, c := range listed {
		if i == maxCandidates {
			return text + "\n  …"
		}
		text += fmt.Sprintf("\n  %d  %s", c.ID, strings.Join(c.Names, ", "))
	}
	return text
}

func (e *Error) Is(target error) bool {
	if len(e.Matches) > 0 {
		return target == ErrAmbiguous
	}
	return target == client.ErrNotFound
}

// ID returns the id of the item that a text names by its id or by its name.
func ID(ctx context.Context, api *client.Client, noun, text string) (int64, error) {
	if id, err := strconv.ParseInt(text, 10, 64); err == nil {
		return id, nil
	}
	list := operations.All().List(noun)
	if list == nil || !list.Paged {
		return 0, fmt.Errorf("%q %w", text, ErrNoID)
	}
	matches, err := search(ctx, api, list, text)
	if err != nil {
		return 0, err
	}
	exact := slices.DeleteFunc(slices.Clone(matches), func(m map[string]any) bool { return !hasName(m, text) })
	switch {
	case len(exact) == 1:
		return IDOf(exact[0]), nil
	case len(exact) > 1:
		return 0, &Error{Noun: noun, Name: text, Matches: Describe(exact...)}
	default:
		return 0, &Error{Noun: noun, Name: text, Similar: Describe(matches...)}
	}
}

// search returns the items that have a name, or those that contain it if none has.
func search(ctx context.Context, api *client.Client, list *operations.Operation, text string) ([]map[string]any, error) {
	has := func(name string) bool {
		return slices.ContainsFunc(list.Query, func(q operations.Parameter) bool { return q.Name == name && q.Kind == "string" })
	}
	found := map[int64]map[string]any{}
	var order []int64
	ask := func(filter string) error {
		query := url.Values{"per_page": {"100"}}
		for _, q := range list.Query {
			if q.Required {
				query.Set(q.Name, "")
			}
		}
		if filter != "" {
			query.Set(filter, text)
		}
		items, err := FirstPage(ctx, api, list, query)
		for _, item := range items {
			if id := IDOf(item); id != 0 && found[id] == nil {
				found[id] = item
				order = append(order, id)
			}
		}
		return err
	}
	for _, name := range nameMembers {
		if has(name) {
			if err := ask(name); err != nil {
				return nil, err
			}
		}
	}
	if len(found) == 0 {
		filter := ""
		if has("q") {
			filter = "q"
		}
		if err := ask(filter); err != nil {
			return nil, err
		}
	}
	items := make([]map[string]any, len(order))
	for i, id := range order {
		items[i] = found[id]
	}
	return items, nil
}

// FirstPage returns the items of a list that a query selects, as far as one page has them.
func FirstPage(ctx context.Context, api *client.Client, list *operations.Operation, query url.Values) (items []map[string]any, err error) {
	r := &client.Request{Operation: list.ID, Method: list.Method, Route: list.Route, Path: list.Route, Query: query}
	text, err := Fetch(ctx, api, r)
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return items, d.Decode(&items)
}

// Fetch returns the body of an answer.
func Fetch(ctx context.Context, api *client.Client, r *client.Request) ([]byte, error) {
	response, err := api.Do(ctx, r)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	return io.ReadAll(response.Body)
}

// Decode returns the members of an item, with numbers as they were written.
func Decode(text []byte) (item map[string]any, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return item, d.Decode(&item)
}

func hasName(item map[string]any, text string) bool {
	return slices.ContainsFunc(nameMembers, func(name string) bool {
		s, ok := item[name].(string)
		return ok && strings.EqualFold(s, text)
	})
}

// IDOf returns the id of an item, or 0.
func IDOf(item map[string]any) int64 {
	n, _ := item["id"].(json.Number)
	id, _ := n.Int64()
	return id
}

// Describe returns the names of items.
func Describe(items ...map[string]any) (all []Candidate) {
	for _, item := range items {
		c := Candidate{ID: IDOf(item)}
		for _, name := range nameMembers {
			if s, ok := item[name].(string); ok && s != "" && !slices.Contains(c.Names, s) {
				c.Names = append(c.Names, s)
			}
		}
		all = append(all, c)
	}
	return all
}
