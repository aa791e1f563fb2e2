package product_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/deploy/internal/product/producttest"
	"github.com/ironplane/ironplane/services/clients"
	"github.com/ironplane/ironplane/testkit"
)

// newClients makes clients that are called so, and answers their ids and what uses their keys.
func newClients(t *testing.T, c *testkit.Client, names ...string) (ids map[string]int64, as map[string]*testkit.Client) {
	t.Helper()
	ids, as = map[string]int64{}, map[string]*testkit.Client{}
	for _, name := range names {
		ids[name] = c.Do("POST", "/client", order(name+"@example.com", "first", name)).Want(200).ID()
		as[name] = c.With(keyOf(t, c, path("/client/%d", ids[name])))
	}
	return ids, as
}

// listed are the first names in a client's list.
func listed(t *testing.T, c *testkit.Client) string {
	t.Helper()
	var names []string
	for _, client := range testkit.Decode[[]clients.Client](c.Do("GET", "/client", nil).Want(200)) {
		names = append(names, client.First)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// What a client's key reaches: along sub links whatever is below, and by a super link what the granter reaches.
func TestLinks(t *testing.T) { producttest.Both(t, testLinks) }

func testLinks(t *testing.T, _ *product.Product, c *testkit.Client) {
	ids, as := newClients(t, c, "top", "middle", "leaf", "grantee", "second", "stranger")
	at := func(name string) string { return path("/client/%d", ids[name]) }
	to := func(name string) map[string]any { return map[string]any{"client_id": ids[name]} }
	first := c.Do("POST", at("top")+"/sub", to("middle")).Want(200)
	lower := c.Do("POST", at("middle")+"/sub", to("leaf")).Want(200)
	given := c.Do("POST", at("top")+"/super", map[string]any{"client_email": "GRANTEE@example.com"}).Want(200)
	c.Do("POST", at("grantee")+"/super", to("second")).Want(200)
	if again := c.Do("POST", at("top")+"/sub", to("middle")).Want(200); again.Text != first.Text {
		t.Errorf("a link is %s, and made again %s", first.Text, again.Text)
	}
	for name, want := range map[string]string{"top": "leaf middle", "middle": "leaf", "leaf": "", "grantee": "leaf middle", "second": "", "stranger": ""} {
		if got := listed(t, as[name]); got != want {
			t.Errorf("%s's list has %q, want %q", name, got, want)
		}
	}
	reads := map[string][]string{"top": {"top", "middle", "leaf"}, "middle": {"middle", "leaf"}, "leaf": {"leaf"}, "grantee": {"grantee", "top", "middle", "leaf"}, "second": {"second", "grantee"}, "stranger": {"stranger"}}
	for caller, reached := range reads {
		for name := range ids {
			status := 404
			if slices.Contains(reached, name) {
				status = 200
			}
			for _, below := range []string{"", "/sub", "/super", "/parent", "/granter"} {
				as[caller].Do("GET", at(name)+below, nil).Want(status)
			}
		}
	}
	for path, want := range map[string]string{
		at("middle") + "/parent":   fmt.Sprintf(`[{"id":%d,"parent":{"id":%d,"name":"top Miller"}}]`, first.ID(), ids["top"]),
		at("grantee") + "/granter": fmt.Sprintf(`[{"id":%d,"granter":{"id":%d,"name":"top Miller"}}]`, given.ID(), ids["top"]),
		at("top") + "/super":       fmt.Sprintf(`[{"id":%d,"grantee":{"id":%d,"name":"grantee Miller"}}]`, given.ID(), ids["grantee"]),
	} {
		if got := c.Do("GET", path, nil).Want(200).Text; strings.TrimSpace(got) != want {
			t.Errorf("%s is %s, want %s", path, got, want)
		}
	}

	// What is refused.
	c.Do("POST", at("leaf")+"/sub", to("top")).WantErrors("/client_id", "circle")
	c.Do("POST", at("top")+"/sub", to("top")).WantErrors("/client_id", "invalid")
	c.Do("POST", at("top")+"/super", to("top")).WantErrors("/client_id", "invalid")
	c.Do("POST", at("top")+"/sub", `{"client_id": 999999}`).WantErrors("/client_id", "not_found")
	c.Do("POST", at("top")+"/sub", `{}`).WantErrors("/client_id", "required")
	c.Do("POST", at("top")+"/sub", `{"client_id": 1, "client_email": "a@example.com"}`).WantErrors("/client_email", "conflict")
	for _, other := range []map[string]any{to("stranger"), {"client_id": 999999}} {
		for _, relation := range []string{"/sub", "/super"} {
			as["top"].Do("POST", at("top")+relation, other).WantErrors("/client_id", "not_found")
		}
	}
	as["top"].Do("POST", at("top")+"/super", to("leaf")).WantErrors("/client_id", "not_found") // which it has no link to
	as["grantee"].Do("POST", at("top")+"/super", to("middle")).Want(403)
	as["grantee"].Do("DELETE", fmt.Sprint(at("top"), "/sub/", first.ID()), nil).Want(403)
	as["stranger"].Do("DELETE", fmt.Sprint(at("top"), "/sub/", first.ID()), nil).Want(404)
	as["top"].Do("DELETE", at("middle"), nil).Want(403)

	// A pair stands in both, and either end takes a link away.
	both := as["top"].Do("POST", at("top")+"/super", to("middle")).Want(200)
	if got := listed(t, as["middle"]); got != "leaf" {
		t.Errorf("the granter's list is %q", got)
	}
	as["middle"].Do("GET", at("top"), nil).Want(200)
	as["middle"].Do("DELETE", fmt.Sprint(at("middle"), "/granter/", both.ID()), nil).Want(200)
	as["middle"].Do("GET", at("top"), nil).Want(404)
	as["leaf"].Do("DELETE", fmt.Sprint(at("leaf"), "/parent/", lower.ID()), nil).Want(200)
	if got := listed(t, as["top"]) + "|" + listed(t, as["grantee"]); got != "middle|middle" {
		t.Errorf("without the lower link the lists are %q", got)
	}
	as["top"].Do("DELETE", fmt.Sprint(at("top"), "/super/", given.ID()), nil).Want(200)
	as["grantee"].Do("GET", at("top"), nil).Want(404)
	c.Do("DELETE", at("middle"), nil).Want(200)
	if got := c.Do("GET", at("top")+"/sub", nil).Want(200).Text + listed(t, as["top"]); got != "[]\n" {
		t.Errorf("of a client that is gone there is %s", got)
	}
}

// However many make and take away links at once: there is no circle, and what is reached is what the links say.
func TestSubLinksMakeNoCircle(t *testing.T) { producttest.Together(t, testSubLinksMakeNoCircle) }

func testSubLinksMakeNoCircle(t *testing.T, p *product.Product, c *testkit.Client) {
	const accounts, callers, rounds = 8, 32, 12
	for i := range accounts {
		c.Do("POST", "/client", order(fmt.Sprintf("c%d@example.com", i))).Want(200)
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	made, refused := 0, 0
	for range callers {
		all.Go(func() {
			for range rounds {
				from, to := 1+rand.IntN(accounts), 1+rand.IntN(accounts)
				if from == to {
					continue
				}
				answer := c.Do("POST", path("/client/%d/sub", int64(from)), map[string]any{"client_id": to})
				mu.Lock()
				if answer.Status == 200 {
					made++
				} else {
					answer.WantErrors("/client_id", "circle")
					refused++
				}
				mu.Unlock()
				if answer.Status == 200 && rand.IntN(3) == 0 {
					if gone := c.Do("DELETE", fmt.Sprint(path("/client/%d/sub/", int64(from)), answer.ID()), nil); gone.Status != 404 {
						gone.Want(200)
					}
				}
			}
		})
	}
	all.Wait()
	if made == 0 || refused == 0 {
		t.Errorf("%d links were made, %d refused", made, refused)
	}
	compareReach(t, p)
	c.Do("DELETE", "/client/3,4,5", nil).Want(200)
	compareReach(t, p)
}

// compareReach compares what is kept of whom clients reach with what the links say.
func compareReach(t *testing.T, p *product.Product) {
	t.Helper()
	var circles, wrong int
	err := p.Databases[clients.Name].QueryRow(t.Context(), `
		WITH RECURSIVE way AS (
			SELECT client_id AS ancestor, child_id AS descendant, 1 AS length FROM sub_link WHERE kind <> 'named'
			UNION ALL SELECT w.ancestor, l.child_id, w.length + 1 FROM way w JOIN sub_link l ON l.client_id = w.descendant AND l.kind <> 'named' WHERE w.length < 20),
		counted AS (SELECT ancestor, descendant, count(*)::numeric AS ways FROM way GROUP BY 1, 2)
		SELECT (SELECT count(*) FROM way WHERE ancestor = descendant),
			(SELECT count(*) FROM ((TABLE counted EXCEPT TABLE client_reach) UNION ALL (TABLE client_reach EXCEPT TABLE counted)) differs)`).Scan(&circles, &wrong)
	if err != nil || circles > 0 || wrong > 0 {
		t.Errorf("there are %d circles, and %d pairs are wrong: %v", circles, wrong, err)
	}
}
