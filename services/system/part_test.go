package system_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/system"
)

func TestParts(t *testing.T) {
	t.Parallel()
	c := newFixture(t)

	created := testkit.Decode[system.Part](c.Do("POST", "/part", `{"name": "32 GB DDR5", "billing_id": "RAM-32", "part_type": "Mem"}`).Want(200))
	if created.Name != "32 GB DDR5" || *created.BillingID != "RAM-32" || created.PartType.ID != 2 || created.PartType.Name != "mem" {
		t.Fatalf("got %+v, want 32 GB DDR5 of the type mem", created)
	}
	c.Do("POST", "/part", `{"name": "32 GB DDR5", "part_type": {"id": 2}}`).WantErrors("/name", "taken")
	c.Do("POST", "/part", `{"name": "x", "part_type": 99}`).WantErrors("/part_type", "not_found")
	c.Do("POST", "/part", `{"name": "x", "part_type": {"id": 0}}`).WantErrors("/part_type", "not_found")
	c.Do("POST", "/part", `{"name": "x", "part_type": []}`).WantErrors("/part_type", "type")
	c.Do("POST", "/part", `{"name": "x", "part_type": ""}`).WantErrors("/part_type", "required")
	c.Do("POST", "/part", `{}`).WantErrors("/name", "required", "/part_type", "required")
	gpu := testkit.Decode[system.Part](c.Do("POST", "/part", `{"name": "L40S", "part_type": "gpu"}`).Want(200))
	if gpu.PartType.ID <= 4 || gpu.PartType.Name != "gpu" {
		t.Fatalf("got %+v, want a new type gpu", gpu)
	}

	path := fmt.Sprintf("/part/%d", gpu.ID)
	c.Do("PATCH", path, `{"part_type": "cpu"}`).WantErrors("/name", "required")
	c.Do("PATCH", path, `{"name": "L40S", "billing_id": null, "part_type": "new"}`).WantErrors("/part_type", "not_found")
	for _, same := range []string{`"GPU"`, fmt.Sprint(gpu.PartType.ID), fmt.Sprintf(`"%d"`, gpu.PartType.ID), fmt.Sprintf(`{"id": %d}`, gpu.PartType.ID), fmt.Sprintf(`{"id": %d, "name": "gpu"}`, gpu.PartType.ID)} {
		edited := testkit.Decode[system.Part](c.Do("PATCH", path, `{"name": "L40S", "billing_id": null, "part_type": `+same+`}`).Want(200))
		if edited != gpu {
			t.Errorf("%s: got %+v, want %+v", same, edited, gpu)
		}
	}
	for _, other := range []string{`"add-on"`, `{"id": 1, "name": "gpu"}`, `4`} {
		edited := testkit.Decode[system.Part](c.Do("PATCH", path, `{"name": "L40S", "billing_id": null, "part_type": `+other+`}`).Want(200))
		if edited.PartType == gpu.PartType {
			t.Errorf("%s: got the type %+v unchanged, want another", other, edited.PartType)
		}
	}
}

func TestPartsListed(t *testing.T) {
	t.Parallel()
	c := newFixture(t)
	c.Do("POST", "/part", "name,part_type,billing_id\n32 GB DDR5,mem,RAM-32\nEPYC 9354,cpu,\nXeon 6,cpu,\n", "Content-Type", "text/csv").
		Want(200)
	for query, want := range map[string]int{
		"part_type=&q=": 3, "part_type=cpu&q=": 2, "part_type=CPU&q=xeon": 1, "part_type=1&q=": 2, "part_type=&q=ram-": 1,
		"part_type=mem&q=xeon": 0, "part_type=gpu&q=": 0, "part_type=&q=&billing_id=RAM-32": 1, "part_type=&q=&billing_id=": 0,
	} {
		if got := len(testkit.Decode[[]system.Part](c.Do("GET", "/part?"+query, nil).Want(200))); got != want {
			t.Errorf("%s: got %d parts, want %d", query, got, want)
		}
	}
	c.Do("GET", "/part?q=", nil).WantDetail(problem.BadRequest, "The query is invalid: part_type is required.")
}

// Concurrent requests with the same new part type create it once.
func TestPartTypeOnce(t *testing.T) {
	t.Parallel()
	c := newFixture(t)
	var callers sync.WaitGroup
	for i := range 16 {
		callers.Go(func() {
			c.Do("POST", "/part", fmt.Sprintf(`{"name": "part %d", "part_type": "nic"}`, i)).Want(200)
		})
	}
	callers.Wait()
	types := map[int64]bool{}
	for _, p := range testkit.Decode[[]system.Part](c.Do("GET", "/part?part_type=nic&q=", nil).Want(200)) {
		types[p.PartType.ID] = true
	}
	if len(types) != 1 {
		t.Errorf("got %d part types, want 1", len(types))
	}
}
