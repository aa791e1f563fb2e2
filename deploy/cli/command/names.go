package command

import (
	"context"
	"encoding/json"
	"fmt"
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

// named item
type candidate struct {
	id   int64
	text string
}

// nameError says that a name does not name exactly one item.
type nameError struct {
	noun, name string
	matches    []candidate // several items that have the name
	similar    []candidate // items whose names contain it, if none has it
}

func (e *nameError) Error() string {
	text, listed := fmt.Sprintf("no %s has the name %q", e.noun, e.name), e.similar
	switch {
	case len(e.matches) > 0:
		text, listed = fmt.Sprintf("several items have the name %q. Use the id of one %s", e.name, e.noun), e.matches
	case len(e.similar) > 0:
		text += ". Similar ones"
	default:
		return text
	}
	text += ":"
	for i, c := range listed {
		if i == maxCandidates {
			return text + "\n  …"
		}
		text += fmt.Sprintf("\n  %d  %s", c.id, c.text)
	}
	return text
}

func (e *nameError) Is(target error) bool {
	if len(e.matches) > 0 {
		return target == errAmbiguous
	}
	return target == client.ErrNotFound
}

// resolve returns the id of the item that a text names by its id or by its name.
func (p *Program) resolve(ctx context.Context, noun, text string) (int64, error) {
	if id, err := strconv.ParseInt(text, 10, 64); err == nil {
		return id, nil
	}
	list := operations.All().List(noun)
	if list == nil || !list.Paged {
		return 0, usage(fmt.Errorf("%q is not an id", text))
	}
	matches, err := p.search(ctx, list, text)
	if err != nil {
		return 0, err
	}
	exact := slices.DeleteFunc(slices.Clone(matches), func(m map[string]any) bool { return !hasName(m, text) })
	switch {
	case len(exact) == 1:
		return idOf(exact[0]), nil
	case len(exact) > 1:
		return 0, &nameError{noun: noun, name: text, matches: candidates(exact)}
	default:
		return 0, &nameError{noun: noun, name: text, similar: candidates(matches)}
	}
}

// search returns the items that have a name, or those that contain it if none has.
func (p *Program) search(ctx context.Context, list *operations.Operation, text string) ([]map[string]any, error) {
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
		items, err := p.firstPage(ctx, list, query)
		for _, item := range items {
			if id := idOf(item); id != 0 && found[id] == nil {
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

func (p *Program) firstPage(ctx context.Context, list *operations.Operation, query url.Values) (items []map[string]any, err error) {
	api, err := p.connect()
	if err != nil {
		return nil, err
	}
	response, err := api.Do(ctx, &client.Request{Operation: list.ID, Method: list.Method, Route: list.Route, Path: list.Route, Query: query})
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	d := json.NewDecoder(response.Body)
	d.UseNumber()
	return items, d.Decode(&items)
}

func hasName(item map[string]any, text string) bool {
	return slices.ContainsFunc(nameMembers, func(name string) bool {
		s, ok := item[name].(string)
		return ok && strings.EqualFold(s, text)
	})
}

func idOf(item map[string]any) int64 {
	n, _ := item["id"].(json.Number)
	id, _ := n.Int64()
	return id
}

func candidates(items []map[string]any) (all []candidate) {
	for _, item := range items {
		var names []string
		for _, name := range nameMembers {
			if s, ok := item[name].(string); ok && s != "" && !slices.Contains(names, s) {
				names = append(names, s)
			}
		}
		all = append(all, candidate{idOf(item), strings.Join(names, ", ")})
	}
	return all
}
