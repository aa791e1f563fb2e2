package pool_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/postgres/pool"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// A pool's sessions have its parameters and the role's timeouts. A connection outside of the pool, on which migrations run,
// has neither.
func TestParameters(t *testing.T) {
	t.Parallel()
	const joins, jit = "enable_mergejoin", "jit"
	url := testkit.Databases(t, testkit.Service{Name: "tuned"})["tuned"].Reveal()
	p, err := pool.Open(t.Context(), url, 1, pool.Options{Parameters: map[string]string{joins: "off"}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	besides, err := p.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer besides.Close(t.Context())
	for _, c := range []struct {
		name, wanted string
		on           interface {
			QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
		}
	}{
		{joins, "off", p}, {jit, "on", p}, {"statement_timeout", "1min", p},
		{joins, "on", besides}, {"statement_timeout", "0", besides},
	} {
		var is string
		if err := c.on.QueryRow(t.Context(), "SELECT current_setting($1)", c.name).Scan(&is); err != nil || is != c.wanted {
			t.Errorf("%s: got %q, %v, want %q", c.name, is, err, c.wanted)
		}
	}
}

// administrate returns a function that runs statements as the database's administrator, and the quoted name of the database.
func administrate(t *testing.T, url secret.String) (do func(sql string), database string) {
	t.Helper()
	config, err := pgx.ParseConfig(testkit.AdminURL(t, url).Reveal())
	if err != nil {
		t.Fatal(err)
	}
	administrator, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = administrator.Close(context.Background()) })
	return func(sql string) {
		t.Helper()
		if _, err := administrator.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}, pgx.Identifier{config.Database}.Sanitize()
}

// Open waits for a free connection while sessions of an earlier process hold them all.
func TestOpenWaitsForConnections(t *testing.T) {
	t.Parallel()
	url := testkit.Databases(t, testkit.Service{Name: "replaced"})["replaced"]
	before, err := pool.Open(t.Context(), url.Reveal(), 1, pool.Options{})
	if err != nil {
		t.Fatal(err)
	}
	do, database := administrate(t, url)
	do("ALTER DATABASE " + database + " CONNECTION LIMIT 2") // the administrator's own connection counts, too
	ended := time.AfterFunc(300*time.Millisecond, before.Close)
	defer ended.Stop()
	p, err := pool.Open(t.Context(), url.Reveal(), 1, pool.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p.Close()
}

// Once a database is writable again, no unit of work fails because of a session that began before.
func TestWritableAfterReadOnly(t *testing.T) {
	t.Parallel()
	const connections = 8
	url := testkit.Databases(t, testkit.Service{Name: "failed_over"})["failed_over"]
	p, err := pool.Open(
		t.Context(),
		url.Reveal(),
		connections,
		pool.Options{Parameters: map[string]string{"idle_in_transaction_session_timeout": "0"}},
	) // the units of work wait for one another
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	do, database := administrate(t, url)
	// all runs as many units of work at once as there are sessions.
	all := func() error {
		failures := make([]error, connections)
		var begun, ended sync.WaitGroup
		begun.Add(connections)
		for n := range connections {
			ended.Go(func() {
				first := true
				failures[n] = p.InTx(t.Context(), func(tx *pg.Tx) error {
					if first {
						first = false
						begun.Done()
						begun.Wait()
					}
					tx.Unrecorded("a test")
					_, err := tx.Exec(t.Context(), "SELECT nextval('counter')")
					return err
				})
			})
		}
		ended.Wait()
		return errors.Join(failures...)
	}
	do("CREATE SEQUENCE failed_over.counter")
	do("GRANT ALL ON SEQUENCE failed_over.counter TO PUBLIC")
	for range 3 {
		do("ALTER DATABASE " + database + " SET default_transaction_read_only = on")
		p.Renew()
		if err := all(); err == nil {
			t.Fatal("changes in a read-only database: got no error, want one")
		}
		do("ALTER DATABASE " + database + " SET default_transaction_read_only = off")
		if err := all(); err != nil {
			t.Fatal(err)
		}
	}
}
