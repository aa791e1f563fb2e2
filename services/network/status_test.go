package network_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/settings"
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
	c.Do("PATCH", at, `{"status": "reserved"}`).WantErrors("/status", "conflict")
	c.Do("PATCH", at, `{"status": "available"}`).Want(200)
	c.Do("PATCH", at, `{"status": "assigned"}`).WantErrors("/status", "conflict")
	c.Do("PATCH", at, `{"status": "quarantined"}`).WantErrors("/status", "conflict")
	available := testkit.Decode[map[string]any](c.Do("GET", at, nil).Want(200))
	available["owner"] = map[string]any{"id": ben}
	if got := testkit.Decode[network.IPEntity](c.Do("PATCH", at, available).Want(200)); got.Status != "assigned" {
		t.Errorf("got %s, want assigned", got.Status)
	}
}

// release releases an entity.
func (s *stand) release(entity int64) network.IPEntity {
	return testkit.Decode[network.IPEntity](s.Do("POST", path("/entity/%d/release", entity), nil).Want(200))
}

// A released entity loses what its owner gave it, and is quarantined for 24 hours unless the setting says otherwise.
func TestQuarantine(t *testing.T) {
	t.Parallel()
	c := newStand(t)
	ben, eve := c.client("ben"), c.client("eve")
	group := c.Do("POST", "/group", `{"name": "Berlin"}`).Want(200).ID()
	kept := c.Do("POST", "/field", `{"name": "Rack", "slug": "rack", "target_type": "entity", "clear_on_release": false}`).Want(200).ID()
	cleared := c.Do("POST", "/field", `{"name": "PTR", "slug": "ptr", "target_type": "entity", "default": "none"}`).Want(200).ID()
	own := func(address string) int64 {
		id := c.Do("POST", "/entity", path(`{"group": %d, "address": "%s", "nickname": "shop", "billing_id": "IP-1", "vlan": 7,
			"owner": {"id": %d, "server": {"id": 4, "name": "srv4"}}}`, group, address, ben)).Want(200).ID()
		for _, field := range []int64{kept, cleared} {
			c.Do("POST", path("/field/%d/value", field), map[string]any{"target_id": id, "value": "ben's"}).Want(200)
		}
		return id
	}
	wantCleared := func(e network.IPEntity) {
		t.Helper()
		if e.Nickname != nil || e.Owner != nil && e.Owner.Server != nil || *e.BillingID != "IP-1" || *e.VLAN != 7 {
			t.Errorf("got %s, want neither nickname nor server, and the billing id and VLAN", testkit.JSON(e))
		}
		got := c.Do("GET", path("/entity/%d?include=fields", e.ID), nil).Want(200).Text
		if !strings.Contains(got, `"slug":"ptr","value":"none"`) || !strings.Contains(got, `"slug":"rack","value":"ben's"`) {
			t.Errorf("got %s, want the default of ptr, and ben's rack", got)
		}
	}
	entity := own("192.0.2.1")
	before := time.Now()
	e := c.release(entity)
	wantCleared(e)
	if until := e.AvailableAt; e.Status != "quarantined" || until == nil ||
		until.Before(before.Add(24*time.Hour-time.Minute)) || until.After(time.Now().Add(24*time.Hour+time.Minute)) {
		t.Errorf("got %s, want it quarantined for 24 hours", testkit.JSON(e))
	}
	at := path("/entity/%d", entity)
	refusal := path("IP entity %d is quarantined until %s. To delete it now, set its status to available first: PATCH %s.",
		entity, e.AvailableAt.UTC().Format(time.RFC3339), at)
	c.Do("DELETE", at, nil).WantDetail(problem.Conflict, refusal)
	c.Do("POST", path("/group/%d/entity/bulk-delete", group), `{"prefix": "192.0.2.0/24"}`).WantDetail(problem.Conflict,
		path("1 of 1 IP entity are quarantined: IP entity %d (192.0.2.1). To delete them now, set their status to available first: "+
			"PATCH /entity/{entity_id}.", entity))
	refused := c.Do("POST", path("/group/%d/allocate", group), path(`{"owner": {"id": %d}}`, eve))
	refused.WantErrors("/count", "exhausted")
	if want := path("is too large: IP group %d has 0 free IPv4 entities. The next quarantined one is free at %s",
		group, e.AvailableAt.UTC().Format(time.RFC3339)); !strings.Contains(refused.Text, want) {
		t.Errorf("got %s, want %q", refused.Text, want)
	}
	c.Do("PATCH", at, `{"status": "reserved"}`).WantErrors("/status", "conflict")
	wantCounted(t, c.Client, group)
	for query, want := range map[string]int{
		"status=quarantined": 1, "status=available": 0, "assigned=false": 1, "status=quarantined&sort=-address": 1, "assigned=false&q=192.0": 1,
	} {
		if got := names(c.Do("GET", path("/entity?group_id=%d&%s", group, query), nil)); len(got) != want {
			t.Errorf("%s: got %v, want %d", query, got, want)
		}
	}

	// A list of another installation may have quarantined entities, too.
	c.Do("POST", "/entity", path("group,address,status\n%d,192.0.2.101,quarantined\n%d,192.0.2.102,available\n", group, group),
		"Content-Type", "text/csv").Want(200)
	if u := wantCounted(t, c.Client, group); u.Quarantined != 2 || u.Free != 1 {
		t.Errorf("got %+v, want 2 quarantined and 1 free", u)
	}
	c.Do("POST", path("/group/%d/allocate", group), path(`{"owner": {"id": %d}}`, eve)).Want(200)

	// An admin may reassign it meanwhile; an integration may not.
	shop := c.As(
		&principal.Principal{KeyID: 7, Owner: principal.Owner{Type: principal.Integration, ID: 7}, Name: "shop", Grants: principal.All},
	)
	give := path(`{"owner": {"id": %d}}`, eve)
	shop.Do("PATCH", at, give).WantDetail(problem.Forbidden, path("IP entity %d is quarantined. Only an admin can assign it now.", entity))
	if e := testkit.Decode[network.IPEntity](c.Do("PATCH", at, give).Want(200)); e.Status != "assigned" || e.AvailableAt != nil {
		t.Errorf("got %s, want it assigned", testkit.JSON(e))
	}

	// Another owner gets nothing of the former one's, either.
	second := own("192.0.2.2")
	shop.Do("PATCH", path("/entity/%d", second), give).WantDetail(problem.Forbidden, path(
		"IP entity %d is assigned to client %d. Only an admin can assign it to another client. Release it: POST /entity/%d/release.",
		second,
		ben,
		second,
	))
	e = testkit.Decode[network.IPEntity](c.Do("PATCH", path("/entity/%d", second), give).Want(200))
	if wantCleared(e); e.Status != "assigned" || e.Owner.ID != eve {
		t.Errorf("got %s, want it assigned to eve", testkit.JSON(e))
	}
	third := own("192.0.2.3")
	e = testkit.Decode[network.IPEntity](c.Do("PATCH", path("/entity/%d", third), `{"owner": null}`).Want(200))
	if wantCleared(e); e.Status != "quarantined" {
		t.Errorf("got %s, want it quarantined", testkit.JSON(e))
	}
	fourth := own("192.0.2.4")
	c.Clients.Delete(ben) // as after a restore of the clients service
	testkit.Eventually(t, "the entities of a deleted client are quarantined", func() bool {
		e = testkit.Decode[network.IPEntity](c.Do("GET", path("/entity/%d", fourth), nil).Want(200))
		return e.Status == "quarantined"
	})
	wantCleared(e)

	// Callers end a quarantine, and the setting turns it off.
	wantCounted(t, c.Client, group)
	shop.Do("PATCH", path("/entity/%d", third), `{"status": "available"}`).Want(200)
	if got := fullIPs(c.Do("POST", path("/group/%d/allocate", group), give)); !slices.Equal(got, []string{"192.0.2.3"}) {
		t.Errorf("got %v, want 192.0.2.3", got)
	}
	c.System.SetSetting(settings.Quarantine.Slug, "0")
	testkit.Eventually(t, "the setting applies", func() bool {
		if e = c.release(third); e.Status == "quarantined" {
			c.Do("PATCH", path("/entity/%d", third), give).Want(200)
		}
		return e.Status == "available"
	})
	c.Do("DELETE", path("/entity/%d", third), nil).Want(200)
	wantCounted(t, c.Client, group)
	logged := rows(t, c.DB, `SELECT concat(type, ' ', before->>'status', ' ', after->>'status') FROM change
		WHERE targets->0->>'id' = '`+fmt.Sprint(fourth)+`' AND type LIKE 'entity.%'`)
	if want := "entity.created  assigned\nentity.released assigned quarantined"; logged != want {
		t.Errorf("got the records %s, want %s", logged, want)
	}
}

// A quarantine ends at its time, whether or not the task has run: for views, lists, counts and allocations.
func TestQuarantineEnds(t *testing.T) {
	t.Parallel()
	c := newStand(t)
	ben := c.client("ben")
	group := c.Do("POST", "/group", `{"name": "Berlin"}`).Want(200).ID()
	bulk := c.Do("POST", path("/group/%d/entity/bulk", group), `{"from": "192.0.2.8", "to": "192.0.2.15"}`).Want(200)
	first := testkit.Decode[struct{ First int64 }](bulk).First
	c.Do("POST", "/entity", path(`{"group": %d, "address": "198.51.100.0/24", "owner": {"id": %d}}`, group, ben)).Want(200)
	give := func(prefix int) string { return path(`{"prefix": %d, "owner": {"id": %d}}`, prefix, ben) }
	if got := fullIPs(c.Do("POST", path("/group/%d/allocate", group), give(29))); len(got) != 8 {
		t.Fatalf("got %v, want 8 addresses", got)
	}
	for i := range int64(9) {
		c.release(first + i)
	}
	if u := wantCounted(t, c.Client, group); u.Free != 0 || u.Quarantined != 9 || u.LargestFreeBlock.V4 != "" {
		t.Errorf("got %+v, want 9 quarantined", u)
	}
	end := func(from, to int64) {
		t.Helper()
		testkit.Execute(
			t,
			c.DB,
			"UPDATE ip_assignment SET available_at = now() WHERE entity_id BETWEEN $1 AND $2 AND available_at IS NOT NULL",
			from,
			to,
		)
	}
	end(first+4, first+7)
	if u := wantCounted(t, c.Client, group); u.Free != 4 || u.Quarantined != 5 || u.LargestFreeBlock.V4 != "192.0.2.12/30" {
		t.Errorf("got %+v, want 4 free that are 192.0.2.12/30", u)
	}
	for query, want := range map[string]int{"status=available": 4, "status=quarantined": 5, "assigned=false": 9} {
		if got := names(c.Do("GET", "/entity?"+query, nil)); len(got) != want {
			t.Errorf("%s: got %v, want %d", query, got, want)
		}
	}
	c.Do("PATCH", path("/entity/%d", first+7), `{"status": "reserved", "note": "spare"}`).Want(200)
	c.Do("DELETE", path("/entity/%d", first+6), nil).Want(200)
	if u := wantCounted(t, c.Client, group); u.Free != 2 || u.Reserved != 1 || u.LargestFreeBlock.V4 != "192.0.2.12/31" {
		t.Errorf("got %+v, want 2 free, and one reserved", u)
	}
	c.Do("POST", path("/group/%d/allocate", group), path(`{"count": 3, "owner": {"id": %d}}`, ben)).WantErrors("/count", "exhausted")
	if got := fullIPs(c.Do("POST", path("/group/%d/allocate", group), path(`{"count": 2, "owner": {"id": %d}}`, ben))); len(got) != 2 {
		t.Errorf("got %v, want 192.0.2.12 and 192.0.2.13", got)
	}
	end(first, first+8)
	if u := wantCounted(t, c.Client, group); u.Free != 5 || u.LargestFreeBlock.V4 != "198.51.100.0/24" {
		t.Errorf("got %+v, want 5 free, the largest 198.51.100.0/24", u)
	}
	if got := fullIPs(c.Do("POST", path("/group/%d/allocate", group), give(24))); !slices.Equal(got, []string{"198.51.100.0/24"}) {
		t.Errorf("got %v, want 198.51.100.0/24", got)
	}
	service := network.New(c.DB, box, agreeing{})
	c.release(first + 8)
	end(first+8, first+8)
	testkit.Must(t, service.EndQuarantines(t.Context()))
	if u := wantCounted(t, c.Client, group); u.Free != 5 || u.Quarantined != 0 {
		t.Errorf("got %+v, want 5 free", u)
	}
	freed := rows(t, c.DB, `SELECT concat(before->>'status', ' ', after->>'status', ' ', count(*)) FROM change
		WHERE type = 'entity.freed' GROUP BY before->>'status', after->>'status'`)
	if want := "quarantined available 8"; freed != want {
		t.Errorf("got the records %s, want %s", freed, want)
	}
}

// A reserved group is left out of allocation, except by admins who may write groups.
func TestReservedGroup(t *testing.T) {
	t.Parallel()
	c := newStand(t)
	give := path(`{"owner": {"id": %d}}`, c.client("ben"))
	group := c.Do("POST", "/group", `{"name": "Berlin", "reserved": true}`).Want(200).ID()
	c.Do("POST", path("/group/%d/entity/bulk", group), `{"prefix": "192.0.2.0/30"}`).Want(200)
	allocate := path("/group/%d/allocate", group)
	as := func(kind principal.OwnerType, grants principal.Grants) *testkit.Client {
		return c.As(&principal.Principal{KeyID: 7, Owner: principal.Owner{Type: kind, ID: 7}, Name: "caller", Grants: grants})
	}
	entities := principal.Grant(permission.NetworkEntities, permission.Write)
	refusal := path("IP group %d is reserved. Only an admin with network.groups write can allocate from it.", group)
	as(principal.Integration, principal.All).Do("POST", allocate, give).WantDetail(problem.Forbidden, refusal)
	as(principal.Admin, entities).Do("POST", allocate, give).WantDetail(problem.Forbidden, refusal)
	as(principal.Client, principal.All).Do("POST", allocate, give).Want(403)

	// An integration cannot name an entity either.
	shop, named := as(principal.Integration, principal.All), path("IP group %d is reserved. Only an admin can assign its IP entities.", group)
	entity := testkit.Decode[[]network.IPEntity](c.Do("GET", path("/entity?group_id=%d", group), nil).Want(200))[0].ID
	shop.Do("PATCH", path("/entity/%d", entity), give).WantDetail(problem.Forbidden, named)
	shop.Do("POST", "/entity", path(`{"group": %d, "address": "192.0.2.9", "owner": {"id": %d}}`, group, c.client("ben"))).
		WantDetail(problem.Forbidden, named)
	sheet := path("id,owner.id\n%d,%d\n", entity, c.client("ben"))
	shop.Do("POST", "/entity", sheet, "Content-Type", "text/csv").WantDetail(problem.Forbidden, "Line 2: "+named)
	as(principal.Admin, entities|principal.Grant(permission.NetworkGroups, permission.Write)).Do("POST", allocate, give).Want(200)
	c.Do("PATCH", path("/group/%d", group), `{"reserved": false}`).Want(200)
	as(principal.Integration, principal.All).Do("POST", allocate, give).Want(200)
}
