package gateway

import (
	"net/http"
	"net/netip"
	"strings"

	"github.com/ironplane/ironplane/pkg/problem"
)

// refusePlain refuses a request that came by plain HTTP where TLS is required, or sends its caller where that is spoken. Who
// sent along a secret is not sent on: he would go on telling everybody, and never hear of it.
func (g *Gateway) refusePlain(e *recorder, r *http.Request, ip netip.Addr, carried bool) error {
	told := g.secured.told.Load()
	canTLS := g.config.TLSListen != "" && told.certificate != nil || len(g.config.TrustedProxies) > 0
	if !told.Required || !canTLS || !g.isPlain(r) {
		return nil
	}
	if e.route == healthPath || strings.HasPrefix(r.URL.Path, challenges) {
		return nil
	}
	if _, err := g.letIn(r.Context(), e, ip, ""); err != nil {
		return err
	}
	if carried || r.Method != http.MethodGet && r.Method != http.MethodHead || told.Authority == "" {
		return problem.New(
			problem.Forbidden,
			"The API is to be called by https alone. Whatever secret this request carried has been seen by others.",
		)
	}
	e.Header().Set("Location", "https://"+told.Authority+r.URL.RequestURI())
	e.WriteHeader(http.StatusPermanentRedirect)
	return nil
}

// challenges is where authorities of ACME ask, by plain HTTP.
const challenges = "/.well-known/acme-challenge/"

// isPlain tells whether the request came by plain HTTP, as far as one can see from here.
func (g *Gateway) isPlain(r *http.Request) bool {
	return r.TLS == nil && !(g.trusts(peerOf(r)) && strings.EqualFold(strings.Join(r.Header.Values("X-Forwarded-Proto"), ","), "https"))
}
