package main

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ironplane/ironplane/deploy/internal/datastores"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/clients"
	"github.com/ironplane/ironplane/services/network"
	"github.com/ironplane/ironplane/services/system"
)

// TestReferencesToDeletedItems has callers refer to an item of another service while the item is being deleted and
// a process is killed. Either the item is deleted and nothing refers to it, or it stays with all confirmed
// references.
func TestReferencesToDeletedItems(t *testing.T) {
	t.Parallel()
	rounds, callers := 4, 8
	if *full {
		rounds, callers = 500, 64
	}
	f, c := startFleet(
		t,
		datastores.Config{Data: t.TempDir()},
		"IRONPLANE_OWNER_RATE=1000000",
		"IRONPLANE_OWNER_BURST=1000000",
		"IRONPLANE_OWNER_CONCURRENCY=1000000",
	)
	databases := map[string]*pg.DB{}
	for _, name := range []string{clients.Name, network.Name, system.Name} {
		databases[name] = openDatabase(t, f, name).DB
	}
	group := c.Do("POST", "/group", map[string]any{"name": "Frankfurt 1"}).Want(200).ID()
	for n := range rounds*(callers+1)>>14 + 1 {
		c.Do("POST", fmt.Sprintf("/group/%d/entity/bulk", group), map[string]any{"prefix": fmt.Sprintf("10.%d.0.0/18", n), "all": true}).Want(200)
	}
	client := func(name string, more ...any) map[string]any {
		body := map[string]any{"email": name + "@example.com", "first": "Ben", "last": "Miller"}
		for i := 0; i < len(more); i += 2 {
			body[more[i].(string)] = more[i+1]
		}
		return body
	}
	for _, race := range []*deletionRace{
		{
			name: "entities of a client", owner: clients.Name, user: network.Name, collection: "/client", listPath: "/entity?owner=%d",
			target: func(round int) map[string]any { return client(fmt.Sprint("owner-", round)) },
			use: func(id int64, _ string) (string, any) {
				return fmt.Sprintf("/group/%d/allocate", group), map[string]any{"owner": map[string]any{"id": id}}
			},
			dangling: "ip_assignment a LEFT JOIN ref r ON r.type = 'client' AND r.id = a.owner_id " +
				"WHERE a.owner_missing OR a.owner_id IS NOT NULL AND r.gone IS NOT false",
		},
		{
			name: "clients of an integration", owner: system.Name, user: clients.Name,
			collection: "/integration", listPath: "/client?integration_id=%d",
			target: func(round int) map[string]any { return map[string]any{"name": fmt.Sprint("Shop ", round)} },
			use: func(id int64, caller string) (string, any) {
				return "/client", client(fmt.Sprint(id, "-", caller), "integration_id", id)
			},
			dangling: "client c JOIN ref r ON r.type = 'integration' AND r.id = c.integration_id WHERE r.gone",
		},
	} {
		t.Run(race.name, func(t *testing.T) {
			race.t, race.f, race.c, race.databases = t, f, c.WithT(t), databases
			for round := range rounds {
				race.round(round, callers)
			}
			race.checkEnd()
		})
	}
	t.Run("clients that are detached", func(t *testing.T) {
		race := &deletionRace{
			owner: system.Name, user: clients.Name, collection: "/integration", t: t, f: f, c: c.WithT(t), databases: databases,
		}
		race.detach(
			rounds * 20,
		)
	})
}

// deletionRace is a race between the deletion of an item and new references to it.
type deletionRace struct {
	name, owner, user    string // the services of the item, and of the references to it
	collection, listPath string // paths: of the items, and of the list of references to one
	target               func(round int) map[string]any
	use                  func(id int64, caller string) (path string, body any)
	dangling             string // SQL: references to deleted items

	t                             *testing.T
	f                             *fleet
	c                             *testkit.Client
	databases                     map[string]*pg.DB
	deleted, kept, used, repeated int
}

// request sends a request until a service that stays alive responds. It returns how often the request was sent
// again.
func (r *deletionRace) request(method, path string, body any, headers ...string) (*testkit.Response, int) {
	response, repeated := sendUntilAnswered(r.t, r.c, method, path, body, headers...)
	if response == nil {
		response = &testkit.Response{}
	}
	return response, repeated
}

func (r *deletionRace) round(round, callers int) {
	target, _ := r.request("POST", r.collection, r.target(round), "Idempotency-Key", fmt.Sprint(r.collection, " ", round))
	id := target.Want(200).ID()
	at := fmt.Sprintf("%s/%d", r.collection, id)
	var mu sync.Mutex
	accepted := 0
	attempt := func(caller string) {
		path, body := r.use(id, caller)
		response, repeated := r.request("POST", path, body, "Idempotency-Key", fmt.Sprint(at, " ", caller))
		mu.Lock()
		defer mu.Unlock()
		r.repeated += repeated
		switch response.Status {
		case http.StatusOK:
			accepted++
		case http.StatusUnprocessableEntity:
			if code := testkit.Decode[problem.Problem](response).Errors[0].Code; code != "not_found" && code != "closing" {
				r.t.Errorf("%s: got the refusal %s, want not_found or closing", path, response.Text)
			}
		default:
			r.t.Errorf("%s: got %d: %s, want 200 or 422", path, response.Status, response.Text)
		}
	}

	var racing sync.WaitGroup
	var deletion *testkit.Response
	ended := make(chan struct{})
	racing.Go(func() {
		defer close(ended)
		deletion, _ = r.request("DELETE", at, nil)
	})
	if round%2 == 1 { // otherwise the references mostly come first
		r.awaitLease(id, ended)
	}
	racing.Go(func() {
		time.Sleep(time.Duration(rand.IntN(30)) * time.Millisecond)
		r.restart([]string{r.owner, r.user, principal.Gateway}[round/2%3])
	})
	for caller := range callers {
		racing.Go(func() { attempt(fmt.Sprint(caller)) })
	}
	racing.Wait()

	view, _ := r.request("GET", at, nil)
	list, _ := r.request("GET", fmt.Sprintf(r.listPath, id), nil)
	stored := len(testkit.Decode[[]struct{ ID int64 }](list.Want(200)))
	r.used += accepted
	switch deletion.Status {
	case http.StatusOK, http.StatusNotFound: // an earlier request deleted it, and its response was lost
		r.deleted++
		if view.Status != http.StatusNotFound || accepted+stored > 0 {
			r.t.Errorf(
				"%s, deleted: got %d for its view, %d accepted references and %d stored ones, want 404 and none",
				at,
				view.Status,
				accepted,
				stored,
			)
		}
	case http.StatusConflict:
		r.kept++
		if view.Status != http.StatusOK || accepted == 0 || accepted != stored {
			r.t.Errorf(
				"%s, not deleted (%s): got %d for its view, %d accepted references and %d stored ones, want 200 and the same number, not 0",
				at,
				deletion.Text,
				view.Status,
				accepted,
				stored,
			)
		}
		for deadline, n := time.Now().Add(waitTimeout), 0; accepted == stored; n++ { // an earlier request to delete it may still be running
			if attempt(fmt.Sprint("late-", n)); time.Now().After(deadline) {
				r.t.Fatalf("%s, not deleted: got no accepted reference in %v, want one", at, waitTimeout)
			}
		}
	default:
		r.t.Errorf("the deletion of %s: got %d: %s, want 200, 404 or 409", at, deletion.Status, deletion.Text)
	}
}

// awaitLease waits until the item has a deletion lease, or the deletion has ended.
func (r *deletionRace) awaitLease(id int64, ended <-chan struct{}) {
	r.t.Helper()
	testkit.Eventually(r.t, fmt.Sprintf("%s/%d has a deletion lease, or its deletion has ended", r.collection, id), func() bool {
		select {
		case <-ended:
			return true
		default:
		}
		var leased bool
		testkit.Must(r.t, r.databases[r.owner].QueryRow(
			r.t.Context(), "SELECT EXISTS (SELECT FROM closing WHERE type = $1 AND id = $2)", strings.Trim(r.collection, "/"), id,
		).Scan(&leased))
		return leased
	})
}

// detach deletes an integration with detach=true while the processes that detach its clients are killed.
func (r *deletionRace) detach(clientCount int) {
	closed, _ := r.request("POST", r.collection, map[string]any{"name": "Closed shop"}, "Idempotency-Key", "closed shop")
	id := closed.Want(200).ID()
	at := fmt.Sprintf("%s/%d", r.collection, id)
	client := func(name string) map[string]any {
		return map[string]any{"email": name + "@closed.example.com", "first": "Ben", "last": "Miller", "integration_id": id}
	}
	first, _ := r.request("POST", "/client", client("first"), "Idempotency-Key", at+" first")
	one := fmt.Sprintf("/client/%d", first.Want(200).ID())
	testkit.Execute(
		r.t,
		r.databases[r.user],
		"INSERT INTO client (email, first, last, billing_id, integration_id) SELECT 'c' || n || '@closed.example.com', 'Ben', n, n, $1 "+
			"FROM generate_series(1, $2) n",
		id,
		clientCount-1,
	)

	if response, _ := r.request("DELETE", at+"?detach=true", nil); response.Status != http.StatusOK {
		r.t.Fatalf("delete %s: got %d: %s, want 200", at, response.Status, response.Text)
	}
	if late, _ := r.request("POST", "/client", client("late")); late.Status != http.StatusUnprocessableEntity {
		r.t.Errorf("create a client during the deletion: got %d: %s, want 422", late.Status, late.Text)
	}
	for _, name := range []string{r.owner, r.user, r.owner, principal.Gateway, r.user} {
		if response, _ := r.request(
			"DELETE",
			at+"?detach=true",
			nil,
		); response.Status != http.StatusOK &&
			response.Status != http.StatusNotFound {
			r.t.Errorf("delete %s again: got %d: %s, want 200 or 404", at, response.Status, response.Text)
		}
		r.restart(name)
		if response, _ := r.request("PATCH", one, map[string]any{"last": name}); response.Status != http.StatusOK {
			r.t.Errorf("edit a client during the deletion: got %d: %s, want 200", response.Status, response.Text)
		}
	}
	testkit.Eventually(r.t, at+" is deleted", func() bool {
		response, _ := r.request("GET", at, nil)
		return response.Status == http.StatusNotFound
	})
	var left, records, recorded, deletions int
	err := r.databases[r.user].QueryRow(r.t.Context(), `
		SELECT (SELECT count(*) FROM client WHERE integration_id = $1), count(*), count(DISTINCT targets -> 0 -> 'id')
		FROM change WHERE type = 'client.edited' AND before -> 'integration' ->> 'id' = $1::text AND NOT after ? 'integration'`, id).Scan(&left, &records, &recorded)
	if err != nil || left != 0 || records != clientCount || recorded != clientCount {
		r.t.Errorf(
			"got %d clients left and %d records of %d clients (%v), want 0 and %d of %d",
			left,
			records,
			recorded,
			err,
			clientCount,
			clientCount,
		)
	}
	if err := r.databases[r.owner].QueryRow(r.t.Context(), "SELECT count(*) FROM change WHERE type = 'integration.deleted' "+
		"AND targets -> 0 -> 'id' = to_jsonb($1::bigint)", id).
		Scan(&deletions); err != nil ||
		deletions != 1 {
		r.t.Errorf("got %d records of the deletion (%v), want 1", deletions, err)
	}
}

// restart kills a process and starts it again.
func (r *deletionRace) restart(name string) {
	kill(r.t, r.f.processes[name])
	time.Sleep(time.Duration(rand.IntN(100)) * time.Millisecond)
	start := func() error { return r.f.startService(r.t.Context(), name) }
	if name == principal.Gateway {
		start = func() error { return r.f.startGateway(r.t.Context(), r.f.addresses[name]) }
	}
	if err := start(); err != nil {
		r.t.Error(err)
	}
}

// checkEnd waits until the services have exchanged all changes, and tests that no reference leads to a deleted
// item.
func (r *deletionRace) checkEnd() {
	r.t.Logf("%d items deleted, %d kept; %d references accepted; %d requests sent again", r.deleted, r.kept, r.used, r.repeated)
	if *full && (r.deleted == 0 || r.kept == 0) { // a few rounds may have only one of the two
		r.t.Errorf("got %d items deleted and %d kept, want some of both", r.deleted, r.kept)
	}
	state := func(service, sql string, args ...any) (n int64) {
		r.t.Helper()
		if err := r.databases[service].QueryRow(r.t.Context(), sql, args...).Scan(&n); err != nil {
			r.t.Fatal(err)
		}
		return n
	}
	testkit.Eventually(r.t, r.user+" has all changes of "+r.owner, func() bool {
		last := state(r.owner, "SELECT last + (SELECT count(*) FROM change WHERE seq IS NULL) FROM sequencer")
		return state(r.user, "SELECT min(seq) FROM consumer WHERE source = $1", r.owner) >= last
	})
	if n := state(r.user, "SELECT count(*) FROM "+r.dangling); n > 0 {
		r.t.Errorf("got %d references to deleted items, want none", n)
	}
	if n := state(r.owner, "SELECT count(*) FROM closing WHERE until > clock_timestamp()"); n > 0 {
		r.t.Errorf("got %d deletion leases left, want none", n)
	}
}
