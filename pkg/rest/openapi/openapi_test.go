package openapi_test

import (
	"testing"

	"github.com/ironplane/ironplane/pkg/rest/openapi"
)

// Merged documents have their groups in the order of a hosting company's day, and unknown groups last.
func TestMergeSortsTags(t *testing.T) {
	t.Parallel()
	merged := &openapi.Document{}
	for _, name := range []string{"Log", "Gadgets", "IP groups", "Clients", "Apples"} {
		if err := merged.Merge(&openapi.Document{Paths: map[string]openapi.Schema{}, Tags: []openapi.Tag{{Name: name}}}); err != nil {
			t.Fatal(err)
		}
	}
	for i, want := range []string{"Clients", "IP groups", "Log", "Apples", "Gadgets"} {
		if got := merged.Tags[i].Name; got != want {
			t.Errorf("tag %d: got %s, want %s", i, got, want)
		}
	}
}
