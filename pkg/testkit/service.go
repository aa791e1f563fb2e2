package testkit

import (
	"context"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/cache"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/postgres/pool"
	"github.com/ironplane/ironplane/pkg/runtime/host"
	"github.com/ironplane/ironplane/pkg/runtime/mesh"
	"github.com/ironplane/ironplane/pkg/runtime/peers"
	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/wake"
)

// ServiceOptions are the options of a service under test. The zero value is a service without neighbours.
type ServiceOptions struct {
	Settings    service.Settings
	Environment map[string]string       // variables of the environment, used until a setting replaces them
	Neighbours  map[string]http.Handler // the other services that it can ask, by name
	Redis       *cache.Client           // nil: a new one
	MasterKey   secret.String           // empty: a new one
	Log         *slog.Logger            // nil: warnings go to the test's output
}

// RunningService is a service under test. As in its own process it serves requests, follows its neighbours and does its jobs.
type RunningService struct {
	*Client // of an admin with every permission

	DB   *pg.DB
	Deps service.Deps

	t          testing.TB
	definition service.Definition
	running    *host.Service
	options    ServiceOptions
	url        secret.String // of its database
	stop       func()

	mu      sync.Mutex
	callers map[string]*principal.Principal // by their keys
}

// Run runs a service on a new database until the test ends.
func Run(t testing.TB, d service.Definition, o ServiceOptions) *RunningService {
	t.Helper()
	if o.Redis == nil {
		o.Redis = Redis(t)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	}
	url := Databases(t, Service{Name: d.Name, Migrations: d.Migrations})[d.Name]
	if o.MasterKey.IsZero() {
		o.MasterKey = seal.NewMasterKey()
	}
	s, err := runService(t, d, o, url)
	if err != nil {
		t.Fatalf("run %s: %v", d.Name, err)
	}
	return s
}

// Restart stops the service and runs it with other settings on the same database, Redis and keys. The error says why it does not
// start.
func (s *RunningService) Restart(settings service.Settings, environment map[string]string) (*RunningService, error) {
	s.t.Helper()
	s.stop()
	o := s.options
	o.Settings, o.Environment = settings, environment
	return runService(s.t, s.definition, o, s.url)
}

func runService(t testing.TB, d service.Definition, o ServiceOptions, url secret.String) (*RunningService, error) {
	t.Helper()
	neighbours := maps.Clone(o.Neighbours)
	if neighbours == nil {
		neighbours = map[string]http.Handler{}
	}
	s := &RunningService{t: t, definition: d, options: o, url: url, callers: map[string]*principal.Principal{}}
	o.Settings.Tuning = Tune(o.Settings.Tuning)
	others := peers.New(d.Name, neighbours)
	others.MinTimeout = o.Settings.Tuning.MinTimeout
	s.Deps = service.Deps{
		Peers:     others,
		Redis:     o.Redis,
		Wakes:     wake.New(o.Redis),
		Settings:  o.Settings,
		Variables: o.Environment,
		Log:       o.Log,
	}
	s.Deps.Wakes.Interval = o.Settings.Tuning.PollInterval
	key, err := seal.Derive(o.MasterKey, d.Name, d.Purposes()...)
	if err != nil {
		return nil, err
	}
	if err := host.Unlock(d, &s.Deps, key); err != nil {
		return nil, err
	}
	on, err := pool.Open(t.Context(), url.Reveal(), connections, d.PoolOptions(o.Settings.Tuning))
	if err != nil {
		return nil, err
	}
	s.DB, s.Deps.DB = on.DB, on.DB
	if err := host.Prepare(t.Context(), d, s.Deps); err != nil {
		on.Close()
		return nil, err
	}
	running, err := host.Assemble(t.Context(), d, on, s.Deps, "")
	if err != nil {
		on.Close()
		return nil, err
	}
	s.running, neighbours[d.Name] = running, running
	working, end := context.WithCancel(context.WithoutCancel(t.Context()))
	var work sync.WaitGroup
	work.Go(func() { s.Deps.Wakes.Run(working) })
	work.Go(func() { running.Work(working) })
	s.stop = sync.OnceFunc(func() {
		end()
		work.Wait()
		on.Close()
	})
	t.Cleanup(s.stop)
	s.Client = NewClient(t, http.HandlerFunc(s.serve))
	s.Client = s.As(AdminWith(principal.All))
	return s, nil
}

// As returns a client of the service for a principal. nil: without a key.
func (s *RunningService) As(p *principal.Principal) *Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := strconv.Itoa(len(s.callers) + 1)
	s.callers[key] = p
	return s.WithKey(key)
}

// Peers returns the connection that another process, self, has to the service's internal routes.
func (s *RunningService) Peers(self string) mesh.Peers {
	return peers.New(self, map[string]http.Handler{s.definition.Name: s.running})
}

// Handler returns the handler that neighbours reach.
func (s *RunningService) Handler() http.Handler { return s.running }

// Show adds the service's checks and metrics to the operator's.
func (s *RunningService) Show(o host.Operations) { s.running.Expose(o) }

// serve calls the service as the gateway does.
func (s *RunningService) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	caller := s.callers[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")]
	s.mu.Unlock()
	call := &principal.Call{Peer: principal.Gateway, Principal: caller, IP: netip.MustParseAddr("192.0.2.7"), RequestID: "test"}
	s.running.ServeHTTP(w, r.WithContext(principal.NewContext(r.Context(), call)))
}
