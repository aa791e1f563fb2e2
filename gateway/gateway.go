// Package gateway is the one public door: it finds out whose key a request carries and hands the request, with the
// principal, to the service that owns its path. It reads no bodies and knows no resource.
package gateway

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/ironplane/ironplane/pkg/fault"
	"github.com/ironplane/ironplane/pkg/principal"
	"github.com/ironplane/ironplane/pkg/principal/entry"
	"github.com/ironplane/ironplane/pkg/rest"
)

// Gateway serves the public API.
type Gateway struct {
	log       *slog.Logger
	upstreams map[string]http.Handler
	keys      *keys
	own       http.Handler
}

// New makes a gateway in front of these services. An upstream is what serves a service's requests: in one process,
// the service's handler itself.
func New(upstreams map[string]http.Handler, entries *entry.Store, log *slog.Logger) *Gateway {
	g := &Gateway{log: log, upstreams: upstreams}
	g.keys = newKeys(entries, g.ask)
	g.own = g.ownRoutes()
	return g
}

func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	call := &principal.Call{Peer: principal.Gateway, IP: remoteAddress(r), RequestID: requestID(r)}
	r = r.WithContext(principal.With(r.Context(), call))
	w.Header().Set("X-Request-Id", call.RequestID)
	w.Header().Set("API-Version", "1")

	key := takeCredentials(r)
	if strings.HasPrefix(r.URL.Path, "/-/") {
		g.own.ServeHTTP(w, r)
		return
	}
	upstream, ok := g.upstreams[owners[firstElement(r.URL.Path)]]
	if !ok {
		rest.WriteError(w, r, g.log, rest.NoSuchPath())
		return
	}
	if key != "" {
		p, err := g.keys.principal(r.Context(), key)
		if err != nil {
			if r.Context().Err() == nil {
				rest.WriteError(w, r, g.log, keyError(err))
			}
			return
		}
		call.Principal = p
	}
	upstream.ServeHTTP(w, r)
}

func keyError(err error) error {
	if errors.Is(err, errNoSuchKey) {
		return fault.New(fault.Unauthenticated, "The API key is not valid.")
	}
	return fault.New(fault.Unavailable, "Keys cannot be looked up right now.").Because(err)
}

// takeCredentials answers the request's key and takes it out of the request, so that it reaches neither a service
// nor a log. A key in the query is never looked at, but taken out all the same.
func takeCredentials(r *http.Request) string {
	key := r.Header.Get("X-Api-Key")
	if scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "Bearer") {
		key = strings.TrimSpace(token)
	}
	r.Header.Del("Authorization")
	r.Header.Del("X-Api-Key")
	if strings.Contains(r.URL.RawQuery, "key") {
		r.URL.RawQuery = withoutKey(r.URL.RawQuery)
		r.RequestURI = r.URL.RequestURI()
	}
	return key
}

func withoutKey(query string) string {
	var kept []string
	for part := range strings.SplitSeq(query, "&") {
		name, _, _ := strings.Cut(part, "=")
		if name, err := url.QueryUnescape(name); err != nil || name != "key" {
			kept = append(kept, part)
		}
	}
	return strings.Join(kept, "&")
}

func firstElement(path string) string {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return first
}

func remoteAddress(r *http.Request) netip.Addr {
	address, _ := netip.ParseAddrPort(r.RemoteAddr)
	return address.Addr().Unmap().WithZone("")
}

const longestRequestID = 64

// requestID is the caller's own, where it is harmless, or a new one.
func requestID(r *http.Request) string {
	id := r.Header.Get("X-Request-Id")
	harmless := func(c rune) bool {
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("-_.", c)
	}
	if id == "" || len(id) > longestRequestID || strings.ContainsFunc(id, func(c rune) bool { return !harmless(c) }) {
		return rand.Text()
	}
	return id
}

// vouch is a context in which the gateway itself asks.
func vouch(ctx context.Context) context.Context {
	return principal.With(ctx, &principal.Call{Peer: principal.Gateway, RequestID: principal.From(ctx).RequestID})
}
