package gateway

import (
	"net/http"
	"net/netip"
	"strings"

	"github.com/ironplane/ironplane/pkg/problem"
)

// requireHTTPS refuses a request that came by plain HTTP where TLS is required, or sends its caller where that is spoken. Who
// sent along a secret is not sent on: he would go on telling everybody, and never hear of it.
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
			"The API is to be called by https alone. Whatever secret this request carried has been seen by others.",
		)
	}
	e.Header().Set("Location", "https://"+state.Authority+r.URL.RequestURI())
	e.WriteHeader(http.StatusPermanentRedirect)
	return nil
}

// acmeChallengePath is where authorities of ACME ask, by plain HTTP.
const acmeChallengePath = "/.well-known/acme-challenge/"

// isPlainHTTP tells whether the request came by plain HTTP, as far as one can see from here.
func (g *Gateway) isPlainHTTP(r *http.Request) bool {
	return r.TLS == nil &&
		!(g.isTrusted(peerAddress(r)) && strings.EqualFold(strings.Join(r.Header.Values("X-Forwarded-Proto"), ","), "https"))
}
