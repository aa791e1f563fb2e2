package network_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/network"
)

// statusMachine is the test's own model of the statuses of a group's entities.
type statusMachine struct {
	*rapid.T
	c      *stand
	group  int64
	status map[int64]string
}

// pick returns an entity with one of the statuses, or 0 if none has.
func (m *statusMachine) pick(statuses ...string) int64 {
	var found []int64
	for _, id := range slices.Sorted(maps.Keys(m.status)) {
		if slices.Contains(statuses, m.status[id]) {
			found = append(found, id)
		}
	}
	if len(found) == 0 {
		return 0
	}
	return rapid.SampledFrom(found).Draw(m.T, "entity")
}

// change edits an entity with one of the statuses, and expects another status.
func (m *statusMachine) change(body, to string, from ...string) {
	if id := m.pick(from...); id > 0 {
		m.c.Do("PATCH", path("/entity/%d", id), body).Want(200)
		m.status[id] = to
	}
}

// refuse edits an entity with one of the statuses, and expects that it keeps it.
func (m *statusMachine) refuse(body string, statuses ...string) {
	if id := m.pick(statuses...); id > 0 {
		m.c.Do("PATCH", path("/entity/%d", id), body).WantErrors("/status", "conflict")
	}
}

// allocate asks for entities, and expects the available ones and no others.
func (m *statusMachine) allocate(owner int64) {
	count, free := rapid.IntRange(1, 4).Draw(m.T, "count"), 0
	for _, status := range m.status {
		if status == "available" {
			free++
		}
	}
	answer := m.c.Do("POST", path("/group/%d/allocate", m.group), path(`{"count": %d, "owner": {"id": %d}}`, count, owner))
	if count > free {
		answer.WantErrors("/count", "exhausted")
		return
	}
	for _, e := range testkit.Decode[[]network.IPEntity](answer.Want(200)) {
		if m.status[e.ID] != "available" {
			m.Fatalf("entity %d: got it allocated while it was %s, want only available ones", e.ID, m.status[e.ID])
		}
		m.status[e.ID] = "assigned"
	}
}

// end ends quarantines. The task may have moved the entities, or not.
func (m *statusMachine) end(t *testing.T, task func() error) {
	for id, status := range m.status {
		if status == "quarantined" && id%2 == 0 {
			testkit.Execute(t, m.c.DB, "UPDATE ip_assignment SET available_at = now() WHERE entity_id = $1", id)
			m.status[id] = "available"
		}
	}
	if rapid.Bool().Draw(m.T, "the task runs") {
		testkit.Must(t, task())
	}
}

// freeAndHeld lists entities that are both free and held, or neither.
const freeAndHeld = `SELECT e.id::text FROM ip_entity e LEFT JOIN ip_assignment a ON a.entity_id = e.id LEFT JOIN ip_free f ON f.entity_id = e.id
	WHERE (a.entity_id IS NULL) = (f.entity_id IS NULL)`

// compare fails if views or counts say something else than the model, or if the database has an entity as free and not free.
func (m *statusMachine) compare(t *testing.T) {
	for _, e := range testkit.Decode[[]network.IPEntity](m.c.Do("GET", path("/entity?group_id=%d", m.group), nil).Want(200)) {
		if want := m.status[e.ID]; e.Status != want || (e.Owner != nil) != (want == "assigned") ||
			(e.AvailableAt != nil) != (want == "quarantined") {
			m.Fatalf("got %s, want it %s", testkit.JSON(e), want)
		}
	}
	wantCounted(t, m.c.Client, m.group)
	if got := rows(t, m.c.DB, freeAndHeld); got != "" {
		m.Fatalf("got the entities %s both free and held, or neither, want none", got)
	}
}

// Whatever callers do, and whenever quarantines end, statuses change as documented, and all views and counts agree.
func TestStatusMachine(t *testing.T) {
	t.Parallel()
	c := newStand(t)
	ben, eve := c.client("ben"), c.client("eve")
	service := network.New(c.DB, box, agreeing{})
	groups := 0
	rapid.Check(t, func(rt *rapid.T) {
		groups++
		m := &statusMachine{rt, c, c.Do("POST", "/group", path(`{"name": "Group %d"}`, groups)).Want(200).ID(), map[int64]string{}}
		bulk := testkit.Decode[struct{ First, Last int64 }](c.Do("POST", path("/group/%d/entity/bulk", m.group),
			`{"from": "10.0.0.0", "to": "10.0.0.7"}`).Want(200))
		for id := bulk.First; id <= bulk.Last; id++ {
			m.status[id] = "available"
		}
		give := func(owner int64) string { return fmt.Sprintf(`{"owner": {"id": %d}}`, owner) }
		does := map[string]func(){
			"allocate":      func() { m.allocate(ben) },
			"assign":        func() { m.change(give(ben), "assigned", "available", "reserved", "quarantined") },
			"reassign":      func() { m.change(give(eve), "assigned", "assigned") },
			"clear owner":   func() { m.change(`{"owner": null}`, "quarantined", "assigned") },
			"reserve":       func() { m.change(`{"status": "reserved", "note": "router"}`, "reserved", "available", "reserved") },
			"unreserve":     func() { m.change(`{"status": "available"}`, "available", "reserved", "quarantined", "available") },
			"other edit":    func() { id := m.pick("available", "assigned", "reserved", "quarantined"); m.edit(id) },
			"end":           func() { m.end(t, func() error { return service.EndQuarantines(t.Context()) }) },
			"fold":          func() { testkit.Must(t, service.FoldCounts(t.Context())) },
			"no reserve":    func() { m.refuse(`{"status": "reserved"}`, "assigned", "quarantined") },
			"no free":       func() { m.refuse(`{"status": "available"}`, "assigned") },
			"no assign":     func() { m.refuse(`{"status": "assigned"}`, "available", "reserved", "quarantined") },
			"no quarantine": func() { m.refuse(`{"status": "quarantined"}`, "available", "reserved", "assigned") },
			"release": func() {
				if id := m.pick("assigned"); id > 0 {
					c.release(id)
					m.status[id] = "quarantined"
				}
			},
			"delete": func() {
				if id := m.pick("available", "reserved"); id > 0 {
					c.Do("DELETE", path("/entity/%d", id), nil).Want(200)
					delete(m.status, id)
				}
			},
			"no delete": func() {
				if id := m.pick("assigned", "quarantined"); id > 0 {
					c.Do("DELETE", path("/entity/%d", id), nil).Want(409)
				}
			},
		}
		for _, name := range rapid.SliceOfN(rapid.SampledFrom(slices.Sorted(maps.Keys(does))), 3, 15).Draw(rt, "what") {
			does[name]()
			m.compare(t)
		}
	})
}

// edit changes a member that has no part in the status.
func (m *statusMachine) edit(id int64) {
	if id > 0 {
		m.c.Do("PATCH", path("/entity/%d", id), path(`{"vlan": %d}`, rapid.IntRange(1, 4094).Draw(m.T, "vlan"))).Want(200)
	}
}
