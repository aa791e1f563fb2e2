package testkit

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/rest"
)

type item struct {
	rest.Versioned
	Name string `json:"name"`
	Size *int   `json:"size,omitempty"`
}

// A response that differs from the document fails the test.
func TestContract(t *testing.T) {
	t.Parallel()
	handler := rest.NewHandler("things", nil, nil, []rest.Route{rest.Read[rest.None, item]{Name: "getThing",
		Path: "/thing", Guard: guard.Public, Summary: "View the thing",
		Do: func(context.Context, rest.None) (item, error) { return item{Name: "x"}, nil },
	}})
	server := httptest.NewServer(As(handler, nil))
	defer server.Close()
	c := fetchContract(t, server.URL)
	check := func(status int, body string) error {
		r, err := http.NewRequest(http.MethodGet, server.URL+"/thing", nil)
		if err != nil {
			t.Fatal(err)
		}
		response := &http.Response{
			StatusCode: status,
			Header:     http.Header{"Content-Type": {"application/json"}},
			Body:       io.NopCloser(strings.NewReader(body)),
		}
		return c.check(r, response, []byte(body))
	}
	if err := check(200, `{"name": "x", "size": 3}`); err != nil {
		t.Error(err)
	}
	for _, invalid := range []struct {
		status int
		body   string
	}{
		{200, `{"name": 7}`}, {200, `{}`}, {200, `{"name": "x", "size": null}`}, {200, `{"name": "x", "colour": "red"}`}, {200, `[]`}, {200, `{`},
		{201, `{"name": "x"}`}, {418, `{}`}, {500, `{"title": "x"}`},
	} {
		if check(invalid.status, invalid.body) == nil {
			t.Errorf("%d %s: got no error, want one", invalid.status, invalid.body)
		}
	}
}
