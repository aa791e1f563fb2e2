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

// allocate is what it takes to allocate in the group with the most free addresses: the pages of the middle one of
// several tries, of all statements together, as now and then a table grows meanwhile; and the least time. What was
// allocated is released.
func (i *installation) allocate(t *testing.T) measured {
	t.Helper()
	var group int64
	i.ask(t, "SELECT group_id FROM ip_free WHERE v4_first IS NOT NULL GROUP BY 1 ORDER BY count(*) DESC LIMIT 1", &group)
	least := time.Hour
	var all []measured
	var taken []int64
	for range tries {
		var given []network.IPEntity
		plans := i.plans(t, func() {
			started := time.Now()
			given = testkit.Decode[[]network.IPEntity](
				i.client.Do("POST", fmt.Sprintf("/group/%d/allocate", group), `{"owner": {"id": 1}}`).Want(200),
			)
			least = min(least, time.Since(started))
		})
		one := measured{items: len(given)}
		for _, p := range ofAllocation(t, plans) {
			one.pages += p.Plan.Hit + p.Plan.Read
			one.plan += p.text + "\n"
		}
		all = append(all, one)
		taken = append(taken, given[0].ID)
	}
	for _, id := range taken {
		i.client.Do("POST", fmt.Sprintf("/entity/%d/release", id), nil).Want(200)
	}
	slices.SortFunc(all, func(a, b measured) int { return cmp.Compare(a.pages, b.pages) })
	middle := all[len(all)/2]
	middle.took = least
	return middle
}

// ofAllocation are the plans of an allocation's statements: of the process that wrote the record, from the first that it
// asks to that. Jobs ask besides.
func ofAllocation(t *testing.T, plans []plan) []plan {
	t.Helper()
	asks := func(text string) func(plan) bool { return func(p plan) bool { return strings.Contains(p.Query, text) } }
	record := slices.IndexFunc(plans, asks("INSERT INTO change"))
	if record < 0 {
		t.Fatalf("got %d statements without the record of an allocation, want one with it", len(plans))
	}
	own := slices.DeleteFunc(slices.Clone(plans[:record+1]), func(p plan) bool { return p.process != plans[record].process })
	first := slices.IndexFunc(own, asks("FROM ip_group WHERE id"))
	if first < 0 || len(own)-first < 4 {
		t.Fatalf("got %d statements with the allocation from %d on, want 4 or more of it", len(own), first)
	}
	return own[first:]
}
