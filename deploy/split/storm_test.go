package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ironplane/ironplane/deploy/internal/datastores"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/network"
)

var full = flag.Bool("full", false, "run the long tests, such as `make storm` and `make crash`")

// waitTimeout bounds how long a caller repeats a request, until it counts as starved.
const waitTimeout = 5 * time.Minute

// TestAllocationStorm has callers allocate, release and reserve entities while quarantines end, and while the network
// service is killed again and again. One group has an address for each caller, so it must never refuse for long.
// Another group has too few.
func TestAllocationStorm(t *testing.T) {
	t.Parallel()
	callers, rounds, maxDowntimeMillis := 16, 4, 500
	if *full {
		callers, rounds, maxDowntimeMillis = 200, 50, 5000
	}
	f, c := startFleet(
		t,
		datastores.Config{Data: t.TempDir()},
		"IRONPLANE_OWNER_RATE=1000000",
		"IRONPLANE_OWNER_BURST=1000000",
		"IRONPLANE_OWNER_CONCURRENCY=1000000",
	)
	s := &storm{t: t, c: c, holders: map[int64]int{}}
	enough, scarce := s.group("Enough", "10.0.0.0", callers), s.group("Scarce", "10.1.0.0", callers/4)
	db := openDatabase(t, f, network.Name).DB

	raging, stop := context.WithCancel(t.Context())
	defer stop()
	var watching, calling sync.WaitGroup
	kills := 0
	watching.Go(func() { s.observe(raging, db) })
	watching.Go(func() {
		for ; kills < 2 || raging.Err() == nil; kills++ {
			time.Sleep(time.Duration(rand.IntN(maxDowntimeMillis)) * time.Millisecond)
			kill(t, f.processes["network"])
			time.Sleep(time.Duration(rand.IntN(200)) * time.Millisecond)
			if err := f.startService(t.Context(), "network"); err != nil {
				t.Error(err)
				return
			}
		}
	})
	s.watchEarly(db)
	watching.Go(func() { s.endQuarantines(raging, db) })
	for caller := range callers {
		client := s.c.Do(
			"POST", "/client", map[string]any{"email": fmt.Sprintf("caller-%d@example.com", caller), "first": "Ben", "last": "Miller"},
		).
			Want(200).
			ID()
		if client != int64(caller+1) {
			t.Fatalf("caller %d: got client %d, want %d", caller+1, client, caller+1)
		}
	}
	for caller := range callers {
		calling.Go(func() {
			for round := range rounds {
				s.round(caller+1, round, enough, true)
				s.round(caller+1, round, scarce, false)
			}
		})
	}
	calling.Wait()
	stop()
	watching.Wait()
	s.compareCounts(db, enough, scarce)

	var recorded int
	if err := db.QueryRow(t.Context(), "SELECT count(*) FROM change WHERE type = 'entity.allocated'").
		Scan(&recorded); err != nil ||
		recorded != s.allocated {
		t.Errorf("got %d recorded allocations (%v), want %d", recorded, err, s.allocated)
	}
	if s.allocated < callers*rounds || s.observed == 0 {
		t.Errorf("got %d allocations and %d observations, want at least %d and 1", s.allocated, s.observed, callers*rounds)
	}
	t.Logf(
		"%d callers, %d rounds, %d kills: %d allocations, %d refusals in the small group, %d requests sent again, longest wait %v, "+
			"%d observations",
		callers,
		rounds,
		kills,
		s.allocated,
		s.refused,
		s.repeated,
		s.maxWait.Round(time.Millisecond),
		s.observed,
	)
}

// storm counts the results of the callers.
type storm struct {
	t *testing.T
	c *testkit.Client

	mu                                     sync.Mutex
	holders                                map[int64]int // callers by the entity that they hold
	allocated, refused, repeated, observed int
	maxWait                                time.Duration
}

// group creates a group with a number of addresses, and returns the path to allocate in it.
func (s *storm) group(name, first string, addresses int) string {
	id := s.c.Do("POST", "/group", map[string]any{"name": name}).Want(200).ID()
	last := fmt.Sprint(first[:len(first)-1], addresses-1)
	s.c.Do("POST", fmt.Sprintf("/group/%d/entity/bulk", id), map[string]any{"from": first, "to": last}).Want(200)
	return fmt.Sprintf("/group/%d/allocate", id)
}

// round allocates an entity and releases it. If enough is set, a refusal is an error.
func (s *storm) round(caller, round int, path string, enough bool) {
	began := time.Now()
	attempt := fmt.Sprintf("%s %d %d", path, caller, round)
	response := s.post(path, map[string]any{"owner": map[string]any{"id": caller}}, attempt)
	exhausted := func() bool { return response != nil && response.Status == http.StatusUnprocessableEntity }
	for retry := 1; enough && exhausted() && time.Since(began) < waitTimeout; retry++ {
		time.Sleep(20 * time.Millisecond) // the caller's address is quarantined
		response = s.post(path, map[string]any{"owner": map[string]any{"id": caller}}, fmt.Sprint(attempt, " retry ", retry))
	}
	if response == nil {
		return
	}
	if response.Status == http.StatusUnprocessableEntity {
		if errors := testkit.Decode[problem.Problem](response).Errors; enough || len(errors) != 1 || errors[0].Code != "exhausted" {
			s.t.Errorf("%s: got the refusal %s, want an address, or exhausted where they are scarce", attempt, response.Text)
		}
		s.mu.Lock()
		s.refused++
		s.mu.Unlock()
		return
	}
	entity := testkit.Decode[[]network.IPEntity](response)[0]
	if entity.Status != "assigned" {
		s.t.Errorf("%s: got the status %s, want assigned", attempt, entity.Status)
	}
	s.mu.Lock()
	if other := s.holders[entity.ID]; other != 0 || entity.Owner.ID != int64(caller) {
		s.t.Errorf("caller %d: got %s, held by caller %d: %s, want a free one, with this owner", caller, entity.FullIP, other, response.Text)
	}
	s.holders[entity.ID] = caller
	s.allocated++
	s.maxWait = max(s.maxWait, time.Since(began))
	s.mu.Unlock()

	viewed := s.send("GET", fmt.Sprintf("/entity/%d", entity.ID), nil)
	if viewed == nil || testkit.Decode[network.IPEntity](viewed).Owner.ID != int64(caller) {
		s.t.Errorf("caller %d: got %v, want the entity with this owner", caller, viewed)
	}

	s.mu.Lock()
	delete(s.holders, entity.ID)
	s.mu.Unlock()
	at := fmt.Sprintf("/entity/%d", entity.ID)
	released := s.post(at+"/release", nil, "release "+attempt)
	if released == nil {
		return
	}
	if got := testkit.Decode[network.IPEntity](released); got.Status != "quarantined" || got.AvailableAt == nil {
		s.t.Errorf("%s: got %s after the release, want it quarantined", attempt, released.Text)
	}
	if rand.IntN(4) == 0 { // an operator ends the quarantine, reserves the entity, and gives it back
		for _, status := range []string{"available", "reserved", "available"} {
			if s.edit(at, status) != http.StatusOK {
				return
			}
		}
	}
}

// edit sets the status of an entity. Another caller may have allocated the entity meanwhile, or set its status.
func (s *storm) edit(path, status string) int {
	response := s.send("PATCH", path, map[string]any{"status": status})
	if response == nil {
		return 0
	}
	if response.Status == http.StatusOK && status == "reserved" {
		if got := testkit.Decode[network.IPEntity](response); got.Status != "reserved" || got.Owner != nil {
			s.t.Errorf("%s: got %s, want it reserved without an owner", path, response.Text)
		}
	}
	return response.Status
}

// watchEarly has the database note each entity that gets an owner before its quarantine has ended. It relies on nothing
// that the service decides.
func (s *storm) watchEarly(db *pg.DB) {
	for _, sql := range []string{
		"CREATE TABLE storm_due (entity_id bigint PRIMARY KEY, available_at timestamptz NOT NULL)",
		"CREATE TABLE storm_early (entity_id bigint NOT NULL)",
		`CREATE FUNCTION storm() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF NEW.owner_id IS NULL THEN
				INSERT INTO storm_due VALUES (NEW.entity_id, coalesce(NEW.available_at, now()))
				ON CONFLICT (entity_id) DO UPDATE SET available_at = EXCLUDED.available_at;
			ELSE
				INSERT INTO storm_early SELECT entity_id FROM storm_due WHERE entity_id = NEW.entity_id AND available_at > clock_timestamp();
			END IF;
			RETURN NULL;
		END $$`,
		"CREATE TRIGGER storm AFTER INSERT OR UPDATE ON ip_assignment FOR EACH ROW EXECUTE FUNCTION storm()",
	} {
		testkit.Execute(s.t, db, sql)
	}
}

// endQuarantines makes quarantines of hours end within a moment.
func (s *storm) endQuarantines(ctx context.Context, db *pg.DB) {
	for ctx.Err() == nil {
		testkit.Execute(s.t, db, "UPDATE ip_assignment SET available_at = now() + random() * interval '200 ms' "+
			"WHERE entity_id IN (SELECT entity_id FROM ip_assignment WHERE available_at > now() + interval '1 minute' FOR UPDATE SKIP LOCKED)")
		time.Sleep(20 * time.Millisecond)
	}
}

// compareCounts compares the utilization of groups with their lists.
func (s *storm) compareCounts(db *pg.DB, groups ...string) {
	var early int
	if err := db.QueryRow(s.t.Context(), "SELECT count(*) FROM storm_early").Scan(&early); err != nil || early > 0 {
		s.t.Errorf("got %d entities allocated before the end of their quarantine (%v), want none", early, err)
	}
	testkit.Eventually(s.t, "no quarantine ends between the requests below", func() bool {
		var ends bool
		err := db.QueryRow(s.t.Context(), "SELECT EXISTS (SELECT FROM ip_assignment "+
			"WHERE available_at BETWEEN now() AND now() + interval '1 minute')").Scan(&ends)
		return err == nil && !ends
	})
	for _, allocate := range groups {
		group := strings.TrimSuffix(allocate, "/allocate")
		counted := map[string]int64{}
		list := s.send("GET", "/entity?group_id="+strings.TrimPrefix(group, "/group/"), nil)
		for _, e := range testkit.Decode[[]network.IPEntity](list) {
			counted[e.Status]++
		}
		u := testkit.Decode[network.Utilization](s.send("GET", group+"/utilization", nil))
		got := map[string]int64{"assigned": u.Used, "available": u.Free, "reserved": u.Reserved, "quarantined": u.Quarantined}
		for _, status := range []string{"assigned", "available", "reserved", "quarantined"} {
			if got[status] != counted[status] {
				s.t.Errorf("%s: got %d %s entities, want %d as in the list", group, got[status], status, counted[status])
			}
		}
	}
}

func (s *storm) post(path string, body any, attempt string) *testkit.Response {
	return s.send("POST", path, body, "Idempotency-Key", attempt)
}

// send sends a request until a service that stays alive responds.
func (s *storm) send(method, path string, body any, headers ...string) *testkit.Response {
	response, repeated := sendUntilAnswered(s.t, s.c, method, path, body, headers...)
	s.mu.Lock()
	s.repeated += repeated
	s.mu.Unlock()
	if response == nil || response.Status != http.StatusOK && response.Status != http.StatusUnprocessableEntity {
		s.t.Errorf("%s: got %+v, want 200 or 422", path, response)
		return nil
	}
	return response
}

// sendUntilAnswered sends a request until a service that stays alive responds. It returns nil after waitTimeout,
// and how often the request was sent again.
func sendUntilAnswered(
	t *testing.T,
	c *testkit.Client,
	method, path string,
	body any,
	headers ...string,
) (response *testkit.Response, repeated int) {
	for deadline := time.Now().Add(waitTimeout); ; time.Sleep(20 * time.Millisecond) {
		response, err := c.Try(method, path, body, headers...)
		if err == nil && response.Status != http.StatusServiceUnavailable &&
			response.Status != http.StatusTooManyRequests { // a gateway that has just started may not know the limits yet
			return response, repeated
		}
		if time.Now().After(deadline) {
			t.Errorf("%s %s: got no final answer in %v (%v), want one", method, path, waitTimeout, err)
			return nil, repeated
		}
		repeated++
	}
}

// observe checks continuously that each entity is either free or assigned.
func (s *storm) observe(ctx context.Context, db *pg.DB) {
	for ctx.Err() == nil {
		var invalid int
		err := db.QueryRow(s.t.Context(), `
			SELECT count(*) FROM ip_entity e LEFT JOIN ip_assignment a ON a.entity_id = e.id LEFT JOIN ip_free f ON f.entity_id = e.id
			WHERE (a.entity_id IS NULL) = (f.entity_id IS NULL)`).Scan(&invalid)
		if err != nil || invalid > 0 {
			s.t.Errorf("got %d entities both free and assigned, or neither (%v), want none", invalid, err)
			return
		}
		s.observed++
		time.Sleep(10 * time.Millisecond)
	}
}
