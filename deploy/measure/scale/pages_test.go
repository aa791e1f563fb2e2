// Package scale shows that what an installation of many millions of entities answers costs what it costs a small one.
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
	entities = flag.Int("entities", 0, "how many IP entities the larger installation has; 0: nothing is tested")
	data     = flag.String("data", "", "the `folder` of a larger installation that is seeded already")
)

const (
	fewEntities = 10_000
	// tries is one more than the executions after which Postgres may take to a plan for any arguments.
	tries = 7
)

// TestPages asks a small and a large installation the same, and compares the pages that Postgres reads for it.
func TestPages(t *testing.T) {
	if *entities == 0 && *data == "" {
		t.Skip("it takes minutes: make scale")
	}
	explain := func(i *installation, service *pgx.ConnConfig) { i.explain(t, service) }
	few, many := start(t, "", fewEntities, explain), start(t, *data, *entities, explain)
	comparePages(t, few, many, few.questions(t), many.questions(t))
	comparePagesFor(t, "allocate", few.allocate(t), many.allocate(t))
}

type question struct{ name, path string }

// questions have answers of the same size in each installation.
func (i *installation) questions(t testing.TB) []question {
	t.Helper()
	var middle int64 // an entity with all that one can have
	i.ask(t, `SELECT min(e.id) FROM ip_entity e JOIN ip_assignment a ON a.entity_id = e.id
		WHERE e.id >= $1 AND e.id < $1 + 1000 AND e.nickname IS NOT NULL AND a.server_id IS NOT NULL`, &middle, min(i.entities/2, 1_000_000))
	var group, server int64
	var name, four, six, billing, word, two string
	i.ask(t, "SELECT min(group_id) FROM ip_entity", &group)
	i.ask(t, "SELECT name FROM ip_entity WHERE id = $1", &name, middle)
	const assigned = "FROM ip_entity e JOIN ip_assignment a ON a.entity_id = e.id WHERE a.server_id IS NOT NULL AND e.id > $1 AND "
	i.ask(t, "SELECT host(v4_first) "+assigned+"v4_scope = 0 ORDER BY e.id LIMIT 1", &four, middle)
	i.ask(t, "SELECT host(v6_first) "+assigned+"v6_scope = 0 ORDER BY e.id LIMIT 1", &six, middle)
	i.ask(t, "SELECT billing_id FROM ip_entity WHERE id > $1 AND billing_id IS NOT NULL ORDER BY id LIMIT 1", &billing, middle)
	i.ask(
		t,
		"SELECT server_id FROM ip_assignment WHERE entity_id > $1 GROUP BY server_id HAVING count(*) = 4 ORDER BY 1 LIMIT 1",
		&server,
		middle,
	)
	i.ask(t, "SELECT lower(split_part(owner_name, ' ', 1)) FROM ip_assignment GROUP BY 1 HAVING count(*) = 4 ORDER BY 1 LIMIT 1", &word)
	i.ask(
		t,
		"SELECT left(lower(owner_name), 2) FROM ip_assignment GROUP BY 1 ORDER BY abs(count(*) * 100 - sum(count(*)) OVER ()), 1 LIMIT 1",
		&two,
	)
	const page = "&per_page=100"
	return []question{
		{"view", fmt.Sprint("/entity/", middle)},
		{"page 1", "/entity?per_page=100"},
		{"page 10,000, or the middle", i.after(t, "/entity?per_page=100", middle, nil)},
		{"page 1 by name", "/entity?sort=name" + page},
		{"page deep inside by name", i.after(t, "/entity?sort=name"+page, middle, name)},
		{"q: an owner of four entities", "/entity?q=" + word + page},
		{"q: no hit", "/entity?q=xqz" + page},
		{"q: two letters of one in 100", "/entity?q=" + two + "&per_page=20"},
		{"q: two frequent letters", "/entity?q=sv" + page},
		{"q: what most have", "/entity?q=svc-" + page},
		{"q: a billing id", "/entity?q=" + billing + page},
		{"q: an IPv4 address", "/entity?q=" + four + page},
		{"q: an IPv6 address", "/entity?q=" + six + page},
		{"q: an IPv4 prefix", "/entity?q=" + four + "/31" + page},
		{"q: an address' beginning", "/entity?q=" + four[:strings.LastIndex(four, ".")+1] + "&per_page=10"},
		{"page 1 by address", "/entity?sort=address" + page},
		{"page deep inside by address", i.after(t, "/entity?sort=-address"+page, middle, four)},
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

// after is the path of the page behind an entity: what the Link headers lead to, without the way there.
func (i *installation) after(t testing.TB, path string, id int64, name any) string {
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

// measured is the most that an answer took in several tries, and the least time.
type measured struct {
	items int
	pages int64
	took  time.Duration
	plan  string
}

func (i *installation) answer(t testing.TB, path string) measured {
	t.Helper()
	worst := measured{took: time.Hour}
	for range tries {
		var answer *testkit.Response
		var took time.Duration
		plans := i.plans(t, func() {
			started := time.Now()
			answer = i.client.Do("GET", path, nil).Want(200)
			took = time.Since(started)
		})
		plans = slices.DeleteFunc(plans, func(p plan) bool {
			return !strings.Contains(p.Query, "_view") && !strings.Contains(p.Query, "client_seen")
		})
		if len(plans) != 1 {
			t.Fatalf("%s: got %d statements, want 1", path, len(plans))
		}
		if strings.HasPrefix(answer.Text, "[") {
			worst.items = len(testkit.Decode[[]json.RawMessage](answer))
		}
		worst.took = min(worst.took, took)
		if pages := plans[0].Plan.Hit + plans[0].Plan.Read; pages > worst.pages {
			worst.pages, worst.plan = pages, plans[0].text
		}
	}
	return worst
}
