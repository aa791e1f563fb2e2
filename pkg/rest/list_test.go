package rest

import (
	"context"
	"net/url"
	"reflect"
	"testing"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
)

// A search gets each parameter in its one canonical spelling: assigned=0 becomes assigned=false.
func TestSearchParametersAreCanonical(t *testing.T) {
	t.Parallel()
	for sent, want := range map[string]string{"0": "false", "False": "false", "false": "false", "1": "true", "TRUE": "true", "": ""} {
		got, options := "none", ListOptions{Filters: map[string]string{"assigned": "assigned"}}
		options.Search = func(_ context.Context, asked url.Values) []pg.Source {
			got = asked.Get("assigned")
			return nil
		}
		var invalid problem.Fields
		readListQuery(
			t.Context(),
			url.Values{"assigned": {sent}},
			options,
			func(string) reflect.Type { return reflect.TypeFor[bool]() },
			&invalid,
		)
		if got != want || len(invalid) > 0 {
			t.Errorf("%q: got %q, %v, want %q", sent, got, invalid, want)
		}
	}
}
