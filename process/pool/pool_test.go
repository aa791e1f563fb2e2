package pool_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/process/pool"
	"github.com/ironplane/ironplane/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// A pool's sessions have its parameters, and a connection besides, on which migrations run, has Postgres' own.
func TestParameters(t *testing.T) {
	t.Parallel()
	const joins, jit = "enable_mergejoin", "jit"
	url := testkit.Databases(t, testkit.Service{Name: "tuned"})["tuned"].Reveal()
	p, err := pool.Open(t.Context(), url, 1, map[string]string{joins: "off"})
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
			t.Errorf("%s is %q, %v", c.name, is, err)
		}
	}
}
