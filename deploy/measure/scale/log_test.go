package scale

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/principal"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/process/host"
	"github.com/ironplane/ironplane/process/pool"
	"github.com/ironplane/ironplane/services/system"
	"github.com/ironplane/ironplane/testkit"
)

const (
	fewItems = 10_000
	// manyItems are those of the larger log where no flag says how large it is to be.
	manyItems = 60_000
)

// TestLogPages asks a short and a long log the same, and compares the pages that Postgres reads for it.
func TestLogPages(t *testing.T) {
	t.Parallel()
	long := max(*entities, manyItems)
	few, many := startLog(t, fewItems), startLog(t, long)
	for n, q := range few.logQuestions(t, fewItems) {
		a, b := few.answer(t, q.path), many.answer(t, many.logQuestions(t, long)[n].path)
		t.Logf("%-28s %6d %8d %8d %10v %10v", q.name, b.items, a.pages, b.pages, a.took.Round(10*time.Microsecond), b.took.Round(10*time.Microsecond))
		if a.items != b.items {
			t.Errorf("%s: %d items of few and %d of many cannot be compared", q.name, a.items, b.items)
		}
		if b.pages > 2*a.pages {
			t.Errorf("%s: %d pages of %d items, %d of %d\n%s", q.name, b.pages, long, a.pages, fewItems, b.plan)
		}
	}
}

// startLog serves a log of so many items, which nobody signed, in which each of 50 admins did as much, to each of 50
// groups, and one admin did three things to one of each.
func startLog(t *testing.T, items int) *installation {
	t.Helper()
	i, _, urls := ground(t, "")
	url := urls[system.Name]
	db, err := pool.Open(t.Context(), url.Reveal(), 4)
	must(t, err)
	must(t, host.Migrate(t.Context(), system.Definition, db, slog.New(slog.DiscardHandler)))
	db.Close() // what is explained is for connections from now on
	for _, sql := range []string{
		"SET search_path = system, ext",
		fmt.Sprintf(`INSERT INTO log SELECT n, '2026-01-01'::timestamptz + n * interval '1 second', 'network', n,
			(ARRAY['group.edited', 'group.created', 'entity.edited', 'port-speed.edited'])[1 + n / 50 %% 4], 'IP group ' || CASE WHEN n IN (7, 77, 777) THEN 'depot' ELSE 'site' END || ' edited.',
			'/admin/' || CASE WHEN n IN (7, 77, 777) THEN 999 ELSE 1 + n %% 50 END, 'anna', 1, '192.0.2.7', 'request-' || n,
			json_build_array(json_build_object('type', 'group', 'id', CASE WHEN n IN (7, 77, 777) THEN 999 ELSE 1 + n %% 50 END, 'name', 'site ' || n)),
			'{"name":{"before":"a","after":"b"}}', sha256(n::text::bytea) FROM generate_series(1, %d) n`, items),
		"INSERT INTO log_target SELECT 'group', (targets->0->>'id')::bigint, at, id, user_url FROM log",
		"VACUUM (ANALYZE) log", "VACUUM (ANALYZE) log_target",
	} {
		_, err := i.conn.Exec(t.Context(), sql)
		must(t, err)
	}
	service, err := pgx.ParseConfig(url.Reveal())
	must(t, err)
	i.explain(t, service)
	db, err = pool.Open(t.Context(), url.Reveal(), 4)
	must(t, err)
	t.Cleanup(db.Close)
	handler := rest.NewHandler(system.Name, db.DB, slog.New(slog.NewTextHandler(t.Output(), nil)), system.New(db.DB, nil, nil, nil).Routes())
	i.client = testkit.NewClient(t, testkit.As(handler, testkit.Holder(principal.All)))
	return i
}

func (i *installation) logQuestions(t *testing.T, items int) []question {
	t.Helper()
	middle := items / 2
	at := time.Date(2026, 1, 1, 0, 0, middle, 0, time.UTC).Format(time.RFC3339)
	const page = "&per_page=100"
	return []question{
		{"newest", "/log?per_page=100"},
		{"deep inside", i.after(t, "/log?per_page=100", int64(middle), at)},
		{"in order", "/log?sort=id" + page},
		{"view", fmt.Sprint("/log/", middle)},
		{"user", "/log?user=/admin/3" + page},
		{"user, deep inside", i.after(t, "/log?user=/admin/3&per_page=50", int64(middle), at)},
		{"user with three", "/log?user=/admin/999" + page},
		{"type", "/log?type=group.edited" + page},
		{"target", "/log?target_type=group&target_id=3" + page},
		{"target, deep inside", i.after(t, "/log?target_type=group&target_id=3&per_page=50", int64(middle), at)},
		{"target with three", "/log?target_type=group&target_id=999" + page},
		{"target and user", "/log?target_type=group&target_id=3&user=/admin/3" + page},
		{"q: three hits", "/log?q=depot" + page},
		{"q: no hit", "/log?q=xqz" + page},
		{"q: what all have", "/log?q=edited" + page},
		{"q: two letters", "/log?q=an" + page},
		{"q of a target", "/log?q=edited&target_type=group&target_id=3" + page},
		{"until", "/log?until=" + at + page},
		{"since, in order of time", "/log?sort=created_at&since=" + at + page},
		{"user until", "/log?user=/admin/3&until=" + at + page},
		{"type since until", "/log?type=group.edited&since=" + strings.Replace(at, "2026", "2025", 1) + "&until=" + at + page},
	}
}
