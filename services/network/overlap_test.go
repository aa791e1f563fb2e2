package network_test

import (
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"

	"go4.org/netipx"
	"pgregory.net/rapid"

	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/network"
)

// A second entity is refused exactly if net/netip says that it overlaps with the first, among public addresses or in
// the same group.
func TestOverlapAgainstNetip(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	c.Do("POST", "/group", `{"name": "Berlin"}`).Want(200)
	c.Do("POST", "/group", `{"name": "Bern"}`).Want(200)
	rapid.Check(t, func(t *rapid.T) {
		draw := func(cases string) (body map[string]any, spaces []netipx.IPRange) {
			body = map[string]any{"group": rapid.IntRange(1, 2).Draw(t, cases+" group")}
			within := func(family, base string, bits int) netip.Prefix {
				b := netip.MustParseAddr(base).AsSlice()
				b[len(b)-1] = rapid.Byte().Draw(t, cases+" "+family)
				a, _ := netip.AddrFromSlice(b)
				return netip.PrefixFrom(a, a.BitLen()-rapid.IntRange(0, bits).Draw(t, cases+" size")).Masked()
			}
			v4, v6 := rapid.Bool().Draw(t, cases+" has v4"), rapid.Bool().Draw(t, cases+" has v6")
			if v4 || !v6 {
				p := within("v4", rapid.SampledFrom([]string{"10.0.0.0", "192.0.2.0"}).Draw(t, cases+" v4 space"), 5)
				space := netipx.RangeOfPrefix(p)
				body["address"] = p.String()
				if rapid.Bool().Draw(t, cases+" is a range") {
					body["address"], body["v4"] = p.Addr().String(), map[string]any{"range_end": space.To().String()}
				}
				spaces = append(spaces, space)
			}
			if v6 {
				p := within("v6", rapid.SampledFrom([]string{"fd00::", "2001:db8::"}).Draw(t, cases+" v6 space"), 5)
				body["v6_address"] = p.String()
				spaces = append(spaces, netipx.RangeOfPrefix(p))
			}
			return body, spaces
		}
		one, spaces := draw("one")
		other, others := draw("other")
		overlaps := false
		for _, a := range spaces {
			for _, b := range others {
				overlaps = overlaps || a.Overlaps(b) && (one["group"] == other["group"] || !a.From().IsPrivate())
			}
		}
		first := c.Do("POST", "/entity", one).Want(200).ID()
		second := c.Do("POST", "/entity", other)
		if second.Status == 200 {
			c.Do("DELETE", fmt.Sprint("/entity/", second.ID()), nil).Want(200)
		}
		c.Do("DELETE", fmt.Sprint("/entity/", first), nil).Want(200)
		if overlaps != (second.Status == 422) {
			t.Fatalf("%v beside %v: got %d %s, want overlaps %t", other, one, second.Status, second.Text, overlaps)
		}
	})
}

// However many callers write at once, no entities overlap, and every refusal names the entity in the way.
func TestConcurrentOverlaps(t *testing.T) {
	t.Parallel()
	c, db := newService(t)
	for _, name := range []string{"Berlin", "Bern"} {
		c.Do("POST", "/group", map[string]any{"name": name}).Want(200)
	}
	const callers, each = 64, 8
	var created, refused atomic.Int64
	var all sync.WaitGroup
	for caller := range callers {
		all.Go(func() {
			for i := range each {
				body := map[string]any{"group": 1 + caller%2}
				switch n := (caller*each + i) % 24; i % 4 {
				case 0:
					body["address"] = fmt.Sprintf("198.51.100.%d/30", n&^3)
				case 1:
					body["v4"] = map[string]any{"address": fmt.Sprintf("198.51.100.%d", n), "range_end": fmt.Sprintf("198.51.100.%d", n+5)}
				case 2:
					body["address"], body["v6_address"] = fmt.Sprintf("10.0.0.%d", n), fmt.Sprintf("2001:db8::%x", n)
				default:
					body["v6_address"], body["address"] = fmt.Sprintf("2001:db8::%x/125", n&^7), fmt.Sprintf("198.51.100.%d", n)
				}
				answer, err := c.Try("POST", "/entity", body)
				if err != nil {
					t.Error(err)
					return
				}
				switch answer.Status {
				case 200:
					created.Add(1)
				case 422:
					refused.Add(1)
					for _, e := range testkit.Decode[problem.Problem](answer).Errors {
						if e.Code != "overlaps" || !namesAnEntity(e.Message) {
							t.Errorf("got the refusal %+v, want overlaps with the entity's name", e)
						}
					}
				default:
					t.Errorf("got %d: %s, want 200 or 422", answer.Status, answer.Text)
				}
			}
		})
	}
	all.Wait()
	t.Logf("%d made, %d refused", created.Load(), refused.Load())

	var deadlocks int // which are tried again, and so may not show otherwise
	if err := db.QueryRow(t.Context(), "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()").
		Scan(&deadlocks); err != nil ||
		deadlocks > 0 {
		t.Errorf("got %d deadlocks and the error %v, want none", deadlocks, err)
	}

	entities := testkit.Decode[[]network.IPEntity](c.Do("GET", "/entity", nil).Want(200))
	if int64(len(entities)) != created.Load() || created.Load()+refused.Load() != callers*each {
		t.Fatalf("got %d entities, %d made and %d refused, want as many as made, and %d answers",
			len(entities), created.Load(), refused.Load(), callers*each)
	}
	for i, one := range entities {
		for _, other := range entities[:i] {
			if overlap(one, other) {
				t.Errorf("got entity %d (%s, %v) and entity %d (%s, %v), want no overlap",
					one.ID, one.FullIP, one.V6, other.ID, other.FullIP, other.V6)
			}
		}
	}
}

func namesAnEntity(message string) bool {
	var id, group int64
	var address, name string
	n, _ := fmt.Sscanf(message, "overlaps with IP entity %d %s in IP group %d %s", &id, &address, &group, &name)
	return n == 4
}

func overlap(a, b network.IPEntity) bool {
	for _, one := range spaces(a) {
		for _, other := range spaces(b) {
			if one.Overlaps(other) && (a.Group.ID == b.Group.ID || !one.From().IsPrivate()) {
				return true
			}
		}
	}
	return false
}

func spaces(e network.IPEntity) []netipx.IPRange {
	var all []netipx.IPRange
	add := func(text string) {
		if p, err := netip.ParsePrefix(text); err == nil {
			all = append(all, netipx.RangeOfPrefix(p))
		} else if r, err := netipx.ParseIPRange(text); err == nil {
			all = append(all, r)
		} else {
			a := netip.MustParseAddr(text)
			all = append(all, netipx.IPRangeFrom(a, a))
		}
	}
	if e.V4 != nil {
		add(*e.V4.Full)
	}
	if e.V6 != nil {
		add(*e.V6.Address)
	}
	return all
}
