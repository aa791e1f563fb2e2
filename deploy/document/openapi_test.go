package main

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"github.com/ironplane/ironplane/deploy/internal/product"
)

// Every member of every body and answer has a description, and so has every group of operations.
func TestEveryMemberIsDescribed(t *testing.T) {
	t.Parallel()
	document, err := product.Document()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(document)
	if err != nil {
		t.Fatal(err)
	}
	var api struct {
		Components struct {
			Schemas map[string]struct {
				Properties map[string]struct{ Description string }
			}
		}
		Tags []struct{ Name, Description string }
	}
	if err := json.Unmarshal(text, &api); err != nil {
		t.Fatal(err)
	}
	if len(api.Components.Schemas) < 100 || len(api.Tags) < 10 {
		t.Fatalf("got %d schemas and %d groups, want at least 100 and 10", len(api.Components.Schemas), len(api.Tags))
	}
	for _, name := range slices.Sorted(maps.Keys(api.Components.Schemas)) {
		for member, property := range api.Components.Schemas[name].Properties {
			if property.Description == "" {
				t.Errorf("%s.%s: got no description, want one in the member's doc tag", name, member)
			}
		}
	}
	for _, group := range api.Tags {
		if group.Description == "" {
			t.Errorf("the group %s: got no description, want one", group.Name)
		}
	}
}
