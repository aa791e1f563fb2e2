package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/ironplane/ironplane/deploy/internal/datastores"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/network"
)

var full = flag.Bool("full", false, "let the storm of allocations and the crashes go on as long as in `make storm` and `make crash`")

// patience is how long a caller asks again for one thing before it counts as starved.
const patience = 5 * time.Minute

// TestAllocationStorm has callers allocate and release without a pause while the network service is killed again and
// again. One group has an address for each of them, so nobody may ever be refused there; another has too few.
func TestAllocationStorm(t *testing.T) {
	t.Parallel()
	callers, rounds, longestPause := 16, 4, 500
	if *full {
		callers, rounds, longestPause = 200, 50, 5000
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

	raging, calm := context.WithCancel(t.Context())
	defer calm()
	var watching, calling sync.WaitGroup
	kills := 0
	watching.Go(func() { s.observe(raging, db) })
	watching.Go(func() {
		for ; kills < 2 || raging.Err() == nil; kills++ {
			time.Sleep(time.Duration(rand.IntN(longestPause)) * time.Millisecond)
			kill(t, f.processes["network"])
			time.Sleep(time.Duration(rand.IntN(200)) * time.Millisecond)
			if err := f.startService(t.Context(), "network"); err != nil {
				t.Error(err)
				return
			}
		}
	})
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
	calm()
	watching.Wait()

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
		"%d callers, %d rounds, %d kills: %d allocations, %d refusals where there was too little, %d requests sent again, the longest wait "+
			"%v, looked at %d times",
		callers,
		rounds,
		kills,
		s.allocated,
		s.refused,
		s.repeated,
		s.longest.Round(time.Millisecond),
		s.observed,
	)
}

// storm counts what comes of it.
type storm struct {
	t *testing.T
	c *testkit.Client

	mu                                     sync.Mutex
	holders                                map[int64]int // callers by the entity that they hold
	allocated, refused, repeated, observed int
	longest                                time.Duration
}

// group makes a group with so many addresses, and answers the path to allocate in it.
func (s *storm) group(name, first string, addresses int) string {
	id := s.c.Do("POST", "/group", map[string]any{"name": name}).Want(200).ID()
	last := fmt.Sprint(first[:len(first)-1], addresses-1)
	s.c.Do("POST", fmt.Sprintf("/group/%d/entity/bulk", id), map[string]any{"from": first, "to": last}).Want(200)
	return fmt.Sprintf("/group/%d/allocate", id)
}

// round allocates an entity and releases it. Where there is enough, it must get one.
func (s *storm) round(caller, round int, path string, enough bool) {
	began := time.Now()
	attempt := fmt.Sprintf("%s %d %d", path, caller, round)
	answer := s.post(path, map[string]any{"owner": map[string]any{"id": caller}}, attempt)
	if answer == nil {
		return
	}
	if answer.Status == http.StatusUnprocessableEntity {
		if errors := testkit.Decode[problem.Problem](answer).Errors; enough || len(errors) != 1 || errors[0].Code != "exhausted" {
			s.t.Errorf("%s: got the refusal %s, want an address, or exhausted where they are scarce", attempt, answer.Text)
		}
		s.mu.Lock()
		s.refused++
		s.mu.Unlock()
		return
	}
	entity := testkit.Decode[[]network.IPEntity](answer)[0]
	s.mu.Lock()
	if other := s.holders[entity.ID]; other != 0 || entity.Owner.ID != int64(caller) {
		s.t.Errorf("caller %d: got %s, held by caller %d: %s, want a free one, with this owner", caller, entity.FullIP, other, answer.Text)
	}
	s.holders[entity.ID] = caller
	s.allocated++
	s.longest = max(s.longest, time.Since(began))
	s.mu.Unlock()

	viewed := s.ask("GET", fmt.Sprintf("/entity/%d", entity.ID), nil)
	if viewed == nil || testkit.Decode[network.IPEntity](viewed).Owner.ID != int64(caller) {
		s.t.Errorf("caller %d: got %v, want the entity with this owner", caller, viewed)
	}

	s.mu.Lock()
	delete(s.holders, entity.ID)
	s.mu.Unlock()
	s.post(fmt.Sprintf("/entity/%d/release", entity.ID), nil, "release "+attempt)
}

func (s *storm) post(path string, body any, attempt string) *testkit.Response {
	return s.ask("POST", path, body, "Idempotency-Key", attempt)
}

// ask asks until there is an answer from a service that lives.
func (s *storm) ask(method, path string, body any, headers ...string) *testkit.Response {
	answer, repeated := insist(s.t, s.c, method, path, body, headers...)
	s.mu.Lock()
	s.repeated += repeated
	s.mu.Unlock()
	if answer == nil || answer.Status != http.StatusOK && answer.Status != http.StatusUnprocessableEntity {
		s.t.Errorf("%s: got %+v, want 200 or 422", path, answer)
		return nil
	}
	return answer
}

// insist sends a request until there is an answer from a service that lives, and says how often it was sent again; nil: it starves.
func insist(t *testing.T, c *testkit.Client, method, path string, body any, headers ...string) (answer *testkit.Response, repeated int) {
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		answer, err := c.Try(method, path, body, headers...)
		if err == nil && answer.Status != http.StatusServiceUnavailable &&
			answer.Status != http.StatusTooManyRequests { // as of a gateway that is not told its limits yet
			return answer, repeated
		}
		if time.Now().After(deadline) {
			t.Errorf("%s %s: got no final answer in %v (%v), want one", method, path, patience, err)
			return nil, repeated
		}
		repeated++
	}
}

// observe looks all the time whether each entity is either free or somebody's.
func (s *storm) observe(ctx context.Context, db *pg.DB) {
	for ctx.Err() == nil {
		var wrong int
		err := db.QueryRow(s.t.Context(), `
			SELECT count(*) FROM ip_entity e LEFT JOIN ip_assignment a ON a.entity_id = e.id LEFT JOIN ip_free f ON f.entity_id = e.id
			WHERE (a.entity_id IS NULL) = (f.entity_id IS NULL)`).Scan(&wrong)
		if err != nil || wrong > 0 {
			s.t.Errorf("got %d entities both free and assigned, or neither (%v), want none", wrong, err)
			return
		}
		s.observed++
		time.Sleep(10 * time.Millisecond)
	}
}
