package route

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/ironplane/ironplane/pkg/testkit/work"
)

func TestHeadersAreReadInLinearTime(t *testing.T) {
	work.Linear(t, 64<<10, func(n int) string { return work.Fill(`"1", `, n) }, func(text string) { // more than the nearest cache holds
		_ = (IfMatch{[]string{text}}).Check(2)
	})
	for _, kind := range []string{"text/csv;", "a/b;c=d;", `a/b;c="\"";`} {
		work.Linear(t, 16<<10, func(n int) *http.Request {
			r := httptest.NewRequest(http.MethodPost, "/", nil)
			r.Header.Set("Content-Type", work.Fill(kind, n))
			return r
		}, func(r *http.Request) { _ = MediaType(r) })
	}
}
