package network_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/network"
)

func TestRemoval(t *testing.T) {
	t.Parallel()
	c, db := newService(t)
	c.Do("POST", "/group", `{"name": "Berlin"}`).Want(200)
	c.Do("POST", "/group", `{"name": "Bern"}`).Want(200)
	c.Do("POST", "/group/1/entity/bulk", `{"prefix": "192.0.2.0/24", "all": true}`).Want(200)         // 1 to 256
	c.Do("POST", "/group/1/entity/bulk", `{"prefix": "10.0.0.0/24", "length": 29}`).Want(200)         // 257 to 288
	c.Do("POST", "/group/2/entity/bulk", `{"prefix": "10.0.0.0/24", "length": 29}`).Want(200)         // 289 to 320
	c.Do("POST", "/group/1/entity/bulk", `{"prefix": "2001:db8::/56", "length": 64}`).Want(200)       // 321 to 576
	c.Do("POST", "/entity", `{"group": 1, "address": "10.0.1.1", "v6_address": "fd00::1"}`).Want(200) // 577
	c.Do("POST", "/field", `{"name": "Rack", "slug": "rack", "target_type": "entity"}`).Want(200)
	c.Do("POST", "/field/1/value", `{"target_id": 1, "value": "12"}`).Want(200)
	remove := func(body string) *testkit.Response { return c.Do("POST", "/group/1/entity/bulk-delete", body) }
	removed := func(body string, count int) {
		t.Helper()
		before := len(names(c.Do("GET", "/entity?group_id=1", nil)))
		if got := testkit.Decode[network.Removed](remove(body).Want(200)); got.Count != count {
			t.Errorf("%s: got %+v deleted, want %d", body, got, count)
		}
		if left := len(names(c.Do("GET", "/entity?group_id=1", nil))); left != before-count {
			t.Errorf("%s: got %d left, want %d", body, left, before-count)
		}
		remove(
			body,
		).WantErrors(
			map[bool]string{
				true: "/ids", false: map[bool]string{true: "/prefix", false: "/to"}[strings.Contains(body, "prefix")],
			}[strings.Contains(body, "ids")],
			"not_found",
		)
	}
	counts := func(want string) {
		t.Helper()
		got := c.Do("GET", "/group/1", nil).Want(200).Text + c.Do("GET", "/group/1/utilization", nil).Want(200).Text
		if !strings.Contains(got, want) {
			t.Errorf("got the counts %s, want %s in them", got, want)
		}
	}
	counts(`"free":545,"reserved":0,"quarantined":0,"largest_free_block":{"v4":"192.0.2.0/24","v6":"2001:db8::/64"}`)
	removed(`{"from": "192.0.2.0", "to": "192.0.2.127"}`, 128)
	counts(`"entitiesCount":417`)
	counts(`"free":417,"reserved":0,"quarantined":0,"largest_free_block":{"v4":"192.0.2.128/25"`)
	removed(`{"prefix": "2001:db8::/56"}`, 256)
	removed(`{"prefix": "10.0.0.0/25"}`, 16)
	removed(`{"ids": [{"id": 129}, 130, 131]}`, 3)
	removed(`{"ids": [577]}`, 1)
	removed(`{"from": "0.0.0.0", "to": "255.255.255.255"}`, 125+16)
	counts(`"entitiesCount":0`)
	counts(`"used":0,"free":0,"reserved":0,"quarantined":0,"largest_free_block":{}`)
	if n := len(names(c.Do("GET", "/entity?group_id=2", nil))); n != 32 {
		t.Errorf("got %d entities of another group, want 32", n)
	}
	c.Do("GET", "/field/1/value/1", nil).Want(404)
	if got := rows(t, db, `
		SELECT (before::text) || ' ' || jsonb_array_length(targets) || ' ' || (targets->0->>'name') FROM change WHERE type = 'entity.deleted' AND before ? 'prefix'`); got != strings.Join([]string{
		`{"last": 272, "count": 16, "first": 257, "prefix": "10.0.0.0/25"} 16 10.0.0.0/29`,
		`{"last": 576, "count": 256, "first": 321, "prefix": "2001:db8::/56"} 100 2001:db8::/64`}, "\n") {
		t.Errorf("got the records %s, want 16 entities of 10.0.0.0/25 and 256 of 2001:db8::/56", got)
	}
}

func TestRemovalRefused(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	c.Do("POST", "/group", `{"name": "Berlin"}`).Want(200)
	c.Do("POST", "/group", `{"name": "Bern"}`).Want(200)
	c.Do("POST", "/group/1/entity/bulk", `{"from": "192.0.2.0", "to": "192.0.2.39", "increment": 10}`).Want(200)
	c.Do("POST", "/entity", `{"group": 1, "v6_address": "2001:db8::/64"}`).Want(200)
	c.Do("POST", "/entity", `{"group": 2, "address": "10.0.0.1"}`).Want(200)
	for _, refused := range []struct {
		body   string
		errors []string
	}{
		{`{}`, []string{"/ids", "required"}},
		{`{"ids": []}`, []string{"/ids", "required"}},
		{`{"to": "192.0.2.1"}`, []string{"/from", "required"}},
		{`{"ids": [1], "prefix": "192.0.2.0/24"}`, []string{"/ids", "conflict"}},
		{`{"prefix": "192.0.2.1/24"}`, []string{"/prefix", "host_bits"}},
		{`{"from": "192.0.2.9", "to": "192.0.2.0"}`, []string{"/to", "out_of_range"}},
		{`{"from": "192.0.2.0", "to": "2001:db8::"}`, []string{"/to", "invalid"}},
		{`{"prefix": "198.51.100.0/24"}`, []string{"/prefix", "not_found"}},
		{`{"prefix": "10.0.0.0/24"}`, []string{"/prefix", "not_found"}},
		{`{"from": "192.0.2.0", "to": "192.0.2.15"}`, []string{"/to", "straddles"}},
		{`{"from": "192.0.2.12", "to": "192.0.2.15"}`, []string{"/to", "straddles"}},
		{`{"prefix": "192.0.2.32/27"}`, []string{"/prefix", "straddles"}},
		{`{"prefix": "2001:db8::/72"}`, []string{"/prefix", "straddles"}},
		{`{"ids": [1, 6, 99]}`, []string{"/ids", "not_found"}},
	} {
		t.Log(refused.body)
		c.Do("POST", "/group/1/entity/bulk-delete", refused.body).WantErrors(refused.errors...)
	}
	c.Do("POST", "/group/9/entity/bulk-delete", `{"prefix": "192.0.2.0/24"}`).Want(404)
	for body, want := range map[string]string{
		`{"from": "192.0.2.5", "to": "192.0.2.25"}`: "cuts through IP entity 1 (192.0.2.0-192.0.2.9) and IP entity 3 (192.0.2.20-192.0.2.29)",
		`{"ids": [1, 6, 99]}`:                       "must be IP entities of IP group 1 (Berlin), but these are not: 6; 99",
	} {
		if got := testkit.Decode[problem.Problem](c.Do("POST", "/group/1/entity/bulk-delete", body).Want(422)).Errors[0].Message; got != want {
			t.Errorf("%s: got %q, want %q", body, got, want)
		}
	}
	c.Do("PATCH", "/entity/2", `{`+acme+`}`).Want(200)
	c.Do("POST", "/group/1/entity/bulk-delete", `{"prefix": "192.0.2.0/26"}`).WantDetail(problem.Conflict,
		"1 of 4 IP entities are assigned: IP entity 2 (192.0.2.10-192.0.2.19) to client 17 (Client 17), server 4 (fra1-s4). "+
			"Release them first: POST /entity/{entity_id}/release.")
	c.Do("POST", "/group/1/entity/bulk", `{"prefix": "198.51.100.0/28", "all": true}`).Want(200)
	c.Do("POST", "/group/1/allocate", `{"prefix": 28, "owner": {"id": 5}}`).Want(200)
	refused := c.Do("POST", "/group/1/entity/bulk-delete", `{"prefix": "198.51.100.0/24"}`).Want(http.StatusConflict).Text
	if !strings.Contains(refused, "16 of 16 IP entities are assigned") ||
		!strings.Contains(refused, "(198.51.100.4) to client 5 (Client 5); and 11 more.") {
		t.Errorf("got %s, want that 16 of 16 are assigned, five of them by name", refused)
	}
	if n := len(names(c.Do("GET", "/entity", nil))); n != 22 {
		t.Errorf("got %d entities, want 22", n)
	}
}

// Beside allocations, edits, releases and deletions, no assigned entity is deleted, and there is no deadlock.
func TestRemovalBesideOthers(t *testing.T) {
	t.Parallel()
	c, db := newService(t)
	c.Do("POST", "/group", `{"name": "Berlin"}`).Want(200)
	const rounds = 12
	var all sync.WaitGroup
	for caller := range 4 {
		all.Go(func() {
			for range rounds {
				for _, e := range testkit.Decode[[]network.IPEntity](orNone(c.Do(
					"POST", "/group/1/allocate", map[string]any{"count": 3, "owner": map[string]any{"id": caller + 1}},
				))) {
					if got := testkit.Decode[network.IPEntity](
						c.Do("GET", fmt.Sprint("/entity/", e.ID), nil).Want(200),
					); got.Owner == nil ||
						got.Owner.ID != int64(caller+1) {
						t.Errorf("entity %d: got the owner %+v, want %d", e.ID, got.Owner, caller+1)
					}
					c.Do("PATCH", fmt.Sprint("/entity/", e.ID), `{"vlan": 7}`).Want(200)
					c.Do("POST", fmt.Sprintf("/entity/%d/release", e.ID), nil).Want(200)
				}
			}
		})
	}
	for n := range 2 {
		all.Go(func() {
			for range rounds {
				from, to := fmt.Sprintf("10.0.%d.0", n), fmt.Sprintf("10.0.%d.31", n)
				c.Do("POST", "/group/1/entity/bulk", map[string]any{"from": from, "to": to}) // or it overlaps
				c.Do("POST", "/group/1/entity/bulk-delete", map[string]any{"from": from, "to": to})
			}
		})
	}
	all.Wait()
	if left := rows(t, db, "SELECT count(*)::text FROM ip_assignment"); left != "0" {
		t.Errorf("got %s assigned entities, want 0", left)
	}
	if invalid := rows(
		t,
		db,
		"SELECT entity_id::text FROM (TABLE ip_free EXCEPT TABLE ip_unassigned UNION ALL (TABLE ip_unassigned EXCEPT TABLE ip_free)) f",
	); invalid != "" {
		t.Errorf("got a wrong count of what is free for %s, want none", invalid)
	}
	if deadlocks := rows(t, db, "SELECT deadlocks::text FROM pg_stat_database WHERE datname = current_database()"); deadlocks != "0" {
		t.Errorf("got %s deadlocks, want 0", deadlocks)
	}
}

// orNone returns an empty list for a refusal.
func orNone(a *testkit.Response) *testkit.Response {
	if a.Status == http.StatusUnprocessableEntity {
		a.Status, a.Text = http.StatusOK, "[]"
	}
	return a
}
