package main

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"go4.org/netipx"
)

// Plan lists the items that an import creates, and the records that it skips. Every prefix, range and address of NetBox
// is in Entities or in Skipped, exactly once.
type Plan struct {
	Groups   []string  // first one for each site, by name, then those of space without a site
	Entities []Entity  // by group, then by address
	Skipped  []Skipped // by reason, then by record
}

// Entity is an IP entity to create.
type Entity struct {
	Source   Source
	Group    string
	Span     netipx.IPRange
	IsPrefix bool         // false: written as an address, or as first and last address
	Subnet   netip.Prefix // of an address or a range, if known
	Gateway  netip.Addr   // if known
	VLAN     int32        // 0: none
	Nickname string
	Owner    customer // zero if the tenant becomes no client
}

// Address returns the entity's addresses as the API writes them.
func (e Entity) Address() string {
	if isSingle(e.Span) {
		return e.Span.From().String()
	}
	if p, ok := e.Span.Prefix(); ok && e.IsPrefix {
		return p.String()
	}
	return e.Span.String()
}

// Skipped is a record that is not imported.
type Skipped struct {
	Source Source
	Name   string
	Reason string // a constant text, by which the report counts
	Detail string // the particulars of this record
}

// newPlan decides which items to create for a dump.
//
// Each site becomes a group. Space without a site goes to a group for its VRF, or to one for the rest. If the space of a
// VRF at a site overlaps with private addresses in the site's group, all of it goes to a group of its own.
func newPlan(d *dump) Plan {
	p := planner{dump: d, tables: buildTables(d), gateways: findGateways(d)}
	p.planRanges()
	p.planAddresses()
	p.planPrefixes()
	p.skipUnused()
	return p.resolve()
}

// planner collects claims and skipped records before it resolves overlaps.
type planner struct {
	dump     *dump
	tables   map[int64]table
	gateways map[int64][]netip.Addr
	claims   []claim
	skipped  []Skipped
}

// claim is an entity that is planned unless its space overlaps with an earlier one.
type claim struct {
	Entity
	location location
}

// location is the site and VRF of a record in NetBox. 0 means no site, or the global table.
type location struct{ site, vrf int64 }

func (h location) compare(other location) int {
	return cmp.Or(cmp.Compare(h.site, other.site), cmp.Compare(h.vrf, other.vrf))
}

func (p *planner) skip(source Source, name, reason, detail string) {
	p.skipped = append(p.skipped, Skipped{source, name, reason, detail})
}

// planRanges plans the ranges. An IPv6 range must be a prefix.
func (p *planner) planRanges() {
	for pk, r := range sorted(p.dump.ranges) {
		e := Entity{Source: Source{modelRange, pk}, Span: r.span(), Nickname: r.Description, Owner: p.dump.customers[r.Tenant]}
		if r.Start.Addr().Is6() {
			if _, e.IsPrefix = e.Span.Prefix(); !e.IsPrefix {
				p.skip(e.Source, e.Address(), "IPv6 range that is not a prefix; an IPv6 entity is an address or a prefix", "")
				continue
			}
		}
		p.claim(e, r.Start.Bits(), location{vrf: r.VRF}, 0)
	}
}

// planAddresses plans the addresses. The nickname is the DNS name, or the description.
func (p *planner) planAddresses() {
	for pk, a := range sorted(p.dump.addresses) {
		e := Entity{
			Source:   Source{modelAddress, pk},
			Span:     singleAddress(a.Address.Addr()),
			Nickname: cmp.Or(a.DNSName, a.Description),
			Owner:    p.dump.customers[a.Tenant],
		}
		p.claim(e, a.Address.Bits(), location{vrf: a.VRF}, 0)
	}
}

// planPrefixes plans the prefixes that contain no smaller prefix, address or range.
func (p *planner) planPrefixes() {
	for pk, x := range sorted(p.dump.prefixes) {
		e := Entity{
			Source:   Source{modelPrefix, pk},
			Span:     netipx.RangeOfPrefix(x.Prefix),
			IsPrefix: true,
			Nickname: x.Description,
			Owner:    p.dump.customers[x.Tenant],
		}
		l := p.tables[x.VRF][x.Prefix.Masked()]
		switch {
		case x.isContainer() && !l.divided && !l.used:
			p.skip(e.Source, e.Address(), "empty container", "")
		case x.isContainer():
			p.skip(e.Source, e.Address(), "container; its content is imported", "")
		case l.divided:
			p.skip(e.Source, e.Address(), "prefix with smaller prefixes, which are imported", "")
		case l.used:
			p.skip(e.Source, e.Address(), "prefix with addresses or ranges, which are imported", "")
		default:
			p.claim(e, x.Prefix.Bits(), location{x.site(), x.VRF}, x.VLAN)
		}
	}
}

// skipUnused skips VLANs without a prefix, and tenants without a client.
func (p *planner) skipUnused() {
	named := map[int64]bool{}
	for _, x := range p.dump.prefixes {
		named[x.VLAN] = true
	}
	for pk, v := range sorted(p.dump.vlans) {
		if !named[pk] {
			p.skip(
				Source{modelVLAN, pk},
				fmt.Sprintf("%d %s", v.VID, v.Name),
				"VLAN without a prefix; in Ironplane a VLAN is a number of an entity",
				"",
			)
		}
	}
	for pk, t := range sorted(p.dump.tenants) {
		if p.dump.customers[pk] == (customer{}) {
			p.skip(Source{modelTenant, pk}, t.Name, "tenant that is not in the file of --clients; its entities have no owner", "")
		}
	}
}

// claim adds an entity with the subnet and gateway that follow from the prefixes around it. An entity without a site or
// VLAN inherits that, too.
func (p *planner) claim(e Entity, bits int, at location, vlan int64) {
	switch {
	case e.Span.From().Is4In6():
		p.skip(e.Source, e.Address(), "IPv4 written as IPv6", "")
		return
	case isMixed(e.Span):
		p.skip(e.Source, e.Address(), "contains private and public addresses", "")
		return
	}
	t := p.tables[at.vrf]
	at.site = cmp.Or(at.site, inherit(t.around(e.Span), prefix.site))
	vlan = cmp.Or(vlan, inherit(t.around(e.Span), func(x prefix) int64 { return x.VLAN }))
	e.VLAN = p.dump.vlans[vlan].VID
	if e.Nickname = strings.TrimSpace(e.Nickname); e.Nickname == e.Address() {
		e.Nickname = "" // an entity without a nickname is shown by its address, too
	}
	if !e.IsPrefix || isSingle(e.Span) {
		e.Subnet = t.subnet(e.Span, bits)
		e.Gateway = findGateway(p.gateways[at.vrf], e)
	}
	p.claims = append(p.claims, claim{e, at})
}

// resolve gives every claim a group, and skips claims that overlap with others.
func (p *planner) resolve() Plan {
	sites := labels(p.dump.sites, func(pk int64, s site) string {
		return cmp.Or(strings.TrimSpace(s.Name), s.Slug, Source{modelSite, pk}.String())
	})
	vrfs := labels(p.dump.vrfs, func(_ int64, v vrf) string { return "VRF " + strings.TrimSpace(v.Name) })

	byHome := map[location][]claim{}
	for _, c := range p.claims {
		byHome[c.location] = append(byHome[c.location], c)
	}
	var public []claim
	kept := map[string][]claim{}
	for _, at := range slices.SortedFunc(maps.Keys(byHome), location.compare) {
		group := sites[at.site]
		switch {
		case at == location{}:
			group = "NetBox: no site"
		case at.site == 0:
			group = "NetBox: " + vrfs[at.vrf]
		case at.vrf != 0 && slices.ContainsFunc(byHome[at], func(c claim) bool { return overlaps(kept[group], c.Span) }):
			group += ": " + vrfs[at.vrf]
		}
		var private []claim
		for _, c := range byHome[at] {
			c.Group = group
			if isPrivate(c.Span) {
				private = append(private, c)
			} else {
				public = append(public, c)
			}
		}
		kept[group] = p.addClaims(kept[group], private)
	}
	kept[""] = p.addClaims(nil, public)

	plan := Plan{Groups: slices.Sorted(maps.Values(sites)), Skipped: p.skipped}
	extra := map[string]bool{}
	for _, claims := range kept {
		for _, c := range claims {
			plan.Entities = append(plan.Entities, c.Entity)
			extra[c.Group] = true
		}
	}
	for _, name := range plan.Groups {
		delete(extra, name)
	}
	plan.Groups = append(plan.Groups, slices.Sorted(maps.Keys(extra))...)
	plan.sort()
	return plan
}

// addClaims adds claims to the kept ones, sorted by address, and skips those that overlap with one of them. Ranges come
// before the addresses inside, and both before prefixes, which only describe space that may be in use.
func (p *planner) addClaims(kept, claims []claim) []claim {
	slices.SortFunc(claims, bySpan)
	for _, model := range []string{modelRange, modelAddress, modelPrefix} {
		var fresh []claim
		for _, c := range claims {
			if c.Source.Model != model {
				continue
			}
			other, found := findOverlap(kept, c.Span)
			if !found {
				other, found = findOverlap(fresh, c.Span)
			}
			if found {
				p.skip(c.Source, c.Address(), describeOverlap(c, other), fmt.Sprintf("%s, %s", other.Address(), other.Source))
				continue
			}
			fresh = append(fresh, c)
		}
		kept = append(kept, fresh...)
		slices.SortFunc(kept, bySpan)
	}
	return kept
}

func bySpan(a, b claim) int {
	return cmp.Or(a.Span.From().Compare(b.Span.From()), cmp.Compare(a.Source.PK, b.Source.PK))
}

// findOverlap returns the first claim that overlaps with span. claims must be sorted and free of overlaps.
func findOverlap(claims []claim, span netipx.IPRange) (claim, bool) {
	i, _ := slices.BinarySearchFunc(claims, span.From(), func(c claim, from netip.Addr) int { return c.Span.To().Compare(from) })
	if i == len(claims) || !claims[i].Span.Overlaps(span) {
		return claim{}, false
	}
	return claims[i], true
}

func overlaps(claims []claim, span netipx.IPRange) bool {
	_, found := findOverlap(claims, span)
	return found
}

// describeOverlap returns the reason why c is skipped.
func describeOverlap(c, other claim) string {
	reason := "overlaps another record"
	switch {
	case c.Span == other.Span:
		reason = "same address as another record"
	case other.Source.Model == modelRange && covers(other.Span, c.Span):
		reason = "inside an imported range"
	}
	if c.location != other.location {
		reason += " at another site or in another VRF; an installation has each public address once"
	}
	return reason
}

// sort puts entities into the order of groups and addresses, and skipped records into that of reasons.
func (p *Plan) sort() {
	position := map[string]int{}
	for i, name := range p.Groups {
		position[name] = i
	}
	slices.SortFunc(p.Entities, func(a, b Entity) int {
		return cmp.Or(cmp.Compare(position[a.Group], position[b.Group]), a.Span.From().Compare(b.Span.From()))
	})
	slices.SortFunc(p.Skipped, func(a, b Skipped) int {
		return cmp.Or(strings.Compare(a.Reason, b.Reason), strings.Compare(a.Source.Model, b.Source.Model), cmp.Compare(a.Source.PK, b.Source.PK))
	})
}

// labels returns a unique name for each record. VRFs may share a name, but groups may not.
func labels[T any](records map[int64]T, name func(int64, T) string) map[int64]string {
	count := map[string]int{}
	for pk, r := range records {
		count[name(pk, r)]++
	}
	named := map[int64]string{}
	for pk, r := range records {
		named[pk] = name(pk, r)
		if count[named[pk]] > 1 {
			named[pk] = fmt.Sprintf("%s (NetBox id %d)", named[pk], pk)
		}
	}
	return named
}
