package product_test

import (
	"net/url"
	"strings"
	"testing"
)

// codeOf is what a link's panel is told.
func codeOf(t *testing.T, link string) url.Values {
	t.Helper()
	at, err := url.Parse(link)
	if err != nil || !strings.HasSuffix(at.Path, "/auth/sso") || at.RawQuery != "" {
		t.Fatalf("got the link %s (%v), want /auth/sso without a query", link, err)
	}
	values, err := url.ParseQuery(at.Fragment)
	if err != nil || values.Get("key") == "" {
		t.Fatalf("got the link %s (%v), want a key in its fragment", link, err)
	}
	return values
}

func exchangeOf(code string) string { return `{"code": "` + code + `"}` }
