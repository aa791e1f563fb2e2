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

// TestUseOfWhatIsBeingDeleted has callers refer to an item of another service while it is being deleted and one of the processes
// that take part is killed. It is deleted and nothing refers to it, or it stays with all that was answered to do so.
func TestUseOfWhatIsBeingDeleted(t *testing.T) {
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
		c.Do("POST", fmt.Sprintf("/group/%d/entity/bulk", group), map[string]any{"prefix": fmt.Sprintf("10.%d.0.0/18", n)}).Want(200)
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
			name: "entities of a client", owner: clients.Name, user: network.Name, collection: "/client", uses: "/entity?owner=%d",
			target: func(round int) map[string]any { return client(fmt.Sprint("owner-", round)) },
			use: func(id int64, _ string) (string, any) {
				return fmt.Sprintf("/group/%d/allocate", group), map[string]any{"owner": map[string]any{"id": id}}
			},
			dangling: "ip_assignment a LEFT JOIN ref r ON r.type = 'client' AND r.id = a.owner_id WHERE a.owner_missing OR r.gone IS NOT false",
		},
		{
			name: "clients of an integration", owner: system.Name, user: clients.Name, collection: "/integration", uses: "/client?integration_id=%d",
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
			race.end()
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

// deletionRace is between who deletes an item and who refers to it.
type deletionRace struct {
	name, owner, user string // services: which has the item, and which has what refers to it
	collection, uses  string // paths: where items are made, and what refers to one is listed
	target            func(round int) map[string]any
	use               func(id int64, caller string) (path string, body any)
	dangling          string // SQL: what refers to an item that is gone

	t                             *testing.T
	f                             *fleet
	c                             *testkit.Client
	databases                     map[string]*pg.DB
	deleted, kept, used, repeated int
}

// request answers what came of it once somebody lived to say so.
func (r *deletionRace) request(method, path string, body any, headers ...string) (*testkit.Response, int) {
	answer, repeated := insist(r.t, r.c, method, path, body, headers...)
	if answer == nil {
		answer = &testkit.Response{}
	}
	return answer, repeated
}

func (r *deletionRace) round(round, callers int) {
	target, _ := r.request("POST", r.collection, r.target(round), "Idempotency-Key", fmt.Sprint(r.collection, " ", round))
	id := target.Want(200).ID()
	at := fmt.Sprintf("%s/%d", r.collection, id)
	var mu sync.Mutex
	made := 0
	attempt := func(caller string) {
		path, body := r.use(id, caller)
		answer, repeated := r.request("POST", path, body, "Idempotency-Key", fmt.Sprint(at, " ", caller))
		mu.Lock()
		defer mu.Unlock()
		r.repeated += repeated
		switch answer.Status {
		case http.StatusOK:
			made++
		case http.StatusUnprocessableEntity:
			if code := testkit.Decode[problem.Problem](answer).Errors[0].Code; code != "not_found" && code != "closing" {
				r.t.Errorf("%s: got the refusal %s, want not_found or closing", path, answer.Text)
			}
		default:
			r.t.Errorf("%s: got %d: %s, want 200 or 422", path, answer.Status, answer.Text)
		}
	}

	var racing sync.WaitGroup
	var deletion *testkit.Response
	ended := make(chan struct{})
	racing.Go(func() {
		defer close(ended)
		deletion, _ = r.request("DELETE", at, nil)
	})
	if round%2 == 1 { // or else the deletion mostly comes too late
		r.underWay(id, ended)
	}
	racing.Go(func() {
		time.Sleep(time.Duration(rand.IntN(30)) * time.Millisecond)
		r.crash([]string{r.owner, r.user, principal.Gateway}[round/2%3])
	})
	for caller := range callers {
		racing.Go(func() { attempt(fmt.Sprint(caller)) })
	}
	racing.Wait()

	view, _ := r.request("GET", at, nil)
	list, _ := r.request("GET", fmt.Sprintf(r.uses, id), nil)
	uses := len(testkit.Decode[[]struct{ ID int64 }](list.Want(200)))
	r.used += made
	switch deletion.Status {
	case http.StatusOK, http.StatusNotFound: // an earlier request has deleted it, whose answer was lost
		r.deleted++
		if view.Status != http.StatusNotFound || made+uses > 0 {
			r.t.Errorf(
				"%s, deleted: got %d for its view, %d accepted references and %d stored ones, want 404 and none",
				at,
				view.Status,
				made,
				uses,
			)
		}
	case http.StatusConflict:
		r.kept++
		if view.Status != http.StatusOK || made == 0 || made != uses {
			r.t.Errorf(
				"%s, not deleted (%s): got %d for its view, %d accepted references and %d stored ones, want 200 and the same number, not 0",
				at,
				deletion.Text,
				view.Status,
				made,
				uses,
			)
		}
		for deadline, n := time.Now().Add(patience), 0; made == uses; n++ { // an earlier request may be about to be refused
			if attempt(fmt.Sprint("late-", n)); time.Now().After(deadline) {
				r.t.Fatalf("%s, not deleted: got no accepted reference in %v, want one", at, patience)
			}
		}
	default:
		r.t.Errorf("the deletion of %s: got %d: %s, want 200, 404 or 409", at, deletion.Status, deletion.Text)
	}
}

// underWay waits until it is noted that the item is being deleted, or the deletion has ended.
func (r *deletionRace) underWay(id int64, ended <-chan struct{}) {
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		select {
		case <-ended:
			return
		default:
		}
		var begun bool
		err := r.databases[r.owner].QueryRow(
			r.t.Context(), "SELECT EXISTS (SELECT FROM closing WHERE type = $1 AND id = $2)", strings.Trim(r.collection, "/"), id,
		).
			Scan(&begun)
		if err != nil || time.Now().After(deadline) {
			r.t.Errorf("the deletion of %d: got no deletion lease (%v), want one", id, err)
		}
		if begun {
			return
		}
	}
}

// detach deletes an integration that has so many clients, with detach=true, while what does that is killed.
func (r *deletionRace) detach(its int) {
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
		its-1,
	)

	if answer, _ := r.request("DELETE", at+"?detach=true", nil); answer.Status != http.StatusOK {
		r.t.Fatalf("delete %s: got %d: %s, want 200", at, answer.Status, answer.Text)
	}
	if late, _ := r.request("POST", "/client", client("late")); late.Status != http.StatusUnprocessableEntity {
		r.t.Errorf("create a client during the deletion: got %d: %s, want 422", late.Status, late.Text)
	}
	for _, name := range []string{r.owner, r.user, r.owner, principal.Gateway, r.user} {
		if answer, _ := r.request("DELETE", at+"?detach=true", nil); answer.Status != http.StatusOK && answer.Status != http.StatusNotFound {
			r.t.Errorf("delete %s again: got %d: %s, want 200 or 404", at, answer.Status, answer.Text)
		}
		r.crash(name)
		if answer, _ := r.request("PATCH", one, map[string]any{"last": name}); answer.Status != http.StatusOK {
			r.t.Errorf("edit a client during the deletion: got %d: %s, want 200", answer.Status, answer.Text)
		}
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		if answer, _ := r.request("GET", at, nil); answer.Status == http.StatusNotFound {
			break
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("got %s still there after %v, want it deleted", at, patience)
		}
	}
	var left, records, recorded, deletions int
	err := r.databases[r.user].QueryRow(r.t.Context(), `
		SELECT (SELECT count(*) FROM client WHERE integration_id = $1), count(*), count(DISTINCT targets -> 0 -> 'id')
		FROM change WHERE type = 'client.edited' AND before -> 'integration' ->> 'id' = $1::text AND NOT after ? 'integration'`, id).Scan(&left, &records, &recorded)
	if err != nil || left != 0 || records != its || recorded != its {
		r.t.Errorf("got %d clients left and %d records of %d clients (%v), want 0 and %d of %d", left, records, recorded, err, its, its)
	}
	if err := r.databases[r.owner].QueryRow(r.t.Context(), "SELECT count(*) FROM change WHERE type = 'integration.deleted' "+
		"AND targets -> 0 -> 'id' = to_jsonb($1::bigint)", id).
		Scan(&deletions); err != nil ||
		deletions != 1 {
		r.t.Errorf("got %d records of the deletion (%v), want 1", deletions, err)
	}
}

// crash kills a process and starts it again.
func (r *deletionRace) crash(name string) {
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

// end looks at what is left once all have heard of all.
func (r *deletionRace) end() {
	r.t.Logf("%d were deleted, %d stayed; %d callers referred to them; %d requests were sent again", r.deleted, r.kept, r.used, r.repeated)
	if *full && (r.deleted == 0 || r.kept == 0) { // in a few rounds either may
		r.t.Errorf("got %d items deleted and %d kept, want some of both", r.deleted, r.kept)
	}
	state := func(service, sql string, args ...any) (n int64) {
		r.t.Helper()
		if err := r.databases[service].QueryRow(r.t.Context(), sql, args...).Scan(&n); err != nil {
			r.t.Fatal(err)
		}
		return n
	}
	testkit.Eventually(r.t, r.user+" has heard of all changes of "+r.owner, func() bool {
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
