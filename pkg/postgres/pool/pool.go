// Package pool opens a service's connections to Postgres.
package pool

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync/atomic"
	"time"

	"github.com/exaring/otelpgx"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/runtime/tracing"
	"github.com/ironplane/ironplane/pkg/secret"
)

// Pool is connections to a schema, and the schema as who serves from it uses it.
type Pool struct {
	*pg.DB
	connections       *pgxpool.Pool
	sessionParameters map[string]string // parameters of its sessions
	renewal           renewal
	isDiskFull        atomic.Bool // the disk had no room for a change
	url               atomic.Pointer[secret.String]
	conflicts         *prometheus.CounterVec
}

// serverTimeouts are what the server itself stops, should a deadline here fail to, in milliseconds.
var serverTimeouts = map[string]string{
	"statement_timeout": "60000",
	"lock_timeout":      "10000",
	// Who waits for the locks of a process that stands still gets them before he gives up.
	"idle_in_transaction_session_timeout": "5000",
}

// Open connects to url (postgres://…?search_path=network,ext) with at most connections connections, whose sessions have
// these parameters of Postgres, and returns once the first one stands, for which a database that is starting, or full, has a minute.
func Open(ctx context.Context, url string, connections int, parameters map[string]string) (*Pool, error) {
	if err := checkURL(url); err != nil {
		return nil, err
	}
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("read the database URL: %w", err)
	}
	config.MaxConns = int32(connections)
	config.MaxConnIdleTime = 5 * time.Minute
	config.ConnConfig.ConnectTimeout = 10 * time.Second
	if provider := tracing.Provider(); provider != nil {
		config.ConnConfig.Tracer = otelpgx.NewTracer(otelpgx.WithTracerProvider(provider))
	}
	serving := maps.Clone(serverTimeouts)
	maps.Copy(serving, parameters)
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
		Help: "How often the database refused a unit of work, which is run again after a deadlock, a serialization failure or a standstill.",
	}, []string{"reason"})
	p.DB = pg.New(connected, p.noteFailure)
	return p, nil
}

// FollowURL has connections that begin from now on go by what the URL is then, so that a password can be changed.
func (p *Pool) FollowURL(url secret.String) { p.url.Store(&url) }

// applyURL says in a connection's configuration where it leads now.
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

// Renew has all sessions end once they are not used, and new ones begin.
func (p *Pool) Renew() { p.connections.Reset() }

// awaitStarted waits for a database that says that it is starting, which takes longer after a crash, or that there is no room beside the
// sessions that there are, which may be those of a process that has just ended.
func awaitStarted(ctx context.Context, pool *pgxpool.Pool) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		err := pool.Ping(ctx)
		if refused, is := errors.AsType[*pgconn.PgError](err); !is || refused.Code != "57P03" && refused.Code != "53300" {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// Connections are the pool as libraries know it, which write to tables of their own.
func (p *Pool) Connections() *pgxpool.Pool { return p.connections }

// Connect makes a connection besides the pool's, without the parameters that are for requests.
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

// Close waits for connections that are in use and closes all.
func (p *Pool) Close() { p.connections.Close() }

// Ping tells whether the database answers.
func (p *Pool) Ping(ctx context.Context) error { return p.connections.Ping(ctx) }
