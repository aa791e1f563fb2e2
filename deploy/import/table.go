package main

import (
	"iter"
	"net/netip"
	"slices"

	"go4.org/netipx"
)

// table is the prefixes of one VRF, or of none.
type table map[netip.Prefix]*level

// level is the records of one prefix: NetBox allows several, at different sites for example.
type level struct {
	prefix  netip.Prefix
	records []prefix
	divided bool // a smaller prefix is inside
	used    bool // an address or a range is inside
}

// tablesOf gives the tables by VRF; 0 is the global one.
func tablesOf(d *dump) map[int64]table {
	tables := map[int64]table{0: {}}
	for vrf := range d.vrfs {
		tables[vrf] = table{}
	}
	for _, x := range ordered(d.prefixes) {
		t, masked := tables[x.VRF], x.Prefix.Masked()
		if t[masked] == nil {
			t[masked] = &level{prefix: masked}
		}
		t[masked].records = append(t[masked].records, x)
	}
	for _, t := range tables {
		for masked, own := range t {
			for l := range t.around(netipx.RangeOfPrefix(masked)) {
				l.divided = l.divided || l != own
			}
		}
	}
	for _, a := range d.addresses {
		tables[a.VRF].use(single(a.Address.Addr()))
	}
	for _, r := range d.ranges {
		tables[r.VRF].use(r.span())
	}
	return tables
}

func (t table) use(span netipx.IPRange) {
	for l := range t.around(span) {
		l.used = true
	}
}

// around goes through the prefixes that hold all of span, the smallest first.
func (t table) around(span netipx.IPRange) iter.Seq[*level] {
	return func(yield func(*level) bool) {
		for bits := span.From().BitLen(); bits >= 0; bits-- {
			p, _ := span.From().Prefix(bits)
			if l := t[p]; l != nil && p.Contains(span.To()) && !yield(l) {
				return
			}
		}
	}
}

// subnet is the network that span stands in: the one of its own mask or, where that is a host's or too small, the
// smallest prefix around it. A container is no network.
func (t table) subnet(span netipx.IPRange, bits int) netip.Prefix {
	own := netip.PrefixFrom(span.From(), bits).Masked()
	if !own.IsSingleIP() && own.Contains(span.To()) {
		return own
	}
	for l := range t.around(span) {
		if l.prefix.IsSingleIP() {
			continue
		}
		if slices.ContainsFunc(l.records, func(x prefix) bool { return !x.isContainer() }) {
			return l.prefix
		}
		break
	}
	return netip.Prefix{}
}

// inherited is what the smallest prefix that says anything says; nothing where records of that prefix disagree.
func inherited(levels iter.Seq[*level], says func(prefix) int64) int64 {
	for l := range levels {
		var said int64
		for _, x := range l.records {
			switch says(x) {
			case 0, said:
			default:
				if said != 0 {
					return 0
				}
				said = says(x)
			}
		}
		if said != 0 {
			return said
		}
	}
	return 0
}

// gatewayRoles are those of addresses that routers share so that hosts can use them as their gateway. "vip" and
// "anycast" say nothing of the kind: they are load balancers and name servers as often.
var gatewayRoles = []string{"vrrp", "hsrp", "glbp", "carp"}

// gatewaysOf gives the addresses by VRF, in order, that can be gateways. NetBox has no such field.
func gatewaysOf(d *dump) map[int64][]netip.Addr {
	found := map[int64][]netip.Addr{}
	for _, a := range d.addresses {
		if slices.Contains(gatewayRoles, a.Role) && a.Status != "deprecated" {
			found[a.VRF] = append(found[a.VRF], a.Address.Addr())
		}
	}
	for vrf, addrs := range found {
		slices.SortFunc(addrs, netip.Addr.Compare)
		found[vrf] = slices.Compact(addrs) // each router may have a record of the address that they share
	}
	return found
}

// gatewayIn is the one gateway in the entity's subnet. Where there are two, NetBox does not say whose each is.
func gatewayIn(gateways []netip.Addr, e Entity) netip.Addr {
	if !e.Subnet.IsValid() {
		return netip.Addr{}
	}
	first, _ := slices.BinarySearchFunc(gateways, e.Subnet.Addr(), netip.Addr.Compare)
	rest := gateways[first:]
	if len(rest) == 0 || !e.Subnet.Contains(rest[0]) || e.Span.Contains(rest[0]) {
		return netip.Addr{}
	}
	if len(rest) > 1 && e.Subnet.Contains(rest[1]) {
		return netip.Addr{}
	}
	return rest[0]
}
