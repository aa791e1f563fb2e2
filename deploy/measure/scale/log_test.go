package scale

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/services/system"
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
	comparePages(t, few, many, few.logQuestions(t, fewItems), many.logQuestions(t, long))
}

// startLog serves a log of so many items, which nobody signed, in which each of 50 admins did as much, to each of 50
// groups, and one admin did three things to one of each.
func startLog(t *testing.T, items int) *installation {
	t.Helper()
	return serve(t, system.Definition, func(db *pg.DB) []rest.Route { return system.New(service.Deps{DB: db}).Routes() },
		fmt.Sprintf(`INSERT INTO log SELECT n, '2026-01-01'::timestamptz + n * interval '1 second', 'network', n,
			(ARRAY['group.edited', 'group.created', 'entity.edited', 'port-speed.edited'])[1 + n / 50 %% 4], 'IP group ' || CASE WHEN n IN (7, 77, 777) THEN 'depot' ELSE 'site' END || ' edited.',
			'/admin/' || CASE WHEN n IN (7, 77, 777) THEN 999 ELSE 1 + n %% 50 END, 'anna', 1, '192.0.2.7', 'request-' || n,
			json_build_array(json_build_object('type', 'group', 'id', CASE WHEN n IN (7, 77, 777) THEN 999 ELSE 1 + n %% 50 END, 'name', 'site ' || n)),
			'{"name":{"before":"a","after":"b"}}', sha256(n::text::bytea) FROM generate_series(1, %d) n`, items),
		"INSERT INTO log_target SELECT 'group', (targets->0->>'id')::bigint, at, id, user_url FROM log",
		"VACUUM (ANALYZE) log", "VACUUM (ANALYZE) log_target")
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
