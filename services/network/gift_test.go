package network_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/network"
)

// A reseller gives a sub client one of its IP entities, and gets it back without a trace of the sub client.
func TestGift(t *testing.T) {
	t.Parallel()
	c := newStand(t)
	ids, as := c.clients("reseller", "sub", "partner")
	c.Clients.SetSub(ids["reseller"], ids["sub"])
	group := c.Do("POST", "/group", `{"name": "Berlin"}`).Want(200).ID()
	field := c.Do("POST", "/field", `{"name": "Rack unit", "slug": "unit", "target_type": "entity"}`).Want(200).ID()
	id := c.Do("POST", "/entity", map[string]any{
		"group": group, "address": "192.0.2.1", "nickname": "rack 1",
		"owner": map[string]any{"id": ids["reseller"], "server": map[string]any{"id": 4, "name": "srv 4"}},
	}).Want(200).ID()
	second := c.Do("POST", "/entity", path(`{"group": %d, "address": "192.0.2.2", "owner": {"id": %d}}`, group, ids["sub"])).Want(200).ID()
	at := path("/entity/%d", id)
	setField := func() {
		c.Do("POST", path("/field/%d/value", field), map[string]any{"target_id": id, "value": "12"}).Want(200)
	}
	setField()

	as["reseller"].Do("POST", at+"/give", path(`{"owner": {"id": %d}}`, ids["partner"])).WantErrors("/owner/id", "not_found")
	as["reseller"].Do("POST", at+"/give", `{}`).WantErrors("/owner/id", "required")
	body := path(`{"owner": {"id": %d}}`, ids["sub"])
	as["reseller"].Do("POST", at+"/give", body, "If-Match", `"99"`).Want(412)
	c.PXE.Use("entity", id, "is used by install 7")
	as["reseller"].Do("POST", at+"/give", body).WantDetail(http.StatusConflict, path("IP entity %d is used by install 7.", id))
	c.PXE.Use("entity", id, "")
	after := testkit.Decode[network.IPEntity](as["reseller"].Do("POST", at+"/give", body).Want(200))
	if o := after.Owner; o == nil || o.ID != ids["sub"] || *o.Name != "sub Miller" || o.Server != nil || o.Via == nil ||
		o.Via.ID != ids["reseller"] || *o.Via.Name != "reseller Miller" || after.Nickname != nil || after.Status != "assigned" {
		t.Errorf("got %s, want it given to sub Miller by reseller Miller, without nickname and server", testkit.JSON(after))
	}
	if got := c.Do("GET", path("/field/%d/value?target_id=%d", field, id), nil).Want(200).Text; strings.Contains(got, "12") {
		t.Errorf("got the value %s, want none", got)
	}
	version := after.Version
	if repeated := testkit.Decode[network.IPEntity](as["reseller"].Do("POST", at+"/give", body).Want(200)); repeated.Version != version {
		t.Errorf("got version %d of the repeated gift, want %d", repeated.Version, version)
	}

	// What was read can be sent back, as JSON and as CSV.
	whole := c.Do("GET", at, nil).Want(200).Text
	if got := c.Do("PATCH", at, whole).Want(200).Text; got != whole {
		t.Errorf("got %s from an entity that was sent back, want %s", got, whole)
	}
	sheet := c.Do("GET", "/entity?via="+fmt.Sprint(ids["reseller"]), nil, "Accept", "text/csv").Want(200).Text
	c.Do("POST", "/entity", sheet, "Content-Type", "text/csv").Want(200)
	if got := c.Do("GET", at, nil).Want(200).Text; got != whole {
		t.Errorf("got %s after CSV was sent back, want %s", got, whole)
	}

	as["sub"].Do("PATCH", at, `{"nickname": "mine"}`).Want(200)
	as["reseller"].Do("PATCH", at, `{"nickname": "ours"}`).Want(404)
	as["partner"].Do("GET", at, nil).Want(404)
	setField()
	for query, want := range map[string][]int64{
		"": {}, path("?owner=%d", ids["sub"]): {id, second}, path("?via=%d", ids["reseller"]): {id},
		path("?owner_id=%d&q=mine", ids["sub"]):                            {id},
		path("?owner=%d&via=%d&sort=address", ids["sub"], ids["reseller"]): {id}, path("?owner=%d", ids["partner"]): {},
	} {
		if got := entityIDs(as["reseller"], query); !slices.Equal(got, want) {
			t.Errorf("the reseller asks for %q: got %v, want %v", query, got, want)
		}
	}
	for _, query := range []string{path("?owner=%d", ids["sub"]), path("?via=%d", ids["reseller"]), ""} {
		if got := entityIDs(as["partner"], query); len(got) > 0 {
			t.Errorf("an unlinked client asks for %q: got %v, want nothing", query, got)
		}
	}
	as["reseller"].Do("GET", path("/entity/%d", second), nil).Want(200)
	as["reseller"].Do("POST", path("/entity/%d/release", second), nil).Want(404)

	back := testkit.Decode[network.IPEntity](as["sub"].Do("POST", at+"/release", nil).Want(200))
	if o := back.Owner; o == nil || o.ID != ids["reseller"] || o.Via != nil || back.Nickname != nil || back.Status != "assigned" {
		t.Errorf("got %s, want it back at reseller Miller without a nickname", testkit.JSON(back))
	}
	as["sub"].Do("GET", at, nil).Want(404)
	if got := c.Do("GET", path("/field/%d/value?target_id=%d", field, id), nil).Want(200).Text; strings.Contains(got, "12") {
		t.Errorf("got the value %s, want none", got)
	}
	own := testkit.Decode[network.IPEntity](as["reseller"].Do("POST", at+"/release", nil).Want(200))
	if own.Status != "quarantined" || own.Owner != nil {
		t.Errorf("got %s, want it quarantined", testkit.JSON(own))
	}
	c.Do("POST", at+"/give", body).WantDetail(http.StatusConflict,
		path("IP entity %d has no owner who could give it. Assign it to a client: PATCH /entity/%d.", id, id))
}

// entityIDs returns the ids of a list of IP entities in ascending order.
func entityIDs(c *testkit.Client, query string) []int64 {
	found := []int64{}
	for _, e := range testkit.Decode[[]network.IPEntity](c.Do("GET", "/entity"+query, nil).Want(200)) {
		found = append(found, e.ID)
	}
	slices.Sort(found)
	return found
}

// giftMachine is the test's own model of who owns IP entities, and from whom.
type giftMachine struct {
	*rapid.T
	t      *testing.T
	c      *stand
	ids    []int64
	as     map[int64]*testkit.Client
	owners map[int64][2]int64 // by entity: the owner, and the reseller that gave it
	subs   map[[2]int64]bool  // by reseller and sub client
}

func (m *giftMachine) client(label string) int64 { return rapid.SampledFrom(m.ids).Draw(m.T, label) }

func (m *giftMachine) entity() int64 {
	return rapid.SampledFrom(slices.Sorted(maps.Keys(m.owners))).Draw(m.T, "entity")
}

// try sends a request about an entity, and expects this status. It reports whether the request succeeds.
func (m *giftMachine) try(c *testkit.Client, action string, id int64, body any, want int) bool {
	if got := c.Do("POST", path("/entity/%d/%s", id, action), body); got.Status != want {
		m.Fatalf("%s %d %v by %v: got %s, want %d", action, id, body, m.owners[id], got.Text, want)
	}
	return want == 200
}

func (m *giftMachine) give() {
	by, to, id := m.client("reseller"), m.client("sub client"), m.entity()
	asAdmin := rapid.Bool().Draw(m.T, "by an admin")
	owner, via := m.owners[id][0], m.owners[id][1]
	c := m.as[by]
	if asAdmin {
		c, by = m.c.Client, owner
		if via != 0 {
			by = via
		}
	}
	want := 200
	switch {
	case owner == 0 && asAdmin:
		want = 409
	case owner != by && via != by || owner == 0:
		want = 404
	case via == by && owner == to:
	case via == by:
		want = 409
	case via != 0:
		want = 403
	case !m.subs[[2]int64{by, to}]:
		want = 422
	}
	if m.try(c, "give", id, path(`{"owner": {"id": %d}}`, to), want) {
		m.owners[id] = [2]int64{to, by}
	}
}

func (m *giftMachine) release() {
	by, id := m.client("client"), m.entity()
	owner, via := m.owners[id][0], m.owners[id][1]
	want := 200
	if owner == 0 || owner != by && via != by {
		want = 404
	}
	if m.try(m.as[by], "release", id, nil, want) {
		m.owners[id] = [2]int64{via, 0}
	}
}

// assign has an admin assign an entity to a client, or take it back from everybody.
func (m *giftMachine) assign() {
	id, owner := m.entity(), rapid.SampledFrom(append([]int64{0}, m.ids...)).Draw(m.T, "owner")
	body := `{"owner": null}`
	if owner != 0 {
		body = path(`{"owner": {"id": %d}}`, owner)
	}
	m.c.Do("PATCH", path("/entity/%d", id), body).Want(200)
	if m.owners[id][0] != owner {
		m.owners[id] = [2]int64{owner, 0}
	}
}

// link makes a client a sub client, or ends that.
func (m *giftMachine) link() {
	pair := [2]int64{m.client("reseller"), m.client("sub client")}
	switch {
	case pair[0] == pair[1]:
	case m.subs[pair]:
		m.c.Clients.EndSub(pair[0], pair[1])
		delete(m.subs, pair)
		for id, owners := range m.owners {
			if owners == [2]int64{pair[1], pair[0]} {
				m.owners[id] = [2]int64{}
				testkit.Eventually(m.t, path("entity %d is quarantined", id), func() bool {
					return testkit.Decode[network.IPEntity](m.c.Do("GET", path("/entity/%d", id), nil).Want(200)).Status == "quarantined"
				})
			}
		}
	default:
		m.c.Clients.SetSub(pair[0], pair[1])
		m.subs[pair] = true
	}
}

// compare fails if somebody sees another owner than the model has, or sees an entity that is not theirs to see.
func (m *giftMachine) compare() {
	for id, want := range m.owners {
		e := testkit.Decode[network.IPEntity](m.c.Do("GET", path("/entity/%d", id), nil).Want(200))
		var got [2]int64
		if e.Owner != nil {
			got[0] = e.Owner.ID
			if e.Owner.Via != nil {
				got[1] = e.Owner.Via.ID
			}
		}
		if got != want || (e.Status == "assigned") != (want[0] != 0) {
			m.Fatalf("got %s with the owner and reseller %v, want %v", testkit.JSON(e), got, want)
		}
		for _, client := range m.ids {
			sees := want[0] != 0 && (want[0] == client || m.subs[[2]int64{client, want[0]}])
			if got := m.as[client].Do("GET", path("/entity/%d", id), nil).Status; got != map[bool]int{true: 200, false: 404}[sees] {
				m.Fatalf("client %d views entity %d of %v: got %d, want it visible %t", client, id, want, got, sees)
			}
		}
	}
}

// Clients give, release and link in any order. Each entity has the owner of a model that is written from the rules.
func TestGifts(t *testing.T) {
	t.Parallel()
	c := newStand(t)
	ids, as := c.clients("reseller", "partner", "sub", "child")
	group := c.Do("POST", "/group", `{"name": "Berlin"}`).Want(200).ID()
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		m := &giftMachine{rt, t, c, slices.Sorted(maps.Values(ids)), map[int64]*testkit.Client{}, map[int64][2]int64{}, map[[2]int64]bool{}}
		for name, id := range ids {
			m.as[id] = as[name]
		}
		for range 2 {
			n++
			owner := m.client("first owner")
			body := path(`{"group": %d, "address": "198.51.%d.%d", "owner": {"id": %d}}`, group, n/256, n%256, owner)
			id := c.Do("POST", "/entity", body).Want(200).ID()
			m.owners[id] = [2]int64{owner, 0}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"give": func(*rapid.T) { m.give() }, "release": func(*rapid.T) { m.release() }, "assign": func(*rapid.T) { m.assign() },
			"link": func(*rapid.T) { m.link() }, "": func(*rapid.T) { m.compare() },
		})
		for pair := range m.subs {
			c.Clients.EndSub(pair[0], pair[1])
		}
	})
}
