package scale

import (
	"fmt"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/network"
)

// allocate is what it takes to allocate in the group with the most free addresses: the most pages of several tries, of
// all statements together, and the least time. What was allocated is released.
func (i *installation) allocate(t *testing.T) measured {
	t.Helper()
	var group int64
	i.ask(t, "SELECT group_id FROM ip_free WHERE v4_first IS NOT NULL GROUP BY 1 ORDER BY count(*) DESC LIMIT 1", &group)
	worst := measured{took: time.Hour}
	var taken []int64
	for range tries {
		var given []network.IPEntity
		var took time.Duration
		plans := i.plans(t, func() {
			started := time.Now()
			given = testkit.Decode[[]network.IPEntity](i.client.Do("POST", fmt.Sprintf("/group/%d/allocate", group), `{"owner": {"id": 1}}`).Want(200))
			took = time.Since(started)
		})
		pages, text := int64(0), ""
		for _, p := range plans {
			pages += p.Plan.Hit + p.Plan.Read
			text += p.text + "\n"
		}
		if len(plans) < 3 {
			t.Fatalf("an allocation has %d statements", len(plans))
		}
		worst.items, worst.took = len(given), min(worst.took, took)
		if pages > worst.pages {
			worst.pages, worst.plan = pages, text
		}
		taken = append(taken, given[0].ID)
	}
	for _, id := range taken {
		i.client.Do("POST", fmt.Sprintf("/entity/%d/release", id), nil).Want(200)
	}
	return worst
}
