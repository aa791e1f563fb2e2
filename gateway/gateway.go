// Package gateway serves the public API. It finds the principal of a request's key, and forwards the request with the
// principal to the service that owns its path. It parses no bodies and knows no resources.
package gateway

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"time"

	"github.com/ironplane/ironplane/pkg/runtime/peers"

	"github.com/rs/cors"

	"github.com/ironplane/ironplane/gateway/console"
	"github.com/ironplane/ironplane/gateway/cookie"
	"github.com/ironplane/ironplane/gateway/limits"
	"github.com/ironplane/ironplane/pkg/auth/apikey"
	"github.com/ironplane/ironplane/pkg/auth/keycache"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/cache"
	"github.com/ironplane/ironplane/pkg/problem"

	"github.com/ironplane/ironplane/pkg/runtime/maintenance"
	"github.com/ironplane/ironplane/pkg/runtime/tracing"
	"github.com/ironplane/ironplane/pkg/settings"
	"github.com/ironplane/ironplane/pkg/wake"
)

// Config is the gateway's part of the environment.
type Config struct {
	TrustedProxies []netip.Prefix   `env:"IRONPLANE_TRUSTED_PROXIES" doc:"proxies whose X-Forwarded-For and Forwarded headers are trusted: addresses and CIDRs, separated by commas"`
	CORSOrigins    Origins          `env:"IRONPLANE_CORS_ORIGINS" doc:"origins of web pages that may call the API from browsers, separated by commas: https://panel.example.com"`
	Console        Switch           `env:"IRONPLANE_CONSOLE" default:"on" doc:"whether the gateway serves the console at /-/console/: on or off"`
	TLSListen      string           `env:"IRONPLANE_TLS_LISTEN" doc:"an additional address to serve TLS on: 0.0.0.0:443"`
	TLSCertificate string           `env:"IRONPLANE_TLS_CERTIFICATE" doc:"a PEM file with the certificate for TLS, followed by its intermediate certificates; empty: the certificate that the system service obtains"`
	TLSKey         string           `env:"IRONPLANE_TLS_KEY" doc:"a PEM file with the private key of IRONPLANE_TLS_CERTIFICATE"`
	Maintenance    maintenance.File `env:"IRONPLANE_MAINTENANCE" doc:"a file that stops all changes and jobs while it exists; callers see its content as the reason"`
}

// Gateway serves the public API.
type Gateway struct {
	config             Config
	log                *slog.Logger
	upstreams          map[string]http.Handler
	peers              *peers.Peers
	keys               *keys
	ownerRate          *limits.Rate[principal.Owner]
	keyConcurrency     *limits.Concurrency[int64] // half of an owner's limit, so that a leaked key leaves the owner enough to revoke it
	ownerConcurrency   *limits.Concurrency[principal.Owner]
	addressConcurrency *limits.Concurrency[netip.Prefix]
	addressRate        *limits.Rate[netip.Prefix]
	metrics            *metrics
	ownHandler         http.Handler
	cors               *cors.Cors // nil: no other origin may call
	watcher            *requestWatcher
	keyUsage           *keyUsage
	bodyBudget         *limits.Budget
	progressTimeout    time.Duration
	settings           *settings.Follower
	certificates       *certificates
	refusals           refusals
	stopFollowing      func()
}

// New returns a gateway in front of these services. upstreams serve the services' requests: in a single process they are the
// services' handlers. peers reach the same services for the gateway's own questions. client must come from cache.Open. wakes
// announces changed settings and certificates. Call Close at the end.
func New(
	config Config,
	upstreams map[string]http.Handler,
	peers *peers.Peers,
	entries *keycache.Store,
	client *cache.Client,
	wakes *wake.Bus,
	log *slog.Logger,
) *Gateway {
	g := &Gateway{
		config:          config,
		log:             log,
		upstreams:       upstreams,
		peers:           peers,
		bodyBudget:      limits.NewBudget(),
		progressTimeout: progressTimeout,
	}
	link := cache.NewLink(client, "limits", log)
	g.metrics = newMetrics(func() bool { return entries.IsUp() && link.IsUp() })
	g.metrics.all = append(g.metrics.all, entries.Metrics()...)
	g.keys = newKeys(entries, peers, g.metrics)
	count := g.metrics.limits.WithLabelValues
	g.ownerRate = limits.NewRate("owner", ownerName, link, count("owner", "allowed"), count("owner", "refused"))
	g.addressRate = limits.NewRate("address", netip.Prefix.String, link, count("address", "allowed"), count("address", "refused"))
	g.ownerConcurrency = limits.NewConcurrency[principal.Owner](count("owner", "concurrency"))
	g.keyConcurrency = limits.NewConcurrency[int64](count("key", "concurrency"))
	g.addressConcurrency = limits.NewConcurrency[netip.Prefix](count("address", "concurrency"))
	g.ownHandler = g.ownRoutes()
	g.cors = newCORS(config.CORSOrigins)
	var revoked []<-chan struct{}
	for _, service := range ownerServices {
		revoked = append(revoked, wakes.Listen(service, keycache.Revoked))
	}
	g.watcher = newRequestWatcher(g.keys, revoked...)
	g.certificates = newCertificates(config, peers, wakes.Listen(settings.ServiceName, settings.CertificateChanged), log)
	g.keyUsage = newKeyUsage(peers)
	g.followSettings(wakes.Listen(settings.ServiceName, settings.Changed))
	return g
}

// Close ends the gateway's background tasks. Call it when the gateway serves no more requests.
func (g *Gateway) Close() {
	g.watcher.Close()
	g.keyUsage.Close()
	g.stopFollowing()
}

var (
	apiVersion = []string{"1"}
	noSniff    = []string{"nosniff"}
	noStore    = []string{"no-store"} // the default; a service may say otherwise
)

// setCommonHeaders sets the headers that every response has.
func setCommonHeaders(header http.Header, requestID string) {
	header["X-Request-Id"] = []string{requestID}
	header["Api-Version"] = apiVersion
	header["X-Content-Type-Options"] = noSniff
	header["Cache-Control"] = noStore
}

// ServeHTTP serves one request: it reads the credentials, watches the key while the request runs, and writes the access log.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	call := &principal.Call{Peer: principal.Gateway, IP: g.callerAddress(r), RequestID: requestID(r), Agent: r.UserAgent()}
	setCommonHeaders(w.Header(), call.RequestID)
	if g.cors != nil && !g.isPreflight(r) {
		g.cors.HandlerFunc(w, r)
	}
	e := newRecorder(w, r, g.progressTimeout)
	c := g.identify(r, e)
	ctx, stop := context.WithCancelCause(principal.NewContext(r.Context(), call))
	defer stop(nil)
	r = tracing.Receive(r.WithContext(ctx))
	defer g.limitBody(r, e.connection)()
	defer g.finish(r.Context(), e, call)
	err := g.requireHTTPS(e, r, call.IP, c.hasSecret)
	if err == nil && e.status == 0 {
		err = g.serve(e, r, stop, call, c)
	}
	revoked := revocationCause(ctx)
	switch {
	case revoked != nil && e.status != 0:
		panic(http.ErrAbortHandler)
	case revoked != nil:
		e.resume()
		problem.Write(e, r, g.log, revoked)
	case err == nil:
	case ctx.Err() == nil, problem.Is(err, problem.BadRequest): // a caller that stops within a body ends the context, but is still there
		problem.Write(e, r, g.log, err)
	}
	if e.status == 0 {
		if ctx.Err() != nil { // the caller has left or closed its half: nobody knows whether the request was done
			panic(http.ErrAbortHandler)
		}
		e.WriteHeader(http.StatusOK)
	}
	e.isComplete = true
}

// serve admits the request and forwards it, or returns the reason for a refusal.
func (g *Gateway) serve(e *recorder, r *http.Request, stop context.CancelCauseFunc, call *principal.Call, c caller) error {
	preflight := g.isPreflight(r)
	if preflight {
		c = caller{}
	}
	decided, err := g.admit(r.Context(), e, call.IP, c.key)
	if e.route == cookie.SessionPath && r.Method == http.MethodDelete && problem.Is(err, problem.Unauthenticated) {
		c.key, err = "", nil // a session that has ended is forgotten
	}
	if err != nil {
		return err
	}
	if c.refusal != nil {
		return c.refusal
	}
	if preflight {
		g.cors.HandlerFunc(e, r)
		return nil
	}
	var watched *watchedRequest
	if c.key != "" {
		leave, err := g.enter(call, decided)
		if err != nil {
			return err
		}
		defer leave()
		watched = g.watcher.add(decided, func(cause error) { e.stop(stop, cause) }, func() { stop(errDraining) })
		e.onStream = func() { g.watcher.markStream(watched) }
		e.confirm = func() error { return g.watcher.confirmStream(r.Context(), watched) }
		defer func() {
			g.watcher.remove(watched)
			if revocationCause(r.Context()) == nil {
				return
			}
			if p := recover(); p != nil && p != http.ErrAbortHandler { // services panic with ErrAbortHandler when their caller has left
				panic(p)
			}
		}()
	} else if e.route != healthPath {
		network := callerNetwork(call.IP)
		if err := g.addressConcurrency.Enter(network); err != nil {
			return err
		}
		defer g.addressConcurrency.Leave(network)
	}
	if err := problem.CheckPath(r.URL); err != nil {
		return err
	}
	switch {
	case e.route == cookie.SessionPath:
		return g.serveSession(e, r, call, c)
	case e.service == principal.Gateway:
		g.ownHandler.ServeHTTP(e, r)
		return nil
	}
	return g.forward(e, r, call, c, watched)
}

// enter makes the call one of a key, and counts it against the requests under way of the key and of its owner. leave must be called
// at the end.
func (g *Gateway) enter(call *principal.Call, d decision) (leave func(), err error) {
	p := d.principal
	call.Principal = p
	g.keyUsage.note(p.KeyID)
	if err := g.keyConcurrency.Enter(p.KeyID); err != nil {
		return nil, err
	}
	if err := g.ownerConcurrency.Enter(p.Owner); err != nil {
		g.keyConcurrency.Leave(p.KeyID)
		return nil, err
	}
	return func() {
		g.ownerConcurrency.Leave(p.Owner)
		g.keyConcurrency.Leave(p.KeyID)
	}, nil
}

// forward buffers the request's body and sends the request to its service.
func (g *Gateway) forward(e *recorder, r *http.Request, call *principal.Call, c caller, watched *watchedRequest) error {
	upstream, ok := g.upstreams[e.service]
	if !ok {
		return problem.NoSuchPath()
	}
	if err := inflate(r, e.Header()); err != nil {
		return err
	}
	if err := trimHead(r, e.service); err != nil {
		return err
	}
	hasBody := r.ContentLength != 0 // the body may take any time to arrive
	release, err := g.bufferBody(r, call)
	if err != nil {
		return err
	}
	defer release()
	if watched != nil && hasBody { // the key was checked before the body arrived
		decided, err := g.recheckKey(r.Context(), call.IP, c.key)
		if err != nil {
			return err
		}
		call.Principal = decided.principal
		g.watcher.renew(watched, decided)
	}
	if c.isConsole {
		if err := checkKeyRequest(r); err != nil {
			return err
		}
	}
	upstream.ServeHTTP(e, r)
	return nil
}

// recheckKey decides about the key again, for a request that was admitted and then waited for its body.
func (g *Gateway) recheckKey(ctx context.Context, ip netip.Addr, key string) (decision, error) {
	decided, err := g.keys.decide(ctx, key, func(context.Context) error { return nil })
	if errors.Is(err, errNoSuchKey) {
		return decided, apikey.Invalid()
	}
	if err != nil {
		return decided, errLookupUnavailable(err)
	}
	return decided, decided.checkNetwork(ip)
}

// errLookupUnavailable returns the 503 for a key that cannot be verified at the moment.
func errLookupUnavailable(cause error) error {
	f := problem.New(problem.Unavailable, "API keys cannot be verified right now. Try again in a second.").Because(cause)
	f.RetryAfter = time.Second
	return f
}

// admit finds the caller, and counts the request against the caller's rate limit. A request without a key has no principal.
func (g *Gateway) admit(ctx context.Context, e *recorder, ip netip.Addr, key string) (decided decision, err error) {
	caller := &anonymousCaller{rate: g.addressRate, header: e.Header(), network: callerNetwork(ip)}
	if key == "" {
		if e.route == healthPath || e.route == console.Path { // cheap; monitoring asks often, and a page has many files
			return decided, nil
		}
		return decided, caller.count(ctx)
	}
	decided, err = g.keys.decide(ctx, key, caller.count)
	if err == nil {
		if networkErr := decided.checkNetwork(ip); networkErr != nil { // a thief uses up the thief's own limit, not the owner's
			if err := caller.count(ctx); err != nil {
				return decided, err
			}
			return decided, networkErr
		}
		caller.refund()
		return decided, g.ownerRate.Take(ctx, e.Header(), decided.principal.Owner)
	}
	if errors.Is(err, errNoSuchKey) {
		if err := caller.count(ctx); err != nil {
			return decided, err
		}
		return decided, apikey.Invalid()
	}
	if problem.Is(err, problem.TooManyRequests) {
		return decided, err
	}
	if ctx.Err() == nil { // leaving before the result is known must not be free, or guessing would be
		caller.refund()
	}
	return decided, errLookupUnavailable(err)
}
