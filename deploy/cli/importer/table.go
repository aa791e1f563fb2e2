package importer

import (
	"iter"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/ironplane/ironplane/deploy/cli/importer/source"
)

// table holds the prefixes of one VRF, or of the global table.
type table map[netip.Prefix]*level

// level holds the records of one prefix. NetBox allows several, for example at different sites.
type level struct {
	prefix  netip.Prefix
	records []*source.Space
	divided bool // contains a smaller prefix
	used    bool // contains an address or a range
	isStock bool // all records of it become stock
}

// buildTables returns the tables by VRF. The global table has the key 0.
func buildTables(plan *source.Plan, isStock func(*source.Space) bool) map[int64]table {
	tables := map[int64]table{0: {}}
	for vrf := range plan.VRFs {
		tables[vrf] = table{}
	}
	for i := range plan.Prefixes {
		s := &plan.Prefixes[i]
		prefix, _ := s.Span.Prefix()
		t := tables[s.VRF]
		if t[prefix] == nil {
			t[prefix] = &level{prefix: prefix, isStock: true}
		}
		t[prefix].records = append(t[prefix].records, s)
		t[prefix].isStock = t[prefix].isStock && isStock(s)
	}
	for _, t := range tables {
		for prefix, own := range t {
			for l := range t.around(netipx.RangeOfPrefix(prefix)) {
				l.divided = l.divided || l != own
			}
		}
	}
	for _, list := range [][]source.Space{plan.Addresses, plan.Ranges} {
		for i := range list {
			for l := range tables[list[i].VRF].around(list[i].Span) {
				l.used = true
			}
		}
	}
	return tables
}

// around yields the prefixes that contain all of span, the smallest first.
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

// subnet returns the network of span: that of its own mask, or the smallest prefix around span if the mask is a single
// address or too small. A container is not a network. The result is invalid if the network is unknown.
func (t table) subnet(span netipx.IPRange, bits int) netip.Prefix {
	own := netip.PrefixFrom(span.From(), bits).Masked()
	if !own.IsSingleIP() && own.Contains(span.To()) {
		return own
	}
	for l := range t.around(span) {
		if l.prefix.IsSingleIP() {
			continue
		}
		if slices.ContainsFunc(l.records, func(x *source.Space) bool { return !x.IsContainer }) {
			return l.prefix
		}
		break
	}
	return netip.Prefix{}
}

// inherit returns the value of the smallest prefix that has one. It returns 0 if the records of that prefix disagree.
func inherit(levels iter.Seq[*level], read func(*source.Space) int64) int64 {
	for l := range levels {
		var found int64
		for _, x := range l.records {
			switch read(x) {
			case 0, found:
			default:
				if found != 0 {
					return 0
				}
				found = read(x)
			}
		}
		if found != 0 {
			return found
		}
	}
	return 0
}

// findGateways returns the possible gateways of each VRF, sorted.
func findGateways(plan *source.Plan) map[int64][]netip.Addr {
	found := map[int64][]netip.Addr{}
	for _, a := range plan.Addresses {
		if a.IsGateway {
			found[a.VRF] = append(found[a.VRF], a.Span.From())
		}
	}
	for vrf, addrs := range found {
		slices.SortFunc(addrs, netip.Addr.Compare)
		found[vrf] = slices.Compact(addrs) // each router may have a record of the shared address
	}
	return found
}

// findGateway returns the only gateway in the entity's subnet. With two, the export does not say which of them an entity
// uses, so the result is invalid.
func findGateway(gateways []netip.Addr, e Entity) netip.Addr {
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
