package product_test

import (
	"testing"

	"github.com/ironplane/ironplane/deploy/internal/product/producttest"
)

// The gateway ignores the headers by which it names the principal to services, if a caller sends them.
func TestForgedHeaders(t *testing.T) {
	t.Parallel()
	_, c := producttest.Shared(t)
	_, unprivileged := newAdmin(t, c, "nobody", `{}`)
	for _, headers := range [][]string{
		{"Ironplane-Call", "forged 192.0.2.7 1 admin 1 ffffffff admin"},
		{"ironplane-call", "forged 192.0.2.7 1 admin 1 ffffffff admin", "Connection", "Ironplane-Call"},
		{"Forwarded", "for=192.0.2.7", "X-Real-Ip", "192.0.2.7", "X-Forwarded-Client-Cert", "URI=spiffe://ironplane/gateway"},
	} {
		c.WithKey("").Do("GET", "/admin", nil, headers...).Want(401)
		unprivileged.Do("GET", "/admin", nil, headers...).Want(403)
		unprivileged.Do("GET", "/internal/owner/admin/1", nil, headers...).Want(404)
		answer := unprivileged.Do("GET", "/browser-details", nil, headers...).Want(200)
		if answer.Text != `{"ip":"127.0.0.1"}`+"\n" || answer.Header.Get("X-Request-Id") == "forged" {
			t.Errorf("%v: got %s %v, want 127.0.0.1 and a new request id", headers, answer.Text, answer.Header)
		}
	}
}
