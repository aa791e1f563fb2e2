package network_test

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"go4.org/netipx"
	"pgregory.net/rapid"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
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
			t.Errorf("got %s, want %s", got, text)
		}
	}
	want(`{"used":0,"free":0,"reserved":0,"quarantined":0,"largest_free_block":{}}`)
	c.Do("POST", "/group/1/entity/bulk", `{"from": "10.0.0.1", "to": "10.0.0.40"}`).Want(200)
	want(`{"used":0,"free":40,"reserved":0,"quarantined":0,"largest_free_block":{"v4":"10.0.0.16/28"}}`)
	c.Do("POST", "/group/1/allocate", `{"count": 17, "owner": {"id": 1}}`).Want(200)
	want(`{"used":17,"free":23,"reserved":0,"quarantined":0,"largest_free_block":{"v4":"10.0.0.24/29"}}`)
	c.Do("POST", "/entity", `{"group": 1, "v4": {"address": "10.0.0.48", "range_end": "10.0.0.79"}, "v6_address": "2001:db8::7"}`).
		Want(200)
		// a range is not a block
	want(`{"used":17,"free":24,"reserved":0,"quarantined":0,"largest_free_block":{"v4":"10.0.0.24/29","v6":"2001:db8::7"}}`)
	c.Do("POST", "/entity", `{"group": 1, "address": "10.0.1.0/24"}`).Want(200)
	c.Do("POST", "/entity", `{"group": 1, "address": "10.0.2.0/23"}`).Want(200)
	c.Do("POST", "/entity", `{"group": 1, "v6_address": "2001:db8:1::/64"}`).Want(200)
	want(`{"used":17,"free":27,"reserved":0,"quarantined":0,"largest_free_block":{"v4":"10.0.2.0/23","v6":"2001:db8:1::/64"}}`)
	c.Do("POST", "/group", `{"name": "Bern"}`).Want(200)
	c.Do("POST", "/group/2/entity/bulk", `{"from": "10.0.0.1", "to": "10.0.15.255"}`).Want(200)
	if got := c.Do("GET", "/group/2/utilization", nil).
		Want(200).
		Text; got != `{"used":0,"free":4095,"reserved":0,"quarantined":0,"largest_free_block":{"v4":"10.0.4.0/22"}}`+"\n" { // one call allocates no more
		t.Errorf("got %s, want 4095 free entities and the largest free block 10.0.4.0/22", got)
	}
	c.Do("GET", "/group/9/utilization", nil).Want(404)
}

// During any changes, and folded or not, utilization agrees with the entities of the group. The largest free block can be
// allocated, and no larger one can.
func TestUtilizationStaysExact(t *testing.T) {
	t.Parallel()
	c, db := newService(t)
	service := network.New(db, box, agreeing{})
	rapid.Check(t, func(rt *rapid.T) {
		group := c.Do("POST", "/group", map[string]any{"name": rapid.StringMatching(`[a-z]{12}`).Draw(rt, "name")}).Want(200).ID()
		path, owner := fmt.Sprint("/group/", group), map[string]any{"id": 1}
		family := rapid.SampledFrom([]string{"v4", "v6"}).Draw(rt, "family")
		base := map[string]netip.Addr{
			"v4": netip.MustParseAddr("10.0.3.192"), "v6": netip.MustParseAddr("fd00::3c0"),
		}[family] // near the end of a chunk
		address := func(label string, limit int) netip.Addr { return plus(base, rapid.IntRange(0, limit).Draw(rt, label)) }
		does := map[string]func(){
			"create": func() {
				from := address("from", 160)
				to := plus(from, rapid.SampledFrom([]int{0, 3, 31, 70}).Draw(rt, "more"))
				c.Do("POST", path+"/entity/bulk", map[string]any{"from": from, "to": to}) // or it overlaps
			},
			"create a prefix": func() {
				bits := base.BitLen() - rapid.IntRange(1, 4).Draw(rt, "size")
				c.Do(
					"POST",
					"/entity",
					map[string]any{"group": group, family: map[string]any{"address": netip.PrefixFrom(address("first", 160), bits).Masked()}},
				)
			},
			"assign": func() {
				testkit.Execute(t, db, `INSERT INTO ip_assignment (entity_id, group_id, owner_id)
					SELECT id, group_id, 5 FROM ip_entity WHERE group_id = $1 AND coalesce(v4_first, v6_first) BETWEEN $2 AND $3 ON CONFLICT DO NOTHING`,
					group, address("from", 80), address("to", 160))
			},
			"release": func() {
				testkit.Execute(
					t,
					db,
					`DELETE FROM ip_assignment USING ip_entity e WHERE entity_id = e.id AND e.group_id = $1 AND coalesce(v4_first, v6_first) BETWEEN $2 AND $3`,
					group,
					address("from", 80),
					address("to", 160),
				)
			},
			"delete": func() {
				testkit.Execute(
					t,
					db,
					"DELETE FROM ip_entity WHERE group_id = $1 AND coalesce(v4_first, v6_first) BETWEEN $2 AND $3",
					group,
					address("from", 80),
					address("to", 160),
				)
			},
			"fold": func() {
				if err := service.FoldCounts(t.Context()); err != nil {
					rt.Fatal(err)
				}
			},
		}
		for _, name := range rapid.SliceOfN(rapid.SampledFrom(slices.Sorted(maps.Keys(does))), 2, 12).Draw(rt, "what") {
			does[name]()
		}
		reported, counted := c.Do("GET", path+"/utilization", nil).Want(200), utilization(t, db, group)
		if reported.Text != testkit.JSON(counted)+"\n" {
			rt.Fatalf("got %s, want %s", reported.Text, testkit.JSON(counted))
		}
		text := counted.LargestFreeBlock.V4 + counted.LargestFreeBlock.V6
		if text == "" {
			return
		}
		block, err := netip.ParsePrefix(text)
		if err != nil {
			block = netip.PrefixFrom(netip.MustParseAddr(text), base.BitLen())
		}
		c.Do("POST", path+"/allocate", map[string]any{"prefix": block.Bits() - 1, "family": family, "owner": owner}).Want(422)
		got := testkit.Decode[[]network.IPEntity](
			c.Do("POST", path+"/allocate", map[string]any{"prefix": block.Bits(), "family": family, "owner": owner}).Want(200),
		)
		if first := strings.Split(got[0].FullIP, "/")[0]; first != block.Addr().String() {
			rt.Fatalf("got a block from %s on, want the largest free block, %s", first, text)
		}
	})
}

func plus(a netip.Addr, n int) netip.Addr {
	for range n {
		a = a.Next()
	}
	return a
}

// utilization computes the utilization of a group from its entities, which are addresses and prefixes of one family.
func utilization(t *testing.T, db *pg.DB, group int64) (u network.Utilization) {
	t.Helper()
	found, err := db.Query(t.Context(), `
		SELECT coalesce(set_masklen(v4_first, coalesce(v4_bits, 32)), set_masklen(v6_first, coalesce(v6_bits, 128))), EXISTS (SELECT FROM ip_assignment WHERE entity_id = id)
		FROM ip_entity WHERE group_id = $1`, group)
	if err != nil {
		t.Fatal(err)
	}
	var addresses netipx.IPSetBuilder
	var blocks []netip.Prefix
	var space netip.Prefix
	var used bool
	_, err = pgx.ForEachRow(found, []any{&space, &used}, func() error {
		switch {
		case used:
			u.Used++
			return nil
		case space.IsSingleIP():
			addresses.AddPrefix(space)
		default:
			blocks = append(blocks, space)
		}
		u.Free++
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	set, err := addresses.IPSet()
	if err != nil {
		t.Fatal(err)
	}
	blocks = append(blocks, set.Prefixes()...)
	if len(blocks) == 0 {
		return u
	}
	block := slices.MinFunc(blocks, func(a, b netip.Prefix) int {
		return cmp.Or(cmp.Compare(a.Bits(), b.Bits()), a.Addr().Compare(b.Addr()))
	})
	text := block.String()
	if block.IsSingleIP() {
		text = block.Addr().String()
	}
	if block.Addr().Is4() {
		u.LargestFreeBlock.V4 = text
	} else {
		u.LargestFreeBlock.V6 = text
	}
	return u
}
