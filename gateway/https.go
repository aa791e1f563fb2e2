package gateway

import (
	"net/http"
	"net/netip"
	"strings"

	"github.com/ironplane/ironplane/pkg/problem"
)

// requireHTTPS refuses a request over plain HTTP if TLS is required, or redirects it. A request with a secret is not redirected:
// its caller would never notice, and keep sending the secret unencrypted.
func (g *Gateway) requireHTTPS(e *recorder, r *http.Request, ip netip.Addr, hasSecret bool) error {
	state := g.certificates.state.Load()
	canTLS := g.config.TLSListen != "" && state.certificate != nil || len(g.config.TrustedProxies) > 0
	if !state.Required || !canTLS || !g.isPlainHTTP(r) {
		return nil
	}
	if e.route == healthPath || strings.HasPrefix(r.URL.Path, acmeChallengePath) {
		return nil
	}
	if _, err := g.admit(r.Context(), e, ip, ""); err != nil {
		return err
	}
	if hasSecret || r.Method != http.MethodGet && r.Method != http.MethodHead || state.Authority == "" {
		return problem.New(
			problem.Forbidden,
			"This API accepts https only. A key or password in this request was sent unencrypted: replace it.",
		)
	}
	e.Header().Set("Location", "https://"+state.Authority+r.URL.RequestURI())
	e.WriteHeader(http.StatusPermanentRedirect)
	return nil
}

// acmeChallengePath is where ACME authorities look, over plain HTTP.
const acmeChallengePath = "/.well-known/acme-challenge/"

// isPlainHTTP reports whether the request came over plain HTTP, as far as the gateway or a trusted proxy knows.
func (g *Gateway) isPlainHTTP(r *http.Request) bool {
	return r.TLS == nil &&
		!(g.isTrusted(peerAddress(r)) && strings.EqualFold(strings.Join(r.Header.Values("X-Forwarded-Proto"), ","), "https"))
}
