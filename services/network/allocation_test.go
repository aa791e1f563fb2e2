package network_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/network"
)

const acme = `"owner": {"id": 17, "server": {"id": 4, "name": "fra1-s4"}}`

// fullIPs returns the addresses of the entities in a response.
func fullIPs(a *testkit.Response) []string {
	all := []string{}
	for _, e := range testkit.Decode[[]network.IPEntity](a.Want(200)) {
		all = append(all, e.FullIP)
	}
	return all
}

func TestAllocate(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	c.Do("POST", "/group", `{"name": "Berlin"}`).Want(200)
	c.Do("POST", "/group", `{"name": "Bern"}`).Want(200)
	for _, e := range []string{
		`"address": "192.0.2.9"`, `"address": "192.0.2.10"`, `"address": "10.0.0.3"`, `"address": "192.0.2.8", "owner": {"id": 5}`,
		`"v4": {"address": "192.0.2.2", "range_end": "192.0.2.4"}`, `"v6_address": "2001:db8::/64"`, `"address": "192.0.2.128", "v6_address": "2001:db8:1::a"`,
	} {
		c.Do("POST", "/entity", `{"group": 1, `+e+`}`).Want(200)
	}
	allocate := func(body string) *testkit.Response { return c.Do("POST", "/group/1/allocate", body) }

	first := allocate(`{` + acme + `}`)
	if got := testkit.Decode[[]network.IPEntity](
		first.Want(200),
	); len(got) != 1 || got[0].FullIP != "10.0.0.3" ||
		testkit.JSON(got[0].Owner) != `{"id":17,"name":"Client 17","server":{"id":4,"name":"fra1-s4"}}` {
		t.Fatalf("got %s, want 10.0.0.3 of client 17 and server 4", first.Text)
	}
	viewed := c.Do("GET", "/entity/3", nil).Want(200)
	if "["+strings.TrimSpace(viewed.Text)+"]\n" != first.Text || viewed.Header.Get("ETag") != `"2"` {
		t.Fatalf(`got the ETag %s and %s, want "2" and the entity in %s`, viewed.Header.Get("ETag"), viewed.Text, first.Text)
	}
	if got := fullIPs(
		allocate(`{"count": 3, "family": "v4", "owner": {"id": 17}}`),
	); !slices.Equal(
		got,
		[]string{"192.0.2.2-192.0.2.4", "192.0.2.9", "192.0.2.10"},
	) {
		t.Fatalf("got %v, want 192.0.2.2-192.0.2.4, 192.0.2.9 and 192.0.2.10", got)
	}
	allocate(`{"count": 2, "owner": {"id": 17}}`).WantErrors("/count", "exhausted")
	if got := fullIPs(
		allocate(`{"count": 2, "family": "v6", "owner": {"id": 17}}`),
	); !slices.Equal(
		got,
		[]string{"2001:db8::/64", "192.0.2.128"},
	) {
		t.Fatalf("got %v, want 2001:db8::/64 and 192.0.2.128", got)
	}
	message := testkit.Decode[problem.Problem](allocate(`{"owner": {"id": 17}}`).Want(422)).Errors[0].Message
	if message != "is too large: IP group 1 has 0 free IPv4 entities" {
		t.Fatalf("got %q, want that 0 IPv4 entities of IP group 1 are free", message)
	}

	c.Do("POST", "/entity/3/release", nil, "If-Match", `"1"`).Want(http.StatusPreconditionFailed)
	released := c.Do("POST", "/entity/3/release", nil, "If-Match", `"2"`).Want(200)
	if e := testkit.Decode[network.IPEntity](released); e.Owner != nil || released.Header.Get("ETag") != `"3"` {
		t.Fatalf(`got %s with the ETag %s, want no owner and the ETag "3"`, released.Text, released.Header.Get("ETag"))
	}
	if second := c.Do("POST", "/entity/3/release", nil).Want(200); second.Text != released.Text || second.Header.Get("ETag") != `"3"` {
		t.Fatalf(`released again: got %s with the ETag %s, want %s with "3"`, second.Text, second.Header.Get("ETag"), released.Text)
	}
	if got := fullIPs(allocate(`{"owner": {"id": 18}}`)); !slices.Equal(got, []string{"10.0.0.3"}) {
		t.Fatalf("got %v, want 10.0.0.3", got)
	}

	c.Do("POST", "/group/9/allocate", `{"owner": {"id": 17}}`).Want(404)
	c.Do("POST", "/entity/99/release", nil).Want(404)
	allocate(`{}`).WantErrors("/owner/id", "required")
	allocate(`{"owner": {"id": 0, "server": {"name": "x"}}, "count": 0, "family": "v5", "prefix": 0}`).
		WantErrors(
			"/count", "out_of_range", "/family", "invalid", "/owner/id", "out_of_range", "/owner/server/id", "required", "/prefix", "out_of_range",
		)
	allocate(`{"owner": {"id": 17}, "count": 2, "prefix": 29}`).WantErrors("/prefix", "conflict")
	allocate(`{"owner": {"id": 17}, "prefix": 33}`).WantErrors("/prefix", "out_of_range")
	allocate(`{"owner": {"id": 17}, "count": 1025}`).WantErrors("/count", "out_of_range")
}

// An assigned entity is not deleted.
func TestDeleteOfAssigned(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	c.Do("POST", "/group", `{"name": "Berlin"}`).Want(200)
	c.Do("POST", "/entity", `{"group": 1, "address": "192.0.2.1", `+acme+`}`).Want(200)
	c.Do("POST", "/entity", `{"group": 1, "address": "192.0.2.2", "owner": {"id": 17}}`).Want(200)
	c.Do("DELETE", "/entity/1", nil).
		WantDetail(problem.Conflict, "IP entity 1 is assigned to client 17 (Client 17), server 4 (fra1-s4). "+
			"Release it first: POST /entity/1/release.")
	c.Do("DELETE", "/entity/2", nil).
		WantDetail(problem.Conflict, "IP entity 2 is assigned to client 17 (Client 17). Release it first: POST /entity/2/release.")
	c.Do("POST", "/entity/1/release", nil).Want(200)
	c.Do("DELETE", "/entity/1", nil).Want(200)
	c.Do("GET", "/entity/1", nil).Want(404)
	c.Do("GET", "/entity/2", nil).Want(200)
}

// Allocated entities exist, even if others delete at the same time.
func TestDeleteBesideAllocations(t *testing.T) {
	t.Parallel()
	c, db := newService(t)
	c.Do("POST", "/group", `{"name": "Berlin"}`).Want(200)
	const entities = 128
	c.Do("POST", "/group/1/entity/bulk", `{"prefix": "192.0.2.0/25", "all": true}`).Want(200)
	var mu sync.Mutex
	var allocated, deleted []int64
	var all sync.WaitGroup
	all.Go(func() { // allocations take the lowest, edits any
		for {
			a := c.Do("POST", "/group/1/allocate", `{"count": 1, "owner": {"id": 17}}`)
			if a.Status == http.StatusUnprocessableEntity {
				return
			}
			mu.Lock()
			allocated = append(allocated, testkit.Decode[[]network.IPEntity](a.Want(200))[0].ID)
			mu.Unlock()
		}
	})
	for id := int64(entities); id > 0; id-- {
		for method, ids := range map[string]*[]int64{"DELETE": &deleted, "PATCH": &allocated} {
			all.Go(func() {
				switch a := c.Do(method, fmt.Sprint("/entity/", id), `{"owner": {"id": 18}}`); a.Status {
				case 200:
					mu.Lock()
					*ids = append(*ids, id)
					mu.Unlock()
				case http.StatusConflict, http.StatusNotFound:
				default:
					t.Errorf("got %d: %s, want 200, 404 or 409", a.Status, a.Text)
				}
			})
		}
	}
	all.Wait()
	slices.Sort(allocated)
	allocated = slices.Compact(allocated) // an edit may follow an allocation
	t.Logf("%d allocated, %d deleted", len(allocated), len(deleted))
	if len(allocated)+len(deleted) != entities {
		t.Errorf("got %d entities allocated and %d deleted, want %d in all", len(allocated), len(deleted), entities)
	}
	for _, id := range allocated {
		if slices.Contains(deleted, id) {
			t.Errorf("entity %d: got it given and deleted, want only one of the two", id)
		}
	}
	if left := rows(t, db, "SELECT count(*)::text FROM ip_assignment"); left != fmt.Sprint(len(allocated)) {
		t.Errorf("got %s assigned entities, want %d", left, len(allocated))
	}
}

// The free entities stay correct when entities are created, deleted, moved, assigned and released.
func TestFreeFollows(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	c.Do("POST", "/group", `{"name": "Berlin"}`).Want(200)
	c.Do("POST", "/group", `{"name": "Bern"}`).Want(200)
	c.Do("POST", "/entity", "group,address,owner.id\n1,10.0.0.1,\n1,10.0.0.2,5\n1,10.0.0.3,\n", "Content-Type", "text/csv").Want(200)
	free := func(group int, want string) {
		t.Helper()
		got := []string{}
		for {
			a := c.Do("POST", fmt.Sprintf("/group/%d/allocate", group), `{"owner": {"id": 9}}`)
			if a.Status == 422 {
				break
			}
			got = append(got, fullIPs(a)...)
		}
		for _, e := range testkit.Decode[[]network.IPEntity](c.Do("GET", fmt.Sprint("/entity?owner=9&group_id=", group), nil).Want(200)) {
			c.Do("POST", fmt.Sprintf("/entity/%d/release", e.ID), nil).Want(200)
		}
		if strings.Join(got, " ") != want {
			t.Fatalf("free in group %d: got %v, want %s", group, got, want)
		}
	}
	free(1, "10.0.0.1 10.0.0.3")
	c.Do("PATCH", "/entity/2", `{"owner": null}`).Want(200)
	free(1, "10.0.0.1 10.0.0.2 10.0.0.3")
	c.Do("PATCH", "/entity/1", `{"owner": {"id": 5}}`).Want(200)
	c.Do("PATCH", "/entity/1", `{"owner": {"id": 6}}`).Want(200)
	free(1, "10.0.0.2 10.0.0.3")
	c.Do("PATCH", "/entity/3", `{"address": "10.0.0.0", "nickname": "moved"}`).Want(200)
	free(1, "10.0.0.0 10.0.0.2")
	c.Do("PATCH", "/entity/3", `{"group": 2}`).Want(200)
	free(1, "10.0.0.2")
	free(2, "10.0.0.0")
	c.Do("POST", "/entity/1/release", nil).Want(200)
	c.Do("DELETE", "/entity/1", nil).Want(200)
	c.Do("DELETE", "/entity/2", nil).Want(200)
	free(1, "")
}

func TestAllocateBlocks(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	c.Do("POST", "/group", `{"name": "Berlin"}`).Want(200)
	c.Do("POST", "/group", `{"name": "Bonn"}`).Want(200)
	rows := "group,address,v6_address\n"
	for i := 1; i < 32; i++ {
		rows += fmt.Sprintf("1,192.0.2.%d,\n", i)
	}
	for i := range 16 {
		rows += fmt.Sprintf("1,,2001:db8::%x\n", i)
	}
	rows += "1,198.51.100.0/29,\n1,198.51.100.16/28,\n1,,2001:db8:1::/64\n2,203.0.113.9,2001:db8:2::9\n"
	c.Do("POST", "/entity", rows, "Content-Type", "text/csv").Want(200)
	block := func(family string, length int) []string {
		t.Helper()
		return fullIPs(c.Do("POST", "/group/1/allocate", map[string]any{"prefix": length, "family": family, "owner": map[string]any{"id": 3}}))
	}
	want := func(got []string, first string, n int) {
		t.Helper()
		if len(got) != n || got[0] != first {
			t.Fatalf("got %v, want %d from %s on", got, n, first)
		}
	}
	want(block("v4", 29), "192.0.2.8", 8) // .0 is not there
	want(block("v4", 30), "192.0.2.4", 4)
	want(block("v4", 29), "192.0.2.16", 8)
	want(block("v4", 29), "192.0.2.24", 8)
	want(block("v4", 29), "198.51.100.0/29", 1)
	c.Do("POST", "/group/1/allocate", `{"prefix": 29, "owner": {"id": 3}}`).WantErrors("/prefix", "exhausted")
	want(block("v4", 28), "198.51.100.16/28", 1)
	want(block("v4", 32), "192.0.2.1", 1)
	want(block("v6", 125), "2001:db8::", 8)
	want(block("v6", 64), "2001:db8:1::/64", 1)
	want(block("v6", 126), "2001:db8::8", 4)
	c.Do("POST", "/group/1/allocate", `{"prefix": 8, "owner": {"id": 3}}`).WantErrors("/prefix", "exhausted")
	for bits, family := range map[int]string{32: "v4", 128: "v6"} { // also where the addresses are more than an integer can count
		for length := 1; length < bits; length++ {
			c.Do("POST", "/group/2/allocate", map[string]any{"prefix": length, "family": family, "owner": map[string]any{"id": 3}}).
				WantErrors("/prefix", "exhausted")
		}
	}
}

// Many callers allocate at once: no entity is assigned twice, and together they get all of them.
func TestConcurrentAllocations(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	c.Do("POST", "/group", `{"name": "Berlin"}`).Want(200)
	rows := "group,address\n"
	const addresses, callers = 256, 40
	for i := range addresses {
		rows += fmt.Sprintf("1,192.0.2.%d\n", i)
	}
	c.Do("POST", "/entity", rows, "Content-Type", "text/csv").Want(200)
	var mu sync.Mutex
	allocated := map[string]int{}
	var all sync.WaitGroup
	for caller := range callers {
		all.Go(func() {
			for n := 0; ; n++ {
				body := map[string]any{"count": 1 + n%5, "owner": map[string]any{"id": caller + 1}}
				if n%6 == 5 {
					body = map[string]any{"prefix": 30, "owner": body["owner"]}
				}
				a := c.Do("POST", "/group/1/allocate", body)
				if a.Status == 422 {
					if body["count"] == 1 {
						return
					}
					continue
				}
				mu.Lock()
				for _, ip := range fullIPs(a) {
					allocated[ip]++
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if len(allocated) != addresses {
		t.Errorf("got %d addresses, want %d", len(allocated), addresses)
	}
	for ip, n := range allocated {
		if n != 1 {
			t.Errorf("%s: got it given %d times, want once", ip, n)
		}
	}
}

// A caller that finds too few entities waits for open transactions, and gets the entities that these roll back.
func TestExhaustionIsCertain(t *testing.T) {
	t.Parallel()
	c, db := newService(t)
	c.Do("POST", "/group", `{"name": "Berlin"}`).Want(200)
	c.Do("POST", "/entity", "group,address\n1,10.0.0.1\n1,10.0.0.2\n", "Content-Type", "text/csv").Want(200)
	errRolledBack := errors.New("rolled back")
	for _, others := range map[string]string{
		"an allocation": "SELECT FROM allocating a, ip_free f JOIN ip_entity e ON e.id = f.entity_id " +
			"WHERE a.stripe = 1 AND a.slot = 3 FOR UPDATE OF a FOR NO KEY UPDATE OF e FOR UPDATE OF f",
		"an edit": "SELECT 1 FROM ip_entity FOR UPDATE",
	} {
		for _, rollBack := range []bool{true, false} {
			asked := make(chan *testkit.Response, 1)
			err := db.InTx(t.Context(), func(tx *pg.Tx) error {
				tx.Unrecorded("a test")
				for _, statement := range []string{"SET LOCAL idle_in_transaction_session_timeout = 0", others} {
					if _, err := tx.Exec(t.Context(), statement); err != nil {
						return err
					}
				}
				go func() { asked <- c.Do("POST", "/group/1/allocate", `{"count": 2, "owner": {"id": 1}}`) }()
				testkit.AwaitLocked(t, db, 1)
				// A request for more than all entities is refused at once.
				c.Do("POST", "/group/1/allocate", `{"count": 3, "owner": {"id": 2}}`).WantErrors("/count", "exhausted")
				if rollBack {
					return errRolledBack
				}
				if _, err := tx.Exec(t.Context(), "SELECT FROM ip_free FOR UPDATE NOWAIT"); err != nil { // a waiting request locks nothing here
					return err
				}
				_, err := tx.Exec(t.Context(), "INSERT INTO ip_assignment (entity_id, owner_id) VALUES (1, 9)")
				return err
			})
			answer := <-asked
			if rollBack && (!errors.Is(err, errRolledBack) || len(fullIPs(answer)) != 2) || !rollBack && (err != nil || answer.Status != 422) {
				t.Fatalf("given back %t: got the error %v and %d %s, want two entities if given back, otherwise 422",
					rollBack, err, answer.Status, answer.Text)
			}
			for id := 1; id <= 2; id++ {
				c.Do("POST", fmt.Sprintf("/entity/%d/release", id), nil).Want(200)
			}
		}
	}
}
