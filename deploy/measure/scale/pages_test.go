// Package scale shows that requests cost no more in an installation with millions of entities than in a small one.
package scale

import (
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/testkit"
)

var (
	entities = flag.Int("entities", 0, "the number of IP entities of the larger installation; 0: skip the long tests")
	data     = flag.String("data", "", "the `folder` of an already seeded larger installation")
)

const (
	fewEntities = 10_000
	// tries is large enough for PostgreSQL to switch to a generic plan, which it may do after five executions.
	tries = 7
)

// TestPages sends the same requests to a small and a large installation, and compares the pages that PostgreSQL reads.
func TestPages(t *testing.T) {
	if *entities == 0 && *data == "" {
		t.Skip("make scale runs this test")
	}
	explain := func(i *installation, service *pgx.ConnConfig) { i.explain(t, service) }
	few, many := start(t, "", fewEntities, explain), start(t, *data, *entities, explain)
	comparePages(t, few, many, few.requests(t), many.requests(t))
	comparePagesFor(t, "allocate", few.allocate(t), many.allocate(t))
}

type request struct{ name, path string }

// requests returns requests whose responses have the same size in each installation.
func (i *installation) requests(t testing.TB) []request {
	t.Helper()
	var middle int64 // an entity with a name, an owner and a server
	i.query(t, `SELECT min(e.id) FROM ip_entity e JOIN ip_assignment a ON a.entity_id = e.id
		WHERE e.id >= $1 AND e.id < $1 + 1000 AND e.nickname IS NOT NULL AND a.server_id IS NOT NULL`, &middle, min(i.entities/2, 1_000_000))
	var group, server int64
	var name, four, six, billing, word, two string
	i.query(t, "SELECT min(group_id) FROM ip_entity", &group)
	i.query(t, "SELECT name FROM ip_entity WHERE id = $1", &name, middle)
	const assigned = "FROM ip_entity e JOIN ip_assignment a ON a.entity_id = e.id WHERE a.server_id IS NOT NULL AND e.id > $1 AND "
	i.query(t, "SELECT host(v4_first) "+assigned+"v4_scope = 0 ORDER BY e.id LIMIT 1", &four, middle)
	i.query(t, "SELECT host(v6_first) "+assigned+"v6_scope = 0 ORDER BY e.id LIMIT 1", &six, middle)
	i.query(t, "SELECT billing_id FROM ip_entity WHERE id > $1 AND billing_id IS NOT NULL ORDER BY id LIMIT 1", &billing, middle)
	i.query(
		t,
		"SELECT server_id FROM ip_assignment WHERE entity_id > $1 GROUP BY server_id HAVING count(*) = 4 ORDER BY 1 LIMIT 1",
		&server,
		middle,
	)
	i.query(t, "SELECT lower(split_part(owner_name, ' ', 1)) FROM ip_assignment GROUP BY 1 HAVING count(*) = 4 ORDER BY 1 LIMIT 1", &word)
	i.query(
		t,
		"SELECT left(lower(owner_name), 2) FROM ip_assignment GROUP BY 1 ORDER BY abs(count(*) * 100 - sum(count(*)) OVER ()), 1 LIMIT 1",
		&two,
	)
	const page = "&per_page=100"
	return []request{
		{"view", fmt.Sprint("/entity/", middle)},
		{"page 1", "/entity?per_page=100"},
		{"page 10,000, or the middle", i.pageAfter(t, "/entity?per_page=100", middle, nil)},
		{"page 1 by name", "/entity?sort=name" + page},
		{"page deep inside by name", i.pageAfter(t, "/entity?sort=name"+page, middle, name)},
		{"q: an owner of four entities", "/entity?q=" + word + page},
		{"q: no hit", "/entity?q=xqz" + page},
		{"q: two letters of one in 100", "/entity?q=" + two + "&per_page=20"},
		{"q: two frequent letters", "/entity?q=sv" + page},
		{"q: in most names", "/entity?q=svc-" + page},
		{"q: a billing id", "/entity?q=" + billing + page},
		{"q: an IPv4 address", "/entity?q=" + four + page},
		{"q: an IPv6 address", "/entity?q=" + six + page},
		{"q: an IPv4 prefix", "/entity?q=" + four + "/31" + page},
		{"q: an address' beginning", "/entity?q=" + four[:strings.LastIndex(four, ".")+1] + "&per_page=10"},
		{"page 1 by address", "/entity?sort=address" + page},
		{"page deep inside by address", i.pageAfter(t, "/entity?sort=-address"+page, middle, four)},
		{"group_id, by address", fmt.Sprint("/entity?sort=address&group_id=", group, page)},
		{"free", "/entity?assigned=false" + page},
		{"free of a group", fmt.Sprint("/entity?assigned=false&per_page=20&group_id=", group)},
		{"free of a group by address", fmt.Sprint("/entity?assigned=false&sort=address&per_page=20&group_id=", group)},
		{"assigned", "/entity?assigned=true" + page},
		{"billing_id", "/entity?billing_id=" + billing + page},
		{"server_id", fmt.Sprint("/entity?server_id=", server, page)},
		{"group_id", fmt.Sprint("/entity?group_id=", group, page)},
		{"vlan", "/entity?vlan=2" + page},
		{"owner", "/entity?owner=1" + page},
		{"owner and vlan", "/entity?owner=1&vlan=2&per_page=10"},
		{"group_id, by name", fmt.Sprint("/entity?sort=-name&group_id=", group, page)},
		{"vlan, by name", "/entity?sort=-name&vlan=2" + page},
		{"server_id, by name", fmt.Sprint("/entity?sort=name&server_id=", server, page)},
		{"owner, by name", "/entity?sort=name&owner=1" + page},
		{"group's view", fmt.Sprint("/group/", group)},
		{"group's utilization", fmt.Sprintf("/group/%d/utilization", group)},
		{"groups", "/group?per_page=50"},
		{"groups by name", "/group?sort=name&per_page=50"},
		{"groups, q", "/group?q=london&per_page=5"},
	}
}

// pageAfter returns the path of the page after an entity. It changes the cursor of the first page's Link header, so that the
// pages between need not be read.
func (i *installation) pageAfter(t testing.TB, path string, id int64, name any) string {
	t.Helper()
	link := i.client.Do("GET", path, nil).Want(200).Header.Get("Link")
	next, err := url.Parse(link[strings.LastIndex(link[:strings.Index(link, `rel="next"`)], "<")+1 : strings.Index(link, `>; rel="next"`)])
	testkit.Must(t, err)
	query := next.Query()
	text, err := base64.RawURLEncoding.DecodeString(query.Get("cursor"))
	testkit.Must(t, err)
	var cursor map[string]any
	testkit.Must(t, json.Unmarshal(text, &cursor))
	cursor["i"] = id
	if name != nil {
		cursor["v"] = name
	}
	text, err = json.Marshal(cursor)
	testkit.Must(t, err)
	query.Set("cursor", base64.RawURLEncoding.EncodeToString(text))
	return next.Path + "?" + query.Encode()
}

// measurement has the largest number of pages and the shortest time of several tries.
type measurement struct {
	items   int
	pages   int64
	elapsed time.Duration
	plan    string
}

func (i *installation) measureRequest(t testing.TB, path string) measurement {
	t.Helper()
	worst := measurement{elapsed: time.Hour}
	for range tries {
		var measureRequest *testkit.Response
		var elapsed time.Duration
		plans := i.plans(t, func() {
			started := time.Now()
			measureRequest = i.client.Do("GET", path, nil).Want(200)
			elapsed = time.Since(started)
		})
		plans = slices.DeleteFunc(plans, func(p plan) bool {
			return !strings.Contains(p.Query, "_view") && !strings.Contains(p.Query, "client_seen")
		})
		if len(plans) != 1 {
			t.Fatalf("%s: got %d statements, want 1", path, len(plans))
		}
		if strings.HasPrefix(measureRequest.Text, "[") {
			worst.items = len(testkit.Decode[[]json.RawMessage](measureRequest))
		}
		worst.elapsed = min(worst.elapsed, elapsed)
		if pages := plans[0].Plan.Hit + plans[0].Plan.Read; pages > worst.pages {
			worst.pages, worst.plan = pages, plans[0].text
		}
	}
	return worst
}
