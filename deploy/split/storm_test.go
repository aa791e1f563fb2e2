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

var full = flag.Bool("full", false, "run the long tests, such as `make storm` and `make crash`")

// waitTimeout bounds how long a caller repeats a request, until it counts as starved.
const waitTimeout = 5 * time.Minute

// TestAllocationStorm has callers allocate and release entities while the network service is killed again and
// again. One group has an address for each caller, so it must never refuse. Another group has too few.
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
	s.post(fmt.Sprintf("/entity/%d/release", entity.ID), nil, "release "+attempt)
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
