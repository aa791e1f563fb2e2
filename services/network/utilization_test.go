package network_test

import (
	"fmt"
	"net/netip"
	"testing"

	"pgregory.net/rapid"

	"github.com/ironplane/ironplane/pkg/pg"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/network"
)

func TestUtilization(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	c.Do("POST", "/group", `{"name": "Berlin"}`).Want(200)
	want := func(text string) {
		t.Helper()
		if got := c.Do("GET", "/group/1/utilization", nil).Want(200).Text; got != text+"\n" {
			t.Errorf("%s, want %s", got, text)
		}
	}
	want(`{"used":0,"free":0,"largest_free_block":{}}`)
	c.Do("POST", "/group/1/entity/bulk", `{"from": "10.0.0.1", "to": "10.0.0.40"}`).Want(200)
	want(`{"used":0,"free":40,"largest_free_block":{"v4":"10.0.0.16/28"}}`)
	c.Do("POST", "/group/1/allocate", `{"count": 17, "owner": {"id": 1}}`).Want(200)
	want(`{"used":17,"free":23,"largest_free_block":{"v4":"10.0.0.24/29"}}`)
	c.Do("POST", "/entity", `{"group": 1, "v4": {"address": "10.0.0.48", "range_end": "10.0.0.79"}, "v6_address": "2001:db8::7"}`).Want(200) // a range is no block
	want(`{"used":17,"free":24,"largest_free_block":{"v4":"10.0.0.24/29","v6":"2001:db8::7"}}`)
	c.Do("POST", "/entity", `{"group": 1, "address": "10.0.1.0/24"}`).Want(200)
	c.Do("POST", "/entity", `{"group": 1, "address": "10.0.2.0/23"}`).Want(200)
	c.Do("POST", "/entity", `{"group": 1, "v6_address": "2001:db8:1::/64"}`).Want(200)
	want(`{"used":17,"free":27,"largest_free_block":{"v4":"10.0.2.0/23","v6":"2001:db8:1::/64"}}`)
	c.Do("GET", "/group/9/utilization", nil).Want(404)
}

// What is said to be the largest free block can be allocated, and no larger one can.
func TestLargestFreeBlock(t *testing.T) {
	t.Parallel()
	c, db := newService(t)
	rapid.Check(t, func(rt *rapid.T) {
		group := c.Do("POST", "/group", map[string]any{"name": rapid.StringMatching(`[a-z]{12}`).Draw(rt, "name")}).Want(200).ID()
		states := rapid.SliceOfN(rapid.SampledFrom([]string{"free", "free", "free", "free", "used", "none"}), 64, 64).Draw(rt, "states")
		err := db.Change(t.Context(), func(tx *pg.Tx) error {
			tx.Unrecorded("a test")
			_, err := tx.Exec(t.Context(), `
				WITH wanted AS (SELECT '10.0.0.0'::inet + (n - 1) AS address, state FROM unnest($2::text[]) WITH ORDINALITY AS w (state, n) WHERE state <> 'none'
					UNION ALL SELECT '10.0.1.0', 'free'),
				made AS (INSERT INTO ip_entity (group_id, v4_first, v4_last) SELECT $1, address, address FROM wanted RETURNING id, v4_first)
				INSERT INTO ip_assignment (entity_id, group_id, owner_id) SELECT id, $1, 5 FROM made JOIN wanted ON address = v4_first WHERE state = 'used'`, group, states)
			return err
		})
		if err != nil {
			rt.Fatal(err)
		}
		said := testkit.Decode[network.Utilization](c.Do("GET", fmt.Sprintf("/group/%d/utilization", group), nil).Want(200)).LargestFreeBlock.V4
		block, err := netip.ParsePrefix(said)
		if err != nil {
			block = netip.PrefixFrom(netip.MustParseAddr(said), 32)
		}
		path, owner := fmt.Sprintf("/group/%d/allocate", group), map[string]any{"id": 1}
		c.Do("POST", path, map[string]any{"prefix": block.Bits() - 1, "owner": owner}).Want(422)
		if got := fullIPs(c.Do("POST", path, map[string]any{"prefix": block.Bits(), "owner": owner})); got[0] != block.Addr().String() || len(got) != 1<<(32-block.Bits()) {
			rt.Fatalf("%s was said, %v allocated", said, got)
		}
	})
}
