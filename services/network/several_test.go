package network_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/network"
)

// Callers that change the same entities in different orders do not deadlock.
// The entities lie in the public scope and in a group's, and both are locked.
func TestSeveralAtOnce(t *testing.T) {
	t.Parallel()
	c, db := newService(t)
	for _, name := range []string{"Berlin", "Bern"} {
		c.Do("POST", "/group", map[string]any{"name": name}).Want(200)
	}
	const entities, callers, each = 20, 6, 8
	var last atomic.Int64
	create := func() {
		n := last.Add(1)
		c.Do(
			"POST", "/entity",
			map[string]any{"group": 1 + n%2, "v4": map[string]any{"address": fmt.Sprintf([]string{"10.0.0.%d", "192.0.2.%d"}[n/2%2], n)}},
		).
			Want(200)
	}
	for range entities {
		create()
	}
	var edited, deleted atomic.Int64
	var all sync.WaitGroup
	for caller := range callers {
		all.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(caller)))
			for i := range each {
				current := testkit.Decode[[]network.IPEntity](c.Do("GET", "/entity", nil).Want(200))
				random.Shuffle(len(current), func(i, j int) { current[i], current[j] = current[j], current[i] })
				named := []string{}
				for _, entity := range current[:min(len(current), 2+random.IntN(3))] {
					named = append(named, fmt.Sprint(entity.ID))
				}
				method, body, done := "PATCH", any(map[string]any{"vlan": 1 + random.IntN(4000), "group": 1 + random.IntN(2)}), &edited
				if i%4 == 3 {
					method, body, done, named = "DELETE", nil, &deleted, named[:2]
				}
				switch answer := c.Do(method, "/entity/"+strings.Join(named, ","), body); answer.Status {
				case 200:
					if done.Add(1); method == "DELETE" {
						create()
						create()
					}
				case 404: // one has just been deleted
				default:
					t.Errorf("%s %v: got %d %s, want 200 or 404", method, named, answer.Status, answer.Text)
				}
			}
		})
	}
	all.Wait()
	if edited.Load() == 0 || deleted.Load() == 0 {
		t.Errorf("got %d edits and %d deletions, want at least one of each", edited.Load(), deleted.Load())
	}
	var deadlocks int
	if err := db.QueryRow(t.Context(), "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()").
		Scan(&deadlocks); err != nil ||
		deadlocks > 0 {
		t.Errorf("got %d deadlocks and the error %v, want none", deadlocks, err)
	}
}
