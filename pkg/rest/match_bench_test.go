package rest

import (
	"context"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"testing"

	"github.com/gorilla/mux"

	"github.com/ironplane/ironplane/pkg/principal"
)

// BenchmarkMatch finds the first and the last of as many paths as a service has.
func BenchmarkMatch(b *testing.B) {
	const paths = 40
	var routes []Route
	for n := range paths {
		routes = append(routes, Read[Item, struct{}]{Path: fmt.Sprintf("/thing-%d/{thing_id}", n), Guard: principal.AnyKey,
			Do: func(context.Context, Item) (struct{}, error) { return struct{}{}, nil }})
	}
	router := NewHandler("things", nil, slog.New(slog.DiscardHandler), routes).(*mux.Router)
	for name, n := range map[string]int{"first": 0, "last": paths - 1} {
		b.Run(name, func(b *testing.B) {
			r := httptest.NewRequest("GET", fmt.Sprintf("/thing-%d/7", n), nil)
			b.ReportAllocs()
			for b.Loop() {
				var match mux.RouteMatch
				if !router.Match(r, &match) || match.Handler == nil {
					b.Fatal("no match")
				}
			}
		})
	}
}
