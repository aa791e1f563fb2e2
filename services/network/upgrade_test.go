package network_test

import (
	"io/fs"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pool"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/runtime/host"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/network"
)

// beforeStatuses returns the migrations of the release that knew no statuses. These still define its views and triggers.
func beforeStatuses(t *testing.T) fs.FS {
	t.Helper()
	before := fstest.MapFS{}
	files, err := fs.Glob(network.Definition.Migrations, "migrations/*.sql")
	testkit.Must(t, err)
	for _, file := range files {
		if filepath.Base(file) >= "0019" {
			continue
		}
		text, err := fs.ReadFile(network.Definition.Migrations, file)
		testkit.Must(t, err)
		before[file] = &fstest.MapFile{Data: text}
	}
	if len(before) != 18 {
		t.Fatalf("got %d migrations before 0019, want 18", len(before))
	}
	return before
}

// oldData has groups 1 and 2, the second reserved, with assigned and free entities.
var oldData = []string{
	"INSERT INTO ref (type, id, name, version) SELECT 'client', n, 'Client ' || n, 1 FROM generate_series(1, 9) n",
	"INSERT INTO ip_group (name, reserved) VALUES ('Berlin', false), ('Bern', true)",
	`INSERT INTO ip_entity (group_id, nickname, billing_id, vlan, v4_first, v4_last, v4_bits, v6_first, v6_last) VALUES
		(1, 'mail', 'B1', 7, '192.0.2.1', '192.0.2.1', NULL, NULL, NULL),
		(1, NULL, NULL, NULL, '192.0.2.2', '192.0.2.2', NULL, NULL, NULL),
		(1, 'nobody''s', NULL, NULL, '192.0.2.3', '192.0.2.3', NULL, NULL, NULL),
		(1, 'spare', 'B2', 8, '192.0.2.4', '192.0.2.4', NULL, NULL, NULL),
		(1, NULL, NULL, NULL, '192.0.2.5', '192.0.2.5', NULL, NULL, NULL),
		(1, NULL, NULL, NULL, '192.0.2.16', '192.0.2.23', NULL, NULL, NULL),
		(1, NULL, NULL, NULL, '198.51.100.0', '198.51.100.15', 28, NULL, NULL),
		(1, NULL, NULL, NULL, '198.51.100.16', '198.51.100.31', 28, NULL, NULL),
		(1, NULL, NULL, NULL, '198.51.100.32', '198.51.100.32', NULL, '2001:db8::1', '2001:db8::1'),
		(1, NULL, NULL, NULL, NULL, NULL, NULL, '2001:db8::2', '2001:db8::2'),
		(2, NULL, NULL, NULL, '203.0.113.1', '203.0.113.1', NULL, NULL, NULL),
		(2, NULL, NULL, NULL, '203.0.113.2', '203.0.113.2', NULL, NULL, NULL)`,
	`INSERT INTO ip_assignment (entity_id, group_id, owner_id, server_id, server_name) VALUES
		(1, 1, 1, 4, 'fra1-s4'), (2, 1, 2, NULL, NULL), (7, 1, 1, 4, 'fra1-s4'), (11, 2, 3, NULL, NULL)`,
	"INSERT INTO ip_assignment (entity_id, group_id, owner_id, owner_missing) VALUES (3, 1, 900, true)",
	"INSERT INTO field (name, slug, target_type, type) VALUES ('Rack', 'rack', 'entity', 'text')",
	"INSERT INTO field_value (field_id, target_type, target_id, value) VALUES (1, 'entity', 1, 'R1'), (1, 'entity', 4, 'R4')",
}

// An upgrade from the release that knew no statuses keeps all assignments with their nicknames, servers and values of fields.
// Every other entity is available, and can be allocated.
func TestAssignmentsAfterUpgrade(t *testing.T) {
	t.Parallel()
	url := testkit.Databases(t, testkit.Service{Name: "network_before", Migrations: beforeStatuses(t)})["network_before"]
	opened, err := pool.Open(t.Context(), url.Reveal(), 4, pool.Options{})
	testkit.Must(t, err)
	defer opened.Close()
	db := opened.DB
	for _, sql := range oldData {
		testkit.Execute(t, db, sql)
	}
	data := func(without string) string {
		return rows(t, db, "SELECT (to_jsonb(v)"+without+")::text FROM ip_entity_view v") + "\n" +
			rows(t, db, "SELECT v::text FROM field_value v") + "\n" +
			rows(t, db, `SELECT concat(g.id, ' ', entities_count, ' ', sum(free)) FROM ip_group_view g
				JOIN (SELECT group_id, free FROM ip_free_count UNION ALL SELECT group_id, free FROM ip_free_delta) f ON f.group_id = g.id
				GROUP BY g.id, entities_count`)
	}
	before := data("")
	testkit.Must(t, host.Migrate(t.Context(), network.Definition, opened, slog.New(slog.DiscardHandler)))
	if after := data(" - 'status' - 'note' - 'available_at' - 'owner_via_id' - 'owner_via_name'"); after != before {
		t.Errorf("got the data\n%s\nafter the upgrade, want\n%s", after, before)
	}

	service := network.New(db, box, agreeing{})
	testkit.Must(t, service.Settings.Ask(t.Context()))
	handler := rest.NewHandler(network.Name, db, slog.New(slog.NewTextHandler(t.Output(), nil)), service.Routes())
	as := func(kind principal.OwnerType) *testkit.Client {
		caller := &principal.Principal{KeyID: 7, Owner: principal.Owner{Type: kind, ID: 7}, Name: "caller", Grants: principal.All}
		return testkit.NewClient(t, testkit.As(handler, caller))
	}
	c, shop := as(principal.Admin), as(principal.Integration)
	assigned := []int64{1, 2, 3, 7, 11}
	for _, e := range testkit.Decode[[]network.IPEntity](c.Do("GET", "/entity", nil).Want(200)) {
		want := "available"
		if slices.Contains(assigned, e.ID) {
			want = "assigned"
		}
		if e.Status != want || (e.Owner != nil) != (want == "assigned") || e.Note != nil || e.AvailableAt != nil {
			t.Errorf("got %s, want it %s", testkit.JSON(e), want)
		}
	}
	for range 2 { // also after the deltas of the old release are folded
		for group, want := range map[int64][2]int64{1: {4, 6}, 2: {1, 1}} {
			if u := wantCounted(t, c, group); u.Used != want[0] || u.Free != want[1] {
				t.Errorf("group %d: got %+v, want %d used and %d free", group, u, want[0], want[1])
			}
		}
		testkit.Must(t, service.FoldCounts(t.Context()))
	}

	for _, allocation := range [][2]string{
		{`{"count": 5, "owner": {"id": 5}}`, "192.0.2.4 192.0.2.5 192.0.2.16-192.0.2.23 198.51.100.16/28 198.51.100.32"},
		{`{"count": 1, "family": "v6", "owner": {"id": 5}}`, "2001:db8::2"},
	} {
		body, want := allocation[0], allocation[1]
		if got := strings.Join(fullIPs(shop.Do("POST", "/group/1/allocate", body)), " "); got != want {
			t.Errorf("%s: got %s, want %s", body, got, want)
		}
		shop.Do("POST", "/group/1/allocate", strings.Replace(body, "5,", "1,", 1)).WantErrors("/count", "exhausted")
	}
	shop.Do("POST", "/group/2/allocate", `{"owner": {"id": 5}}`).
		WantDetail(problem.Forbidden, "IP group 2 is reserved. Only an admin with network.groups write can allocate from it.")
	if got := fullIPs(c.Do("POST", "/group/2/allocate", `{"owner": {"id": 5}}`)); !slices.Equal(got, []string{"203.0.113.2"}) {
		t.Errorf("got %v, want 203.0.113.2", got)
	}
	for _, id := range assigned {
		c.Do("POST", path("/entity/%d/release", id), nil).Want(200)
	}
	for group, want := range map[int64]int64{1: 4, 2: 1} {
		if u := wantCounted(t, c, group); u.Free != want {
			t.Errorf("group %d: got %+v, want %d free after the releases", group, u, want)
		}
	}
}

// The statements of the release that knew no statuses, for entity $1.
const (
	oldEdit    = "UPDATE ip_entity SET version = version + 1, vlan = 8 WHERE id = $1"
	oldUnown   = "DELETE FROM ip_assignment WHERE entity_id = $1"
	oldRelease = `WITH released AS (DELETE FROM ip_assignment WHERE entity_id = $1)
		UPDATE ip_entity SET version = version + 1 WHERE id = $1`
	oldAssign = `INSERT INTO ip_assignment AS a (entity_id, group_id, owner_id, server_id, server_name) VALUES ($1, $2, $3, 4, 'fra1-s4')
		ON CONFLICT (entity_id) DO UPDATE SET owner_id = EXCLUDED.owner_id,
			owner_name = CASE WHEN a.owner_id = EXCLUDED.owner_id THEN a.owner_name ELSE EXCLUDED.owner_name END,
			owner_missing = a.owner_missing AND a.owner_id = EXCLUDED.owner_id,
			server_id = EXCLUDED.server_id, server_name = EXCLUDED.server_name`
	oldMissing = "UPDATE ip_assignment SET owner_missing = true WHERE owner_id = $1 AND NOT owner_missing"

	// oldAllocate allocates all that is free in a group. The newest release has the same statement.
	oldAllocate = `WITH lowest AS MATERIALIZED (SELECT FROM allocating WHERE stripe = $1::bigint % 32 LIMIT 1 FOR UPDATE SKIP LOCKED),
		free AS MATERIALIZED (
			SELECT f.entity_id, f.v4_first AS first FROM ip_free f JOIN ip_entity e ON e.id = f.entity_id
			WHERE f.group_id = $1 AND EXISTS (SELECT FROM lowest) AND f.v4_first IS NOT NULL ORDER BY f.v4_first LIMIT 1024
			FOR NO KEY UPDATE OF e SKIP LOCKED FOR UPDATE OF f SKIP LOCKED),
		assigned AS (
			INSERT INTO ip_assignment (entity_id, group_id, owner_id, server_id, server_name) SELECT entity_id, $1, $2, NULL, NULL FROM free),
		edited AS (
			UPDATE ip_entity e SET version = version + 1 FROM free WHERE e.id = free.entity_id)
		SELECT entity_id FROM free ORDER BY first`
)

// While instances of the release that knew no statuses serve beside new ones, their statements succeed. They allocate nothing
// that is reserved or quarantined, and end neither. What they release is available at once.
func TestStatusesBesidePreviousRelease(t *testing.T) {
	t.Parallel()
	c := newStand(t)
	ben, eve := c.client("ben"), c.client("eve")
	group := c.Do("POST", "/group", `{"name": "Berlin"}`).Want(200).ID()
	bulk := c.Do("POST", path("/group/%d/entity/bulk", group), `{"from": "192.0.2.0", "to": "192.0.2.9"}`).Want(200)
	first := testkit.Decode[struct{ First int64 }](bulk).First
	give := func(owner int64) string { return path(`{"owner": {"id": %d}}`, owner) }
	want := map[int64]string{}
	for n := range int64(10) {
		want[first+n] = "available"
	}
	hold := func(id int64) {
		c.Do("PATCH", path("/entity/%d", id), `{"status": "reserved", "note": "router"}`).Want(200)
		want[id] = "reserved"
	}
	quarantine := func(id int64) {
		c.Do("PATCH", path("/entity/%d", id), give(eve)).Want(200)
		c.release(id)
		want[id] = "quarantined"
	}
	own := func(id int64) {
		c.Do("PATCH", path("/entity/%d", id), give(ben)).Want(200)
		want[id] = "assigned"
	}
	hold(first)
	hold(first + 1)
	quarantine(first + 2)
	quarantine(first + 3)
	for n := range int64(3) {
		own(first + 4 + n)
	}
	m := &statusesHeld{c, group, want}
	m.compare(t, "before")

	for _, held := range []int64{first, first + 2} { // an edit without an owner, and PATCH owner: null
		testkit.Execute(t, c.DB, oldEdit, held)
		testkit.Execute(t, c.DB, oldUnown, held)
		m.compare(t, "an edit")
	}
	testkit.Execute(t, c.DB, oldRelease, first+4)
	want[first+4] = "available"
	m.compare(t, "a release")
	testkit.Execute(t, c.DB, oldEdit, first+5)
	testkit.Execute(t, c.DB, oldUnown, first+5)
	want[first+5] = "available"
	m.compare(t, "the end of an ownership")
	if got := rows(t, c.DB, path("SELECT concat(first, ' ', bits) FROM largest_free(%d, '192.0.0.0/22')", group)); got != "192.0.2.4 31" {
		t.Errorf("got the largest free block %s, want 192.0.2.4 31", got)
	}

	testkit.Execute(t, c.DB, oldAllocate, group, eve)
	for _, n := range []int64{4, 5, 7, 8, 9} {
		want[first+n] = "assigned"
	}
	m.compare(t, "an allocation")
	testkit.Execute(t, c.DB, "UPDATE ip_assignment SET available_at = now() WHERE entity_id = $1", first+3)
	want[first+3] = "available"
	m.compare(t, "the end of a quarantine")
	testkit.Execute(t, c.DB, oldEdit, first+3)
	testkit.Execute(t, c.DB, oldUnown, first+3)
	m.compare(t, "an edit after a quarantine")
	testkit.Execute(t, c.DB, oldAllocate, group, eve)
	want[first+3] = "assigned"
	m.compare(t, "an allocation of what was quarantined")
	testkit.Execute(t, c.DB, oldAllocate, group, eve)
	m.compare(t, "an allocation from a full group")

	testkit.Execute(t, c.DB, oldMissing, ben)
	m.compare(t, "the end of a client")
	for _, id := range []int64{first, first + 2, first + 6} { // an admin names the entity
		testkit.Execute(t, c.DB, oldAssign, id, group, eve)
		want[id] = "assigned"
	}
	m.compare(t, "assignments")
	for id := range want {
		if e := testkit.Decode[network.IPEntity](c.Do("GET", path("/entity/%d", id), nil).Want(200)); e.Note != nil && want[id] == "assigned" {
			t.Errorf("got %s, want it without a note", testkit.JSON(e))
		}
	}
	quarantine(first + 2)
	for _, id := range []int64{first + 1, first + 2} {
		testkit.Execute(t, c.DB, "DELETE FROM ip_entity WHERE id = $1", id)
		delete(want, id)
	}
	m.compare(t, "deletions")
	for id := range want {
		c.release(id)
		c.Do("PATCH", path("/entity/%d", id), `{"status": "available"}`).Want(200)
		want[id] = "available"
	}
	m.compare(t, "releases by the new release")
}

// statusesHeld has the expected statuses of a group's entities.
type statusesHeld struct {
	c     *stand
	group int64
	want  map[int64]string
}

// compare fails if an entity has another status, if the counts disagree, or if an entity is both free and held, or neither.
func (m *statusesHeld) compare(t *testing.T, after string) {
	t.Helper()
	got := map[int64]string{}
	for _, e := range testkit.Decode[[]network.IPEntity](m.c.Do("GET", path("/entity?group_id=%d", m.group), nil).Want(200)) {
		got[e.ID] = e.Status
	}
	if !maps.Equal(got, m.want) {
		t.Errorf("after %s: got the statuses %v, want %v", after, got, m.want)
	}
	wantCounted(t, m.c.Client, m.group)
	if both := rows(t, m.c.DB, freeAndHeld); both != "" {
		t.Errorf("after %s: got the entities %s both free and held, or neither, want none", after, both)
	}
}
