package gateway

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"testing"

	"github.com/ironplane/ironplane/pkg/testkit/work"
)

// The work for a request's head grows at most in proportion to its length.
func TestHeadsAreReadInLinearTime(t *testing.T) {
	trusting := &Gateway{
		config: Config{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("10.0.0.0/8")}},
	}
	for name, part := range map[string]string{"X-Forwarded-For": "10.0.0.1, ", "Forwarded": `for="10.0.0.1";by=x, `, "forwarded": `for="\"";`} {
		t.Run(name, func(t *testing.T) {
			work.Linear(t, 16<<10, func(n int) *http.Request {
				r := httptest.NewRequest(http.MethodGet, "/", nil)
				r.Header.Set(name, work.Fill(part, n))
				return r
			}, func(r *http.Request) { trusting.callerAddress(r) })
		})
	}
	for _, query := range []string{"key=1&", "k%65y=%31&", "&", "key", "%zz&"} {
		t.Run(query, func(t *testing.T) {
			work.Linear(t, 16<<10, func(n int) string { return work.Fill(query, n) }, func(query string) {
				extractCredentials(&http.Request{Header: http.Header{}, URL: &url.URL{Path: "/", RawQuery: query}}, true)
			})
		})
	}
	t.Run("a request's id", func(t *testing.T) {
		work.Linear(t, 16<<10, func(n int) *http.Request {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.Header.Set("X-Request-Id", work.Fill("a", n))
			return r
		}, func(r *http.Request) { requestID(r) })
	})
}
