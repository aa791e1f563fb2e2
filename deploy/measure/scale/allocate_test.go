package scale

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/network"
)

// allocate allocates several times in the group with the most free addresses. It returns the median of the pages that all
// statements of an allocation read, since sometimes a table grows, and the shortest time. It releases the addresses.
func (i *installation) allocate(t *testing.T) measurement {
	t.Helper()
	var group int64
	i.query(t, "SELECT group_id FROM ip_free WHERE v4_first IS NOT NULL GROUP BY 1 ORDER BY count(*) DESC LIMIT 1", &group)
	fastest := time.Hour
	var all []measurement
	var ids []int64
	for range tries {
		var allocated []network.IPEntity
		plans := i.plans(t, func() {
			started := time.Now()
			allocated = testkit.Decode[[]network.IPEntity](
				i.client.Do("POST", fmt.Sprintf("/group/%d/allocate", group), `{"owner": {"id": 1}}`).Want(200),
			)
			fastest = min(fastest, time.Since(started))
		})
		one := measurement{items: len(allocated)}
		for _, p := range allocationPlans(t, plans) {
			one.pages += p.Plan.Hit + p.Plan.Read
			one.plan += p.text + "\n"
		}
		all = append(all, one)
		ids = append(ids, allocated[0].ID)
	}
	for _, id := range ids {
		i.client.Do("POST", fmt.Sprintf("/entity/%d/release", id), nil).Want(200)
	}
	slices.SortFunc(all, func(a, b measurement) int { return cmp.Compare(a.pages, b.pages) })
	middle := all[len(all)/2]
	middle.elapsed = fastest
	return middle
}

// allocationPlans returns the plans of an allocation's statements: those of the process that wrote the record, from its first
// one to the record. Other processes are jobs.
func allocationPlans(t *testing.T, plans []plan) []plan {
	t.Helper()
	contains := func(text string) func(plan) bool { return func(p plan) bool { return strings.Contains(p.Query, text) } }
	record := slices.IndexFunc(plans, contains("INSERT INTO change"))
	if record < 0 {
		t.Fatalf("got %d statements without the record of an allocation, want one with it", len(plans))
	}
	allocation := slices.DeleteFunc(slices.Clone(plans[:record+1]), func(p plan) bool { return p.process != plans[record].process })
	first := slices.IndexFunc(allocation, contains("FROM ip_group WHERE id"))
	if first < 0 || len(allocation)-first < 4 {
		t.Fatalf("got %d statements with the allocation from %d on, want 4 or more of it", len(allocation), first)
	}
	return allocation[first:]
}
