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

// Plan is what an import makes, and what it does not make and why. Every prefix, range and address of NetBox is in
// Entities or in LeftOut, once.
type Plan struct {
	Groups   []string  // a group per site, by name; then those that space without a site needs
	Entities []Entity  // by group, then by address
	LeftOut  []LeftOut // by reason, then by record
}

// Entity is an IP entity to be.
type Entity struct {
	Source   Source
	Group    string
	Span     netipx.IPRange
	IsPrefix bool         // written as a prefix; else as an address, or as first and last
	Subnet   netip.Prefix // that an address or range stands in, where known
	Gateway  netip.Addr   // where known
	VLAN     int32        // 0: none
	Nickname string
	Owner    customer // where the tenant is one
}

// Address is the entity's space as the API writes it.
func (e Entity) Address() string {
	if isSingle(e.Span) {
		return e.Span.From().String()
	}
	if p, ok := e.Span.Prefix(); ok && e.IsPrefix {
		return p.String()
	}
	return e.Span.String()
}

// LeftOut is a record that is not imported.
type LeftOut struct {
	Source Source
	What   string
	Reason string // one of few, to count by
	Detail string // what Reason does not say of this one
}

// planFor decides what Ironplane is to hold of a dump.
//
// A group is a site. Space without a site gets a group for its VRF, or one for the rest. A VRF's space at a site
// moves as a whole to a group of its own where the site's group holds some of the same private addresses already.
func planFor(d *dump) Plan {
	p := planner{dump: d, tables: tablesOf(d), gateways: gatewaysOf(d)}
	p.takeRanges()
	p.takeAddresses()
	p.takePrefixes()
	p.leaveOutUnused()
	return p.settle()
}

type planner struct {
	dump     *dump
	tables   map[int64]table
	gateways map[int64][]netip.Addr
	claims   []claim
	leftOut  []LeftOut
}

// claim is an entity that gets its space unless another has it.
type claim struct {
	Entity
	home home
}

// home is where space stands in NetBox; 0 is no site, and the global table.
type home struct{ site, vrf int64 }

func (h home) compare(other home) int {
	return cmp.Or(cmp.Compare(h.site, other.site), cmp.Compare(h.vrf, other.vrf))
}

func (p *planner) leaveOut(source Source, what, reason, detail string) {
	p.leftOut = append(p.leftOut, LeftOut{source, what, reason, detail})
}

func (p *planner) takeRanges() {
	for pk, r := range ordered(p.dump.ranges) {
		e := Entity{Source: Source{modelRange, pk}, Span: r.span(), Nickname: r.Description, Owner: p.dump.customers[r.Tenant]}
		if r.Start.Addr().Is6() {
			if _, e.IsPrefix = e.Span.Prefix(); !e.IsPrefix {
				p.leaveOut(e.Source, e.Address(), "IPv6 range that is not a prefix: an IPv6 entity is an address or a prefix", "")
				continue
			}
		}
		p.claim(e, r.Start.Bits(), home{vrf: r.VRF}, 0)
	}
}

func (p *planner) takeAddresses() {
	for pk, a := range ordered(p.dump.addresses) {
		e := Entity{
			Source:   Source{modelAddress, pk},
			Span:     single(a.Address.Addr()),
			Nickname: cmp.Or(a.DNSName, a.Description),
			Owner:    p.dump.customers[a.Tenant],
		}
		p.claim(e, a.Address.Bits(), home{vrf: a.VRF}, 0)
	}
}

// takePrefixes takes those that stand for space which NetBox says nothing closer about.
func (p *planner) takePrefixes() {
	for pk, x := range ordered(p.dump.prefixes) {
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
			p.leaveOut(e.Source, e.Address(), "container with nothing inside", "")
		case x.isContainer():
			p.leaveOut(e.Source, e.Address(), "container: what is inside stands for itself", "")
		case l.divided:
			p.leaveOut(e.Source, e.Address(), "divided into smaller prefixes, which stand for themselves", "")
		case l.used:
			p.leaveOut(e.Source, e.Address(), "holds addresses or ranges, which stand for themselves", "")
		default:
			p.claim(e, x.Prefix.Bits(), home{x.site(), x.VRF}, x.VLAN)
		}
	}
}

func (p *planner) leaveOutUnused() {
	named := map[int64]bool{}
	for _, x := range p.dump.prefixes {
		named[x.VLAN] = true
	}
	for pk, v := range ordered(p.dump.vlans) {
		if !named[pk] {
			p.leaveOut(Source{modelVLAN, pk}, fmt.Sprintf("%d %s", v.VID, v.Name), "VLAN of no prefix: a VLAN is a number on an entity", "")
		}
	}
	for pk, t := range ordered(p.dump.tenants) {
		if p.dump.customers[pk] == (customer{}) {
			p.leaveOut(Source{modelTenant, pk}, t.Name, "tenant that --clients makes no client of: what is its own has no owner", "")
		}
	}
}

// claim adds what the prefixes around an entity say of it: its subnet and gateway and, where it has none itself, its
// site and VLAN.
func (p *planner) claim(e Entity, bits int, at home, vlan int64) {
	switch {
	case e.Span.From().Is4In6():
		p.leaveOut(e.Source, e.Address(), "IPv4 written as IPv6", "")
		return
	case straddles(e.Span):
		p.leaveOut(e.Source, e.Address(), "private and public space in one", "")
		return
	}
	t := p.tables[at.vrf]
	at.site = cmp.Or(at.site, inherited(t.around(e.Span), prefix.site))
	vlan = cmp.Or(vlan, inherited(t.around(e.Span), func(x prefix) int64 { return x.VLAN }))
	e.VLAN = p.dump.vlans[vlan].VID
	if e.Nickname = strings.TrimSpace(e.Nickname); e.Nickname == e.Address() {
		e.Nickname = "" // the API takes it for none
	}
	if !e.IsPrefix || isSingle(e.Span) {
		e.Subnet = t.subnet(e.Span, bits)
		e.Gateway = gatewayIn(p.gateways[at.vrf], e)
	}
	p.claims = append(p.claims, claim{e, at})
}

// settle gives every claim a group, and its space there unless another has it.
func (p *planner) settle() Plan {
	sites := labels(p.dump.sites, func(pk int64, s site) string {
		return cmp.Or(strings.TrimSpace(s.Name), s.Slug, Source{modelSite, pk}.String())
	})
	vrfs := labels(p.dump.vrfs, func(_ int64, v vrf) string { return "VRF " + strings.TrimSpace(v.Name) })

	byHome := map[home][]claim{}
	for _, c := range p.claims {
		byHome[c.home] = append(byHome[c.home], c)
	}
	var public []claim
	standing := map[string][]claim{}
	for _, at := range slices.SortedFunc(maps.Keys(byHome), home.compare) {
		group := sites[at.site]
		switch {
		case at == home{}:
			group = "NetBox: no site"
		case at.site == 0:
			group = "NetBox: " + vrfs[at.vrf]
		case at.vrf != 0 && slices.ContainsFunc(byHome[at], func(c claim) bool { return isTaken(standing[group], c.Span) }):
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
		standing[group] = p.grant(standing[group], private)
	}
	standing[""] = p.grant(nil, public)

	plan := Plan{Groups: slices.Sorted(maps.Values(sites)), LeftOut: p.leftOut}
	extra := map[string]bool{}
	for _, claims := range standing {
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

// grant adds the claims to those that stand, in the order of their addresses, except where their space is taken.
// Ranges go before the addresses in them, and what is known to be there before prefixes.
func (p *planner) grant(standing, claims []claim) []claim {
	slices.SortFunc(claims, bySpan)
	for _, model := range []string{modelRange, modelAddress, modelPrefix} {
		var fresh []claim
		for _, c := range claims {
			if c.Source.Model != model {
				continue
			}
			other, taken := holder(standing, c.Span)
			if !taken {
				other, taken = holder(fresh, c.Span)
			}
			if taken {
				p.leaveOut(c.Source, c.Address(), whyTaken(c, other), fmt.Sprintf("%s, %s", other.Address(), other.Source))
				continue
			}
			fresh = append(fresh, c)
		}
		standing = append(standing, fresh...)
		slices.SortFunc(standing, bySpan)
	}
	return standing
}

func bySpan(a, b claim) int {
	return cmp.Or(a.Span.From().Compare(b.Span.From()), cmp.Compare(a.Source.PK, b.Source.PK))
}

// holder is the first claim that span overlaps, of claims that do not overlap and are in order.
func holder(claims []claim, span netipx.IPRange) (claim, bool) {
	i, _ := slices.BinarySearchFunc(claims, span.From(), func(c claim, from netip.Addr) int { return c.Span.To().Compare(from) })
	if i == len(claims) || !claims[i].Span.Overlaps(span) {
		return claim{}, false
	}
	return claims[i], true
}

func isTaken(claims []claim, span netipx.IPRange) bool {
	_, taken := holder(claims, span)
	return taken
}

func whyTaken(c, other claim) string {
	reason := "overlaps another record"
	switch {
	case c.Span == other.Span:
		reason = "same address as another record"
	case other.Source.Model == modelRange && covers(other.Span, c.Span):
		reason = "inside a range that is imported"
	}
	if c.home != other.home {
		reason += " at another site or in another VRF, and public space stands once in an installation"
	}
	return reason
}

func (p *Plan) sort() {
	position := map[string]int{}
	for i, name := range p.Groups {
		position[name] = i
	}
	slices.SortFunc(p.Entities, func(a, b Entity) int {
		return cmp.Or(cmp.Compare(position[a.Group], position[b.Group]), a.Span.From().Compare(b.Span.From()))
	})
	slices.SortFunc(p.LeftOut, func(a, b LeftOut) int {
		return cmp.Or(strings.Compare(a.Reason, b.Reason), strings.Compare(a.Source.Model, b.Source.Model), cmp.Compare(a.Source.PK, b.Source.PK))
	})
}

// labels names records for people. VRFs may share a name, groups may not.
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
