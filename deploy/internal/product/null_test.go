package product_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/ironplane/ironplane/deploy/internal/product/producttest"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/testkit"
)

// TestEveryNull sends null for each member of each edit. It succeeds if the document allows it. Otherwise it is refused or
// changes nothing.
func TestEveryNull(t *testing.T) {
	t.Parallel()
	p, c := producttest.Start(t)
	w := newWalk(t, p, c)
	w.createOneOfEach()
	c.Do("POST", w.item("/pxe/install/{install_id}/cancel"), nil).Want(200) // it would keep its IP entity from being released
	document := openAPI(t, c)
	tried := 0
	for _, o := range w.operations {
		if !edits(o) {
			continue
		}
		n := &nulls{walk: w, edit: o}
		for _, create := range w.operations {
			isLink := strings.HasPrefix(o.Path, "/client/{client_id}/") // its edit changes the client
			if creates(create) && create.Effect.ViewPath == o.Path && !isLink {
				n.whole = create.Example
			}
		}
		producttest.AwaitConsumers(t, p)
		n.without = n.send(nil)
		n.each(document.Paths.Value(o.Path).Patch.RequestBody.Value.Content["application/json"].Schema.Value)
		tried += n.tried
	}
	if tried < 80 {
		t.Errorf("got %d members tried, want at least 80", tried)
	}
}

type nulls struct {
	*walk
	edit    rest.Operation
	whole   json.RawMessage   // with all members, for the item to have them
	without *testkit.Response // as the example alone edits it
	tried   int
}

func (n *nulls) each(object *openapi3.Schema, path ...string) {
	for _, name := range slices.Sorted(maps.Keys(object.Properties)) {
		member := object.Properties[name].Value
		nullable := member.Type.Includes("null")
		for _, either := range member.AnyOf {
			if either.Value.Type.Is("null") {
				nullable = true
			} else {
				member = either.Value
			}
		}
		at := append(slices.Clone(path), name)
		n.try(nullable, at)
		if len(member.Properties) > 1 { // a reference without an id is null itself
			n.each(member, at...)
		}
	}
}

func (n *nulls) try(nullable bool, at []string) {
	n.t.Helper()
	n.tried++
	answer := n.send(at)
	if text := answer.Text; strings.Contains(text, "is required where") || strings.Contains(text, "is required if") {
		return // by another member, such as an address by its gateway
	}
	switch {
	case nullable:
		answer.Want(http.StatusOK)
	case answer.Status == http.StatusOK && answer.Text != n.without.Text:
		n.t.Errorf("PATCH %s with an undocumented null in %v: got %s, want %s", n.edit.Path, at, answer.Text, n.without.Text)
	case answer.Status != http.StatusOK:
		answer.Want(http.StatusUnprocessableEntity)
	}
}

// send edits the item with its example, in which one member is null.
func (n *nulls) send(at []string) *testkit.Response {
	n.t.Helper()
	item := n.item(n.edit.Path)
	if n.whole != nil {
		n.c.Do("PATCH", item, n.whole).Want(200)
		n.atRest(item)
	}
	var body map[string]any
	if err := json.Unmarshal(n.edit.Example, &body); err != nil {
		n.t.Fatal(err)
	}
	object := body
	for i, name := range at {
		if i == len(at)-1 {
			object[name] = nil
			break
		}
		if object[name] == nil {
			object[name] = map[string]any{}
		}
		object = object[name].(map[string]any)
	}
	return n.c.Do("PATCH", item, body)
}
