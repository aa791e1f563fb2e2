// Package pool opens a service's connections to Postgres.
package pool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
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
	connections       *pgxpool.Pool
	sessionParameters map[string]string // of each session in the pool
	renewal           renewal
	isDiskFull        atomic.Bool // a change failed for lack of disk space
	url               atomic.Pointer[secret.String]
	conflicts         *prometheus.CounterVec
}

// serverTimeouts are enforced by the server, in case a deadline in this process fails to. In milliseconds.
var serverTimeouts = map[string]string{
	"statement_timeout": "60000",
	"lock_timeout":      "10000",
	// A session that waits for the locks of a stalled process gets them before its lock_timeout.
	"idle_in_transaction_session_timeout": "5000",
}

const (
	// connectTimeout bounds the time to establish a connection.
	connectTimeout = 10 * time.Second
	// acquireTimeout is how long work waits for a connection of a busy pool. It is shorter than requests may take, so that
	// their callers still get an answer.
	acquireTimeout = 5 * time.Second
	// idleTimeout is after how long an idle connection is closed. A pool looks at its connections every idleInterval, and
	// afterwards uses each of them once before it uses one of them again. So idleTimeout is well below idleInterval: every
	// idle connection has been used within the interval.
	idleTimeout, idleInterval = 20 * time.Second, time.Minute
)

// Options change how a pool connects. The zero value is that of production.
type Options struct {
	// Parameters are parameters of Postgres for each session.
	Parameters map[string]string
	// AcquireTimeout is how long work waits for a free connection; 0: five seconds.
	AcquireTimeout time.Duration
	// IdleTimeout is after how long an idle connection is closed; 0: between 20 and 80 seconds.
	IdleTimeout time.Duration
}

// Open connects to url (postgres://…?search_path=network,ext) with at most this many connections. Open returns once the
// first connection is established. It waits up to a minute for a database that is starting or has no free connection.
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
		config.MaxConnIdleTime, config.HealthCheckPeriod = o.IdleTimeout, o.IdleTimeout*3
	}
	config.ConnConfig.ConnectTimeout = connectTimeout
	tracers := []pgx.QueryTracer{acquireLimit{cmp.Or(o.AcquireTimeout, acquireTimeout)}}
	if provider := tracing.Provider(); provider != nil {
		tracers = append(tracers, otelpgx.NewTracer(otelpgx.WithTracerProvider(provider)))
	}
	config.ConnConfig.Tracer = multitracer.New(tracers...)
	serving := maps.Clone(serverTimeouts)
	maps.Copy(serving, o.Parameters)
	maps.Copy(config.ConnConfig.RuntimeParams, serving)
	p := &Pool{sessionParameters: serving, renewal: renewal{turn: make(chan struct{}, 1)}}
	config.BeforeConnect = func(_ context.Context, config *pgx.ConnConfig) error { return p.applyURL(config) }
	connected, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("open the database pool: %w", err)
	}
	if err := awaitStarted(ctx, connected); err != nil {
		connected.Close()
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
	text := url.Reveal()
	if err := checkURL(text); err != nil {
		return err
	}
	now, err := pgx.ParseConfig(text)
	if err != nil {
		return fmt.Errorf("read the database URL: %w", err)
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

// Connect opens a connection outside of the pool, without the session parameters for requests.
func (p *Pool) Connect(ctx context.Context) (*pgx.Conn, error) {
	config := p.connections.Config().ConnConfig.Copy()
	if err := p.applyURL(config); err != nil {
		return nil, err
	}
	for name := range p.sessionParameters {
		delete(config.RuntimeParams, name)
	}
	return pgx.ConnectConfig(ctx, config)
}

// Close waits for connections in use, and closes all.
func (p *Pool) Close() { p.connections.Close() }

// Ping fails if the database does not answer.
func (p *Pool) Ping(ctx context.Context) error { return p.connections.Ping(ctx) }
