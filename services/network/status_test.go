package network_test

import (
	"slices"
	"testing"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/network"
)

// wantCounted returns the counts of a group, and fails if they are not those of its list of entities.
func wantCounted(t testing.TB, c *testkit.Client, group int64) network.Utilization {
	t.Helper()
	counted := map[string]int64{}
	for _, e := range testkit.Decode[[]network.IPEntity](c.Do("GET", path("/entity?group_id=%d", group), nil).Want(200)) {
		counted[e.Status]++
	}
	u := testkit.Decode[network.Utilization](c.Do("GET", path("/group/%d/utilization", group), nil).Want(200))
	for status, got := range map[string]int64{"assigned": u.Used, "available": u.Free, "reserved": u.Reserved, "quarantined": u.Quarantined} {
		if got != counted[status] {
			t.Errorf("utilization of group %d: got %d %s entities, want %d as in the list", group, got, status, counted[status])
		}
	}
	return u
}

// A reserved entity is set aside: nobody gets it by an allocation, and only an admin assigns it by its id.
func TestReserved(t *testing.T) {
	t.Parallel()
	c := newStand(t)
	ben := c.client("ben")
	group := c.Do("POST", "/group", `{"name": "Berlin"}`).Want(200).ID()
	first := c.Do("POST", "/entity", path(`{"group": %d, "address": "192.0.2.1", "status": "reserved", "note": "router"}`, group)).Want(200)
	second := c.Do("POST", "/entity", path(`{"group": %d, "address": "192.0.2.2"}`, group)).Want(200)
	assigned := c.Do("POST", "/entity", path(`{"group": %d, "address": "192.0.2.3", "owner": {"id": %d}}`, group, ben)).Want(200)
	c.Do("POST", path("/group/%d/entity/bulk", group), `{"from": "192.0.2.4", "to": "192.0.2.7", "status": "reserved", "note": "until 2027"}`).
		Want(200)
	c.Do("POST", "/entity", path("group,address,status,note\n%d,192.0.2.8,reserved,switch\n%d,192.0.2.9,,\n", group, group),
		"Content-Type", "text/csv").Want(200)
	shown := func(a *testkit.Response) string {
		e := testkit.Decode[network.IPEntity](a.Want(200))
		if e.Note != nil {
			return e.Status + ": " + *e.Note
		}
		return e.Status
	}
	for got, want := range map[string]string{shown(first): "reserved: router", shown(second): "available", shown(assigned): "assigned"} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if got := testkit.Decode[[]network.IPEntity](c.Do("GET", "/entity?status=reserved&sort=address", nil).Want(200)); len(got) != 6 ||
		*got[5].Note != "switch" {
		t.Errorf("got %s, want six reserved entities, the last a switch", testkit.JSON(got))
	}
	u := wantCounted(t, c.Client, group)
	if u.Used != 1 || u.Free != 2 || u.Reserved != 6 || u.LargestFreeBlock.V4 != "192.0.2.2" {
		t.Errorf("got %+v, want 1 used, 2 free, 6 reserved and 192.0.2.2", u)
	}
	allocate := path(`{"count": 3, "owner": {"id": %d}}`, ben)
	c.Do("POST", path("/group/%d/allocate", group), allocate).WantErrors("/count", "exhausted")
	if got := fullIPs(c.Do("POST", path("/group/%d/allocate", group), path(`{"count": 2, "owner": {"id": %d}}`, ben))); !slices.Equal(
		got, []string{"192.0.2.2", "192.0.2.9"}) {
		t.Errorf("got %v, want 192.0.2.2 and 192.0.2.9", got)
	}

	at := path("/entity/%d", first.ID())
	shop := c.As(
		&principal.Principal{KeyID: 7, Owner: principal.Owner{Type: principal.Integration, ID: 7}, Name: "shop", Grants: principal.All},
	)
	shop.Do("PATCH", at, path(`{"owner": {"id": %d}}`, ben)).
		WantDetail(problem.Forbidden, path("IP entity %d is reserved. Only an admin can assign it.", first.ID()))
	if got := shown(shop.Do("PATCH", at, `{"note": "core router", "vlan": 7}`)); got != "reserved: core router" {
		t.Errorf("got %s, want reserved: core router", got)
	}
	if got := shown(c.Do("PATCH", at, path(`{"owner": {"id": %d}}`, ben))); got != "assigned" {
		t.Errorf("got %s, want assigned without a note", got)
	}
	last := path("/entity/%d", first.ID()+8)
	c.Do("PATCH", last, `{"owner": null}`).Want(200)
	c.Do("PATCH", last, `{"status": "available"}`).Want(200)
	if got := shown(c.Do("PATCH", last, `{"status": "reserved", "note": "spare"}`)); got != "reserved: spare" {
		t.Errorf("got %s, want reserved: spare", got)
	}
	if got := shown(c.Do("PATCH", last, `{"status": "available"}`)); got != "available" {
		t.Errorf("got %s, want available without a note", got)
	}
	wantCounted(t, c.Client, group)
}

// Callers write the status from available to reserved and back. A whole entity can be sent back with a change.
func TestStatusRefusals(t *testing.T) {
	t.Parallel()
	c := newStand(t)
	ben := c.client("ben")
	group := c.Do("POST", "/group", `{"name": "Berlin"}`).Want(200).ID()
	create := func(members string) *testkit.Response {
		return c.Do("POST", "/entity", path(`{"group": %d, "address": "192.0.2.1", %s}`, group, members))
	}
	create(`"status": "quarantined"`).WantErrors("/status", "conflict")
	create(`"status": "assigned"`).WantErrors("/status", "conflict")
	create(`"status": "free"`).WantErrors("/status", "invalid")
	create(`"note": "x"`).WantErrors("/note", "conflict")
	create(path(`"status": "reserved", "owner": {"id": %d}`, ben)).WantErrors("/status", "conflict")
	create(path(`"note": "x", "owner": {"id": %d}`, ben)).WantErrors("/note", "conflict")
	bulk := path("/group/%d/entity/bulk", group)
	c.Do("POST", bulk, `{"prefix": "192.0.2.0/28", "note": "x"}`).WantErrors("/note", "conflict")
	c.Do("POST", bulk, `{"prefix": "192.0.2.0/28", "status": "assigned"}`).WantErrors("/status", "invalid")

	entity := create(path(`"status": "assigned", "owner": {"id": %d}`, ben)).Want(200)
	at := path("/entity/%d", entity.ID())
	for _, to := range []string{"available", "reserved", "quarantined"} {
		c.Do("PATCH", at, path(`{"status": "%s"}`, to)).WantErrors("/status", "conflict")
	}
	c.Do("PATCH", at, `{"note": "x"}`).WantErrors("/note", "conflict")
	whole := testkit.Decode[map[string]any](entity)
	delete(whole, "owner")
	whole["owner"], whole["vlan"] = nil, 7
	c.Do("PATCH", at, whole).Want(200)
	c.Do("PATCH", at, `{"status": "available"}`).Want(200)
	c.Do("PATCH", at, `{"status": "assigned"}`).WantErrors("/status", "conflict")
	c.Do("PATCH", at, `{"status": "quarantined"}`).WantErrors("/status", "conflict")
	available := testkit.Decode[map[string]any](c.Do("GET", at, nil).Want(200))
	available["owner"] = map[string]any{"id": ben}
	if got := testkit.Decode[network.IPEntity](c.Do("PATCH", at, available).Want(200)); got.Status != "assigned" {
		t.Errorf("got %s, want assigned", got.Status)
	}
}
