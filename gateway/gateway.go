// Package gateway is the one public door: it finds out whose key a request carries and hands the request, with the
// principal, to the service that owns its path. It understands no bodies and knows no resource.
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

// Config is what operators decide about a gateway's process.
type Config struct {
	TrustedProxies []netip.Prefix   `env:"IRONPLANE_TRUSTED_PROXIES" doc:"whose X-Forwarded-For and Forwarded count: addresses and CIDRs, with commas"`
	CORSOrigins    Origins          `env:"IRONPLANE_CORS_ORIGINS" doc:"web pages of these origins may call from browsers: https://panel.example.com, with commas"`
	TLSListen      string           `env:"IRONPLANE_TLS_LISTEN" doc:"the address to serve on by TLS, beside the other one: 0.0.0.0:443"`
	TLSCertificate string           `env:"IRONPLANE_TLS_CERTIFICATE" doc:"the file of the certificate for that, with those between it and the authority's, PEM; empty: the one that the system service obtains"`
	TLSKey         string           `env:"IRONPLANE_TLS_KEY" doc:"the file of its private key, PEM"`
	Maintenance    maintenance.File `env:"IRONPLANE_MAINTENANCE" doc:"a file: as long as it is there, changes are refused, for the reason that it holds, and jobs pause"`
}

// Gateway serves the public API.
type Gateway struct {
	config    Config
	log       *slog.Logger
	upstreams map[string]http.Handler
	peers     *peers.Peers
	keys      *keys
	perOwner  *limits.Rate[principal.Owner]
	perKey    *limits.Concurrency[int64] // so that a key that leaked leaves its owner enough to revoke it
	owners    *limits.Concurrency[principal.Owner]
	addresses *limits.Concurrency[netip.Prefix]
	perCaller *limits.Rate[netip.Prefix]
	metrics   *metrics
	own       http.Handler
	cors      *cors.Cors // nil: no other origin may call
	watch     *watch
	uses      *uses
	bodies    *limits.Budget
	progress  time.Duration
	settings  *settings.Follower
	secured   *certificates
	unfollow  func()
}

// New makes a gateway in front of these services. An upstream is what serves a service's requests: in one process,
// the service's handler itself. Peers are the same services for the gateway's own questions. The client is one that
// cache.Open made, and the bus tells when settings were changed. Close ends it.
func New(
	config Config,
	upstreams map[string]http.Handler,
	peers *peers.Peers,
	entries *keycache.Store,
	client *cache.Client,
	wakes *wake.Bus,
	log *slog.Logger,
) *Gateway {
	g := &Gateway{config: config, log: log, upstreams: upstreams, peers: peers, bodies: limits.NewBudget(), progress: progress}
	link := cache.NewLink(client, "limits", log)
	g.metrics = newMetrics(func() bool { return entries.Up() && link.Up() })
	g.metrics.all = append(g.metrics.all, entries.Metrics()...)
	g.keys = newKeys(entries, peers, g.metrics)
	decided := g.metrics.limits.WithLabelValues
	g.perOwner = limits.NewRate("owner", ownerName, link, decided("owner", "allowed"), decided("owner", "refused"))
	g.perCaller = limits.NewRate("address", netip.Prefix.String, link, decided("address", "allowed"), decided("address", "refused"))
	g.owners = limits.NewConcurrency[principal.Owner](decided("owner", "concurrency"))
	g.perKey = limits.NewConcurrency[int64](decided("key", "concurrency"))
	g.addresses = limits.NewConcurrency[netip.Prefix](decided("address", "concurrency"))
	g.own = g.ownRoutes()
	g.cors = newCORS(config.CORSOrigins)
	g.watch = newWatch(g.keys)
	g.secured = newCertificates(config, peers, wakes.Listen(settings.Keeper, settings.CertificateChanged), log)
	g.uses = newUses(peers)
	g.follow(wakes.Listen(settings.Keeper, settings.Changed))
	return g
}

// Close ends what the gateway does besides answering. It is for when it answers no more.
func (g *Gateway) Close() {
	g.watch.Close()
	g.uses.Close()
	g.unfollow()
}

var (
	apiVersion = []string{"1"}
	noSniff    = []string{"nosniff"}
	noStore    = []string{"no-store"} // unless who answers says otherwise
)

// announce says what every answer says.
func announce(answer http.Header, requestID string) {
	answer["X-Request-Id"] = []string{requestID}
	answer["Api-Version"] = apiVersion
	answer["X-Content-Type-Options"] = noSniff
	answer["Cache-Control"] = noStore
}

func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	call := &principal.Call{Peer: principal.Gateway, IP: g.callerOf(r), RequestID: requestID(r), Agent: r.UserAgent()}
	announce(w.Header(), call.RequestID)
	if g.cors != nil && !g.isPreflight(r) {
		g.cors.HandlerFunc(w, r)
	}
	key, carried := takeCredentials(r, settings.KeyInQuery.In(g.settings.Values()) == 1)
	e := newRecorder(w, r, g.progress)
	ctx, stop := context.WithCancelCause(principal.With(r.Context(), call))
	defer stop(nil)
	r = tracing.Receive(r.WithContext(ctx))
	defer g.limitBody(r, e.connection)()
	defer g.finish(r.Context(), e, call)
	err := g.refusePlain(e, r, call.IP, carried)
	if err == nil && e.status == 0 {
		err = g.serve(e, r, stop, call, key)
	}
	revoked := revocation(ctx)
	switch {
	case revoked != nil && e.status != 0:
		panic(http.ErrAbortHandler)
	case revoked != nil:
		e.resume()
		problem.Write(e, r, g.log, revoked)
	case err == nil:
	case ctx.Err() == nil, problem.Is(err, problem.BadRequest): // who falls silent within a body ends the context, and is there
		problem.Write(e, r, g.log, err)
	}
	if e.status == 0 {
		if ctx.Err() != nil { // its caller has left, or has closed his half: nobody knows what was done
			panic(http.ErrAbortHandler)
		}
		e.WriteHeader(http.StatusOK)
	}
	e.ended = true
}

// serve lets the request in and passes it on, or says why not.
func (g *Gateway) serve(e *recorder, r *http.Request, stop context.CancelCauseFunc, call *principal.Call, key string) error {
	preflight := g.isPreflight(r)
	if preflight {
		key = ""
	}
	found, err := g.letIn(r.Context(), e, call.IP, key)
	if err != nil {
		return err
	}
	if preflight {
		g.cors.HandlerFunc(e, r)
		return nil
	}
	var underWay *watched
	if key != "" {
		call.Principal = found.principal
		g.uses.note(found.principal.KeyID)
		if err := g.perKey.Enter(found.principal.KeyID); err != nil {
			return err
		}
		defer g.perKey.Leave(found.principal.KeyID)
		if err := g.owners.Enter(found.principal.Owner); err != nil {
			return err
		}
		defer g.owners.Leave(found.principal.Owner)
		underWay = g.watch.add(found, func(cause error) { e.stop(stop, cause) })
		defer func() {
			g.watch.remove(underWay)
			if revocation(r.Context()) == nil {
				return
			}
			if p := recover(); p != nil && p != http.ErrAbortHandler { // by which a service gives up whose caller has left
				panic(p)
			}
		}()
	} else if e.route != healthPath {
		network := networkOf(call.IP)
		if err := g.addresses.Enter(network); err != nil {
			return err
		}
		defer g.addresses.Leave(network)
	}
	if e.service == principal.Gateway {
		g.own.ServeHTTP(e, r)
		return nil
	}
	return g.forward(e, r, call, key, underWay)
}

// forward hands the request to its service, once its body is there.
func (g *Gateway) forward(e *recorder, r *http.Request, call *principal.Call, key string, underWay *watched) error {
	upstream, ok := g.upstreams[e.service]
	if !ok {
		return problem.NoSuchPath()
	}
	if err := inflate(r, e.Header()); err != nil {
		return err
	}
	if err := forwardHead(r, e.service); err != nil {
		return err
	}
	late := r.ContentLength != 0 // the body may come at any time
	free, err := g.readBody(r, call)
	if err != nil {
		return err
	}
	defer free()
	if underWay != nil && late { // what it may do was decided before its body came
		found, err := g.decideAgain(r.Context(), call.IP, key)
		if err != nil {
			return err
		}
		call.Principal = found.principal
		g.watch.renew(underWay, found)
	}
	upstream.ServeHTTP(e, r)
	return nil
}

// decideAgain is for a request that was let in, and waited.
func (g *Gateway) decideAgain(ctx context.Context, ip netip.Addr, key string) (decision, error) {
	found, err := g.keys.decide(ctx, key, func(context.Context) error { return nil })
	if errors.Is(err, errNoSuchKey) {
		return found, apikey.Invalid()
	}
	if err != nil {
		return found, errNobodyKnows(err)
	}
	return found, found.from(ip)
}

func errNobodyKnows(cause error) error {
	f := problem.New(problem.Unavailable, "Keys cannot be looked up right now.").Because(cause)
	f.RetryAfter = time.Second
	return f
}

// letIn finds out who calls, nobody where the request carries no key, and holds everybody to his limit.
func (g *Gateway) letIn(ctx context.Context, e *recorder, ip netip.Addr, key string) (found decision, err error) {
	caller := &anonymous{limit: g.perCaller, answer: e.Header(), network: networkOf(ip)}
	if key == "" {
		if e.route == healthPath { // asked often by who watches over us, and costs nothing
			return found, nil
		}
		return found, caller.count(ctx)
	}
	found, err = g.keys.decide(ctx, key, caller.count)
	if err == nil {
		if wrong := found.from(ip); wrong != nil { // who has found the key uses up his own limit, and not its owner's
			if err := caller.count(ctx); err != nil {
				return found, err
			}
			return found, wrong
		}
		caller.uncount()
		return found, g.perOwner.Take(ctx, e.Header(), found.principal.Owner)
	}
	if errors.Is(err, errNoSuchKey) {
		if err := caller.count(ctx); err != nil {
			return found, err
		}
		return found, apikey.Invalid()
	}
	if problem.Is(err, problem.TooManyRequests) {
		return found, err
	}
	if ctx.Err() == nil { // else nobody knows what he would have been told, and anybody can leave
		caller.uncount()
	}
	return found, errNobodyKnows(err)
}
