package importer

import (
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"go4.org/netipx"
	"pgregory.net/rapid"

	"github.com/ironplane/ironplane/deploy/cli/importer/source"
)

// drawPlan returns a random address plan in a small address space, so that many records overlap.
func drawPlan(t *rapid.T) *source.Plan {
	plan := &source.Plan{
		System: "NetBox", Sites: map[int64]string{1: "A", 2: "B"}, VRFs: map[int64]string{1: "Red", 2: "Blue"},
		VLANs: map[int64]source.VLAN{1: {ID: 100}, 2: {ID: 200}}, Tenants: map[int64]string{1: "T", 2: "U"}, Devices: map[int64]string{1: "d"},
		Customers: map[int64]source.Customer{},
	}
	if rapid.Bool().Draw(t, "clients") {
		plan.Customers[1] = source.Customer{Email: "t@example.com"}
	}
	bases := rapid.SampledFrom([]netip.Addr{
		netip.MustParseAddr("10.0.0.0"), netip.MustParseAddr("198.51.100.0"), netip.MustParseAddr("100.127.255.240"),
		netip.MustParseAddr("2001:db8::"), netip.MustParseAddr("fd00::"), netip.MustParseAddr("::ffff:10.0.0.0"),
	})
	reference := rapid.Int64Range(0, 2)
	drawAddress := func(base netip.Addr) netip.Addr {
		a := base
		for range rapid.IntRange(0, 31).Draw(t, "offset") {
			a = a.Next()
		}
		return a
	}
	drawBits := func(a netip.Addr) int {
		return a.BitLen() - rapid.SampledFrom([]int{0, 0, 1, 2, 3, 4, 5, 8, 26}).Draw(t, "host bits")
	}
	drawSpace := func(model string, kind source.Kind, n int64, span netipx.IPRange, bits int) source.Space {
		return source.Space{
			Source: source.Source{Model: model, PK: n}, Kind: kind, Span: span, Bits: bits, VRF: reference.Draw(t, "vrf"),
			Tenant: reference.Draw(t, "tenant"), Status: "active",
		}
	}
	for n := range rapid.Int64Range(0, 12).Draw(t, "prefixes") {
		a := drawAddress(bases.Draw(t, "base"))
		prefix := netip.PrefixFrom(a, drawBits(a)).Masked()
		s := drawSpace("prefix", source.Prefix, n+1, netipx.RangeOfPrefix(prefix), prefix.Bits())
		s.Site, s.VLAN = reference.Draw(t, "site"), reference.Draw(t, "vlan")
		s.IsContainer, s.IsPool = rapid.IntRange(0, 3).Draw(t, "container") == 0, rapid.IntRange(0, 2).Draw(t, "pool") == 0
		if rapid.Bool().Draw(t, "named") {
			s.Roles = []string{"customer"}
		}
		plan.Prefixes = append(plan.Prefixes, s)
	}
	for n := range rapid.Int64Range(0, 6).Draw(t, "ranges") {
		base := bases.Draw(t, "base")
		ends := []netip.Addr{drawAddress(base), drawAddress(base)}
		slices.SortFunc(ends, netip.Addr.Compare)
		plan.Ranges = append(plan.Ranges, drawSpace("range", source.Range, n+1, netipx.IPRangeFrom(ends[0], ends[1]), drawBits(base)))
	}
	for n := range rapid.Int64Range(0, 20).Draw(t, "addresses") {
		a := drawAddress(bases.Draw(t, "base"))
		s := drawSpace("address", source.Address, n+1, source.SingleAddress(a), drawBits(a))
		s.IsGateway = rapid.Bool().Draw(t, "gateway")
		plan.Addresses = append(plan.Addresses, s)
	}
	return plan
}

// TestPlanProperties shows for random plans that entities do not overlap, and that none is available whose space is in use.
// Every record is planned or skipped, and the API's rules hold.
func TestPlanProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		from := drawPlan(t)
		stock := selectors{{"role", "customer"}}
		plan := newPlan(from, stock)

		for i, a := range plan.Entities {
			for _, b := range plan.Entities[:i] {
				if a.Span.Overlaps(b.Span) && (a.Group == b.Group || !isPrivate(a.Span) || !isPrivate(b.Span)) {
					t.Fatalf("got %s and %s, want no overlap", &a, &b)
				}
			}
		}

		var all []source.Source
		seen := map[source.Source]bool{}
		for _, list := range [][]source.Space{from.Prefixes, from.Ranges, from.Addresses} {
			for _, s := range list {
				all = append(all, s.Source)
			}
		}
		for _, e := range plan.Entities {
			seen[e.Source] = true
		}
		for _, l := range plan.Skipped {
			seen[l.Source] = true
		}
		for _, s := range all {
			if !seen[s] {
				t.Fatalf("got %s neither planned nor skipped, want one of both", s)
			}
		}
		held := map[string]bool{"A": true, "B": true}
		for _, e := range plan.Entities {
			held[e.Group] = true
			accept(t, &e)
			refuseStockInUse(t, from, stock, &e)
		}
		groups := map[string]bool{}
		for _, group := range plan.Groups {
			groups[group] = true
		}
		if !maps.Equal(held, groups) {
			t.Fatalf("got the groups %v, want those of sites and entities %v", groups, held)
		}
		if second := newPlan(from, stock); !reflect.DeepEqual(plan, second) {
			t.Fatalf("got %v when planned again, want %v", second, plan)
		}
	})
}

// refuseStockInUse fails if an available entity is in use, or no part of stock. It asks each record by itself, and so does
// not share the planner's way to find out. Private space of another VRF or site is other space.
func refuseStockInUse(t *rapid.T, from *source.Plan, stock selectors, e *Entity) {
	if e.Status != available {
		return
	}
	var pool *source.Space
	for i, s := range from.Prefixes {
		if s.Source == e.Source {
			pool = &from.Prefixes[i]
		}
	}
	if pool == nil || pool.IsContainer || !covers(pool.Span, e.Span) || !pool.IsPool && !stock[0].matches(pool) {
		t.Fatalf("got %s, want only parts of pools to be available", e)
	}
	for _, s := range slices.Concat(from.Ranges, from.Addresses) {
		if s.Span.Overlaps(e.Span) && (s.VRF == pool.VRF || !isPrivate(e.Span)) && !s.Span.From().Is4In6() {
			t.Fatalf("got %s, want it not available: %s has it", e, s.Source)
		}
	}
	for _, s := range from.Prefixes {
		isInside := s.Span != pool.Span && covers(pool.Span, s.Span)
		isStock := (s.IsPool || stock[0].matches(&s)) && !s.IsContainer
		isSameSpace := s.Span == pool.Span && !isStock
		if s.Span.Overlaps(e.Span) && s.VRF == pool.VRF && (isInside || isSameSpace) {
			t.Fatalf("got %s, want it not available: %s has it", e, s.Source)
		}
	}
}

// accept checks an entity by the rules of the API.
func accept(t *rapid.T, e *Entity) {
	switch {
	case !e.Span.IsValid() || e.Span.From().Is4In6():
		t.Fatalf("got %s, want an IPv4 or IPv6 address", e)
	case isPrivate(source.SingleAddress(e.Span.From())) != isPrivate(e.Span):
		t.Fatalf("got %s, want all of it private or all public", e)
	case e.Subnet.IsValid() && (!e.Subnet.Contains(e.Span.From()) || !e.Subnet.Contains(e.Span.To())):
		t.Fatalf("got %s, want it in its subnet %s", e, e.Subnet)
	case e.Gateway.IsValid() && (!e.Subnet.Contains(e.Gateway) || e.Span.Contains(e.Gateway)):
		t.Fatalf("got %s with gateway %s, want a gateway in %s and outside the range", e, e.Gateway, e.Subnet)
	case e.Span.From().Is6() && strings.Contains(e.Address(), "-"):
		t.Fatalf("got %s, want no range of IPv6", e)
	case (e.Status == assigned) != (e.Owner != source.Customer{}) || (e.Status == reserved) != (e.Note != ""):
		t.Fatalf("got %s, want an owner if it is assigned, and a note if it is reserved", e)
	}
	span, ok := parseSpan(e.Address())
	if !ok || span != e.Span {
		t.Fatalf("%s: got %s read back, want %s", e, span, e.Span)
	}
}
