package rest

import (
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"

	"github.com/ironplane/ironplane/pkg/rest/route"
	"github.com/ironplane/ironplane/pkg/testkit/work"
)

func TestQueriesAreReadInLinearTime(t *testing.T) {
	options := ListOptions{Search: SearchIn("search"), Sorts: map[string]string{"name": "name"}, Filters: map[string]string{"name": "name"}}
	typeOf := func(string) reflect.Type { return reflect.TypeFor[string]() }
	for name, query := range map[string]func(n int) string{
		"unknown parameters":     func(n int) string { return work.Numbered("p%d=1&", n) },
		"parameters of one name": func(n int) string { return work.Fill("q=1&", n) },
		"a search":               func(n int) string { return "q=" + work.Fill("%25", n) },
		"a sort":                 func(n int) string { return "sort=" + work.Fill("-", n) },
		"a cursor":               func(n int) string { return "cursor=" + work.Fill("eyJx", n) },
		"invalid escapes":        func(n int) string { return work.Fill("%zz&", n) },
	} {
		t.Run(name, func(t *testing.T) {
			work.Linear(t, 16<<10, func(n int) *http.Request {
				r := httptest.NewRequest(http.MethodGet, "/", nil)
				r.URL.RawQuery = query(n)
				return r
			}, func(r *http.Request) {
				plan := &route.Request{Names: options.parameterNames(nil)}
				if asked, invalid, err := plan.FillQuery(reflect.ValueOf(nil), r); err == nil {
					readListQuery(t.Context(), asked, options, typeOf, &invalid)
				}
			})
		})
	}
}
