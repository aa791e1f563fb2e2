package scale

import (
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/postgres/pool"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/runtime/host"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/testkit"
)

// serve starts one service without a gateway, on a schema that the statements fill. The caller has all permissions.
func serve(t *testing.T, d service.Definition, routes func(*pg.DB) []rest.Route, statements ...string) *installation {
	t.Helper()
	i, _, urls := startDatabase(t, "")
	url := urls[d.Name]
	open := func() *pool.Pool {
		db, err := pool.Open(t.Context(), url.Reveal(), 4, pool.Options{Parameters: d.Parameters})
		testkit.Must(t, err)
		return db
	}
	db := open()
	testkit.Must(t, host.Migrate(t.Context(), d, db, slog.New(slog.DiscardHandler)))
	db.Close() // explain affects only new connections
	for _, sql := range append([]string{"SET search_path = " + d.Name + ", ext"}, statements...) {
		_, err := i.conn.Exec(t.Context(), sql)
		testkit.Must(t, err)
	}
	schema, err := pgx.ParseConfig(url.Reveal())
	testkit.Must(t, err)
	i.explain(t, schema)
	db = open()
	t.Cleanup(db.Close)
	handler := rest.NewHandler(d.Name, db.DB, slog.New(slog.NewTextHandler(t.Output(), nil)), routes(db.DB))
	i.client = testkit.NewClient(t, testkit.As(handler, testkit.AdminWith(principal.All)))
	return i
}

// comparePages sends the same requests to two installations, and compares the pages that PostgreSQL reads.
func comparePages(t *testing.T, few, many *installation, requests, counterparts []request) {
	t.Helper()
	t.Logf("%-28s %6s %12s %12s %10s %10s", "", "items", "pages of few", "of many", "time of few", "of many")
	for n, q := range requests {
		comparePagesFor(t, q.name, few.measureRequest(t, q.path), many.measureRequest(t, counterparts[n].path))
	}
}

func comparePagesFor(t *testing.T, name string, a, b measurement) {
	t.Helper()
	t.Logf(
		"%-28s %6d %12d %12d %10v %10v",
		name,
		b.items,
		a.pages,
		b.pages,
		a.elapsed.Round(10*time.Microsecond),
		b.elapsed.Round(10*time.Microsecond),
	)
	if a.items != b.items {
		t.Errorf("%s: got %d items of few and %d of many, want the same number", name, a.items, b.items)
	}
	if b.pages > 2*a.pages {
		t.Errorf("%s: got %d pages of few and %d of many, want twice as many at most\n%s", name, a.pages, b.pages, b.plan)
	}
}
