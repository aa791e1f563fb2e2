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
	// manyItems is the size of the larger log without the flag -entities.
	manyItems = 60_000
)

// TestLogPages sends the same requests to a short and a long log, and compares the pages that PostgreSQL reads.
func TestLogPages(t *testing.T) {
	t.Parallel()
	long := max(*entities, manyItems)
	few, many := startLog(t, fewItems), startLog(t, long)
	comparePages(t, few, many, few.logRequests(t, fewItems), many.logRequests(t, long))
}

// startLog starts an installation with unsigned log items. They are spread evenly over 50 admins and 50 groups. Three items have
// another admin and another group.
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

func (i *installation) logRequests(t *testing.T, items int) []request {
	t.Helper()
	middle := items / 2
	at := time.Date(2026, 1, 1, 0, 0, middle, 0, time.UTC).Format(time.RFC3339)
	const page = "&per_page=100"
	return []request{
		{"newest", "/log?per_page=100"},
		{"deep inside", i.pageAfter(t, "/log?per_page=100", int64(middle), at)},
		{"in order", "/log?sort=id" + page},
		{"view", fmt.Sprint("/log/", middle)},
		{"user", "/log?user=/admin/3" + page},
		{"user, deep inside", i.pageAfter(t, "/log?user=/admin/3&per_page=50", int64(middle), at)},
		{"user with three", "/log?user=/admin/999" + page},
		{"type", "/log?type=group.edited" + page},
		{"target", "/log?target_type=group&target_id=3" + page},
		{"target, deep inside", i.pageAfter(t, "/log?target_type=group&target_id=3&per_page=50", int64(middle), at)},
		{"target with three", "/log?target_type=group&target_id=999" + page},
		{"target and user", "/log?target_type=group&target_id=3&user=/admin/3" + page},
		{"q: three hits", "/log?q=depot" + page},
		{"q: no hit", "/log?q=xqz" + page},
		{"q: in all items", "/log?q=edited" + page},
		{"q: two letters", "/log?q=an" + page},
		{"q of a target", "/log?q=edited&target_type=group&target_id=3" + page},
		{"until", "/log?until=" + at + page},
		{"since, in order of time", "/log?sort=created_at&since=" + at + page},
		{"user until", "/log?user=/admin/3&until=" + at + page},
		{"type since until", "/log?type=group.edited&since=" + strings.Replace(at, "2026", "2025", 1) + "&until=" + at + page},
	}
}
