// Package pool opens a service's connections to Postgres.
package pool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/exaring/otelpgx"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/multitracer"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/postgres/pgerror"
	"github.com/ironplane/ironplane/pkg/runtime/tracing"
	"github.com/ironplane/ironplane/pkg/secret"
)

// Pool is a pool of connections to a service's schema.
type Pool struct {
	*pg.DB
	connections *pgxpool.Pool
	direct      secret.String // the URL for sessions of their own; zero: that of the pool
	parameters  []string      // the names of the parameters of each session in the pool
	renewal     renewal
	isDiskFull  atomic.Bool // a change failed for lack of disk space
	url         atomic.Pointer[secret.String]
	conflicts   *prometheus.CounterVec
}

const (
	// connectTimeout bounds the time to establish a connection.
	connectTimeout = 10 * time.Second
	// acquireTimeout is how long work waits for a connection of a busy pool. It is shorter than requests may take, so that
	// their callers still get an answer.
	acquireTimeout = 5 * time.Second
	// idleTimeout is after how long an idle connection is closed. A pool looks for them every idleInterval. After each look
	// it uses every connection once before it uses one twice. So with an idleTimeout as long as the interval, a pool with
	// little to do would keep all of them.
	idleTimeout, idleInterval = 10 * time.Second, 20 * time.Second
)

// Options change how a pool connects. The zero value is that of production.
type Options struct {
	// Parameters are parameters of Postgres for each session, in addition to those of the role. Poolers refuse them.
	Parameters map[string]string
	// Direct is the URL of the same database without a pooler such as PgBouncer in between, for what needs a session of
	// its own; zero: the pool's URL.
	Direct secret.String
	// Mode is how statements are sent; empty: CacheStatement.
	Mode QueryMode
	// AcquireTimeout is how long work waits for a free connection; 0: five seconds.
	AcquireTimeout time.Duration
	// IdleTimeout is after how long an idle connection is closed; 0: between 10 and 30 seconds.
	IdleTimeout time.Duration
}

// Open connects to url with at most this many connections. Open returns once the first connection is established. It waits up
// to a minute for a database that is starting or has no free connection. The role has the settings of RoleSettings, because
// poolers refuse parameters at the start of a session.
func Open(ctx context.Context, url string, connections int, o Options) (*Pool, error) {
	if err := checkURL(url); err != nil {
		return nil, err
	}
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("read the database URL: %w", err)
	}
	config.MaxConns = int32(connections)
	config.MaxConnIdleTime, config.HealthCheckPeriod = idleTimeout, idleInterval
	if o.IdleTimeout > 0 {
		config.MaxConnIdleTime, config.HealthCheckPeriod = o.IdleTimeout, o.IdleTimeout*2
	}
	config.ConnConfig.ConnectTimeout = connectTimeout
	tracers := []pgx.QueryTracer{acquireLimit{cmp.Or(o.AcquireTimeout, acquireTimeout)}}
	if provider := tracing.Provider(); provider != nil {
		tracers = append(tracers, otelpgx.NewTracer(otelpgx.WithTracerProvider(provider)))
	}
	config.ConnConfig.Tracer = multitracer.New(tracers...)
	config.ConnConfig.DefaultQueryExecMode = o.Mode.mode()
	maps.Copy(config.ConnConfig.RuntimeParams, o.Parameters)
	p := &Pool{direct: o.Direct, parameters: slices.Collect(maps.Keys(o.Parameters)), renewal: renewal{turn: make(chan struct{}, 1)}}
	config.BeforeConnect = func(_ context.Context, config *pgx.ConnConfig) error { return p.applyURL(config) }
	connected, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("open the database pool: %w", err)
	}
	if err := awaitStarted(ctx, connected); err != nil {
		connected.Close()
		err = explainRefusedParameter(pgerror.ExplainConnect(err), "take them out of DATABASE_URL, because the role has them")
		return nil, fmt.Errorf("connect to the database: %w", err)
	}
	p.connections = connected
	p.conflicts = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ironplane_database_conflicts_total",
		Help: "Units of work that the database refused, by reason. They are retried after a deadlock, a serialization failure or a stall.",
	}, []string{"reason"})
	p.DB = pg.New(connected, p.noteFailure)
	return p, nil
}

// FollowURL makes new connections read the URL again, so that a password can be changed while the process runs.
func (p *Pool) FollowURL(url secret.String) { p.url.Store(&url) }

// applyURL sets the address and credentials of a connection from the present URL.
func (p *Pool) applyURL(config *pgx.ConnConfig) error {
	url := p.url.Load()
	if url == nil {
		return nil
	}
	now, err := parseURL(url.Reveal())
	if err != nil {
		return err
	}
	config.Host, config.Port, config.Database, config.User, config.Password = now.Host, now.Port, now.Database, now.User, now.Password
	config.TLSConfig, config.Fallbacks = now.TLSConfig, now.Fallbacks
	return nil
}

// Renew replaces all sessions by new ones, each as soon as it is idle.
func (p *Pool) Renew() { p.connections.Reset() }

// awaitStarted waits up to a minute while the database says that it is starting, or that it has no free connection. Starting
// takes longer after a crash. Sessions of a process that has just ended may hold connections for a moment.
func awaitStarted(ctx context.Context, pool *pgxpool.Pool) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		err := pool.Ping(ctx)
		if refused, is := errors.AsType[*pgconn.PgError](err); !pgerror.IsFull(err) && (!is || refused.Code != "57P03") {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// Connections returns the underlying pool, for libraries that write to tables of their own.
func (p *Pool) Connections() *pgxpool.Pool { return p.connections }

// Connect opens a connection outside of the pool, without timeouts for its statements, at the direct URL.
func (p *Pool) Connect(ctx context.Context) (*pgx.Conn, error) {
	config := p.connections.Config().ConnConfig.Copy()
	err := p.applyURL(config)
	if !p.direct.IsZero() {
		config, err = parseURL(p.direct.Reveal())
	}
	if err != nil {
		return nil, err
	}
	for _, name := range p.parameters {
		delete(config.RuntimeParams, name)
	}
	for name := range serverTimeouts {
		config.RuntimeParams[name] = "0"
	}
	config.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement
	conn, err := pgx.ConnectConfig(ctx, config)
	return conn, explainRefusedParameter(pgerror.ExplainConnect(err), "set DATABASE_DIRECT_URL to PostgreSQL itself")
}

// Close waits for connections in use, and closes all.
func (p *Pool) Close() { p.connections.Close() }

// Ping fails if the database does not answer.
func (p *Pool) Ping(ctx context.Context) error {
	return pgerror.ExplainConnect(p.connections.Ping(ctx))
}
