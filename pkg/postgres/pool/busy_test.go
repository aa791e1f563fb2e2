package pool_test

import (
	"context"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/postgres/pgerror"
	"github.com/ironplane/ironplane/pkg/postgres/pool"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/testkit"
)

// hold occupies a connection of the pool until release is called.
func hold(t *testing.T, p *pool.Pool) (release func()) {
	t.Helper()
	begun, end, ended := make(chan struct{}), make(chan struct{}), make(chan error)
	go func() {
		ended <- p.InTx(context.Background(), func(tx *pg.Tx) error {
			tx.Unrecorded("a test")
			close(begun)
			<-end
			return nil
		})
	}()
	select {
	case <-begun:
	case err := <-ended:
		t.Fatal(err)
	}
	return func() {
		close(end)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// do runs an empty unit of work.
func do(ctx context.Context, p *pool.Pool) error {
	return p.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("a test")
		return nil
	})
}

// endless are parameters with which sessions may stay idle in a transaction.
var endless = map[string]string{"idle_in_transaction_session_timeout": "0"}

// Work that finds all connections of the pool in use gives up in time, and its caller may try again.
func TestBusyPool(t *testing.T) {
	t.Parallel()
	url := testkit.Databases(t, testkit.Service{Name: "busy"})["busy"].Reveal()
	p, err := pool.Open(t.Context(), url, 1, pool.Options{AcquireTimeout: 50 * time.Millisecond, Parameters: endless})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	release := hold(t, p)
	var n int
	rows, err := p.Query(t.Context(), "SELECT 1")
	for name, err := range map[string]error{
		"a unit of work": do(t.Context(), p),
		"a row":          p.QueryRow(t.Context(), "SELECT 1").Scan(&n),
		"rows":           err,
		"their end":      rows.Err(),
		"a statement":    p.Parse(t.Context(), "SELECT 1"),
	} {
		f := problem.From(pgerror.Explain(err))
		if f.Kind != problem.Unavailable || f.RetryAfter == 0 || f.Detail != "No connection to the database is free right now. Try again." {
			t.Errorf("%s: got %v, want a 503 that says that no connection is free", name, err)
		}
	}
	release()
	if err := do(t.Context(), p); err != nil {
		t.Errorf("after the connection was free again: got %v, want no error", err)
	}
}

// While the role has no connection left, work waits for one of its pool.
func TestFullRole(t *testing.T) {
	t.Parallel()
	url := testkit.Databases(t, testkit.Service{Name: "crowded"})["crowded"]
	p, err := pool.Open(t.Context(), url.Reveal(), 2, pool.Options{Parameters: endless})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	admin, _ := administrate(t, url)
	admin("ALTER ROLE test_crowded CONNECTION LIMIT 1")
	release := hold(t, p)
	time.AfterFunc(300*time.Millisecond, release) // after the server has refused a second connection
	if err := do(t.Context(), p); err != nil {
		t.Errorf("got %v, want the work to wait for the connection of the pool", err)
	}
	second := hold(t, p)
	defer second()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if f := problem.From(pgerror.Explain(do(ctx, p))); f.Kind != problem.Unavailable || f.RetryAfter == 0 {
		t.Errorf("no connection became free: got %v, want a 503 with a time to try again", f)
	}
}

// A pool closes the connections that it does not use, although some of its work goes on.
func TestPoolShrinks(t *testing.T) {
	t.Parallel()
	url := testkit.Databases(t, testkit.Service{Name: "idle"})["idle"].Reveal()
	p, err := pool.Open(t.Context(), url, 4, pool.Options{IdleTimeout: 100 * time.Millisecond, Parameters: endless})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	var all []func()
	for range 4 {
		all = append(all, hold(t, p))
	}
	if n := p.Connections().Stat().TotalConns(); n != 4 {
		t.Errorf("under load: got %d connections, want 4", n)
	}
	for _, release := range all {
		release()
	}
	testkit.Eventually(t, "one connection is left", func() bool {
		if err := do(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		return p.Connections().Stat().TotalConns() == 1
	})
}
