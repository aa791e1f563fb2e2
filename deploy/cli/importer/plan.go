package importer

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"go4.org/netipx"

	"github.com/ironplane/ironplane/deploy/cli/importer/source"
)

// Plan lists the items that an import creates, and what becomes of all other records. Every prefix, range and address of
// the source is in Entities or in Skipped.
type Plan struct {
	System   string   // where the plan comes from, such as NetBox
	Groups   []string // first one for each site, by name, then those of space without a site
	Entities []Entity // by group, then by address
	Skipped  []Remark // by reason, then by record
	Others   []Remark // VLANs, VRFs, tenants and devices, by what becomes of them
}

// Entity is an IP entity to create.
type Entity struct {
	Source   source.Source
	Kind     source.Kind // Range, Address or Prefix; also says how it is written
	Group    string
	Span     netipx.IPRange
	Subnet   netip.Prefix // of an address or a range, if known
	Gateway  netip.Addr   // if known
	VLAN     int32        // 0: none
	Nickname string
	vlan     int64 // the VLAN's record
	Status   string
	Note     string          // of a reserved entity
	Owner    source.Customer // zero if the tenant becomes no client
}

// The statuses that an import gives.
const (
	available = "available"
	assigned  = "assigned"
	reserved  = "reserved"
)

// quarantined is the status of a released entity. An import does not change it.
const quarantined = "quarantined"

// Address returns the entity's addresses as the API writes them.
func (e *Entity) Address() string {
	if isSingle(e.Span) {
		return e.Span.From().String()
	}
	if p, ok := e.Span.Prefix(); ok && (e.Kind == source.Prefix || e.Span.From().Is6()) {
		return p.String()
	}
	return e.Span.String()
}

// Remark says what becomes of a record.
type Remark struct {
	Source source.Source
	Name   string
	Reason string // a constant text, by which the report counts
	Detail string // the particulars of this record
}

// newPlan decides which items to create for the plan of another system. The selectors name prefixes that become stock.
//
// Each site becomes a group. Space without a site goes to a group for its VRF, or to one for the rest. If the space of a
// VRF at a site overlaps with private addresses in the site's group, all of it goes to a group of its own.
func newPlan(from *source.Plan, stock selectors) Plan {
	p := planner{from: from, stock: stock, gateways: findGateways(from), groups: map[int64]map[string]bool{}}
	p.tables = buildTables(from, p.isStock)
	for i := range from.Ranges {
		s := &from.Ranges[i]
		p.claim(s, s.IsAvailable)
	}
	for i := range from.Addresses {
		s := &from.Addresses[i]
		p.claim(s, s.IsAvailable)
	}
	p.planPrefixes()
	plan := p.resolve()
	plan.System, plan.Skipped = from.System, p.skipped
	plan.Others = p.describeOthers(plan.Entities)
	plan.sort()
	return plan
}

// planner collects claims and skipped records before it resolves overlaps.
type planner struct {
	from     *source.Plan
	stock    selectors
	tables   map[int64]table
	gateways map[int64][]netip.Addr
	claims   []claim
	skipped  []Remark
	groups   map[int64]map[string]bool // the groups of each VRF
}

// claim is an entity that is planned unless its space overlaps with an earlier one.
type claim struct {
	Entity
	location location
	space    *source.Space
	isPool   bool // only the free addresses of the space become entities
}

// location is the site and VRF of a record. 0 means no site, or the global table.
type location struct{ site, vrf int64 }

func (h location) compare(other location) int {
	return cmp.Or(cmp.Compare(h.site, other.site), cmp.Compare(h.vrf, other.vrf))
}

func (p *planner) skip(s *source.Space, e *Entity, reason, detail string) {
	p.skipped = append(p.skipped, Remark{s.Source, e.Address(), reason, detail})
}

// planPrefixes plans the prefixes that contain no smaller prefix, address or range, and the stock.
func (p *planner) planPrefixes() {
	for i := range p.from.Prefixes {
		s := &p.from.Prefixes[i]
		e := Entity{Kind: source.Prefix, Span: s.Span}
		prefix, _ := s.Span.Prefix()
		l := p.tables[s.VRF][prefix]
		isStock := l.isStock && !isMixed(s.Span)
		isUsed := l.divided || l.used || isStock && p.inUse(s) != nil
		switch {
		case s.IsContainer && !isUsed:
			p.skip(s, &e, "empty container", "")
		case s.IsContainer:
			p.skip(s, &e, "container; its content is imported", "")
		case isStock && isUsed && s.Span.From().Is6():
			p.skip(s, &e, "IPv6 stock with something in use; its content is imported. Add the free prefixes yourself", "")
		case isStock && isUsed && isLarge(s.Span):
			p.skip(s, &e, "stock larger than a /16 with something in use; its content is imported. Name smaller prefixes with --available", "")
		case isStock:
			p.claim(s, !isLarge(s.Span))
		case l.divided:
			p.skip(s, &e, "prefix with smaller prefixes, which are imported", "")
		case l.used:
			p.skip(s, &e, "prefix with addresses or ranges, which are imported", "")
		default:
			p.claim(s, false)
		}
	}
}

// claim adds the entity of an address, a range or a prefix. An IPv4 range or prefix that is stock becomes a pool: its free
// addresses become entities, one each, so that clients can get single addresses.
func (p *planner) claim(s *source.Space, isStock bool) {
	c, ok := p.newClaim(s)
	if !ok {
		return
	}
	if isStock && c.Status == reserved {
		c.Status, c.Note = available, ""
	}
	c.isPool = isStock && s.Kind != source.Address && s.Span.From().Is4()
	p.claims = append(p.claims, c)
}

// newClaim returns the entity of a record. An entity without a site or VLAN inherits that from the prefixes around it.
func (p *planner) newClaim(s *source.Space) (claim, bool) {
	e := Entity{Source: s.Source, Kind: s.Kind, Span: s.Span, Nickname: s.Nickname, Owner: p.from.Customers[s.Tenant]}
	_, isPrefix := s.Span.Prefix()
	reason := ""
	switch {
	case e.Span.From().Is4In6():
		reason = "IPv4 written as IPv6"
	case e.Span.From().Is6() && !isPrefix:
		reason = "IPv6 range that is not a prefix; an IPv6 entity is an address or a prefix"
	case isMixed(e.Span):
		reason = "contains private and public addresses"
	}
	if reason != "" {
		p.skip(s, &e, reason, "")
		return claim{}, false
	}
	t, at := p.tables[s.VRF], location{s.Site, s.VRF}
	at.site = cmp.Or(at.site, inherit(t.around(e.Span), func(x *source.Space) int64 { return x.Site }))
	e.vlan = cmp.Or(s.VLAN, inherit(t.around(e.Span), func(x *source.Space) int64 { return x.VLAN }))
	e.VLAN, e.Gateway = p.from.VLANs[e.vlan].ID, s.Gateway
	if e.Nickname == e.Address() {
		e.Nickname = "" // an entity without a nickname is shown by its address, too
	}
	if isSingle(e.Span) || e.Kind == source.Range && e.Span.From().Is4() {
		e.Subnet = t.subnet(e.Span, s.Bits)
	}
	e.Status, e.Note = reserved, p.from.Note(s) // whatever is not free there is in use
	if e.Owner != (source.Customer{}) {
		e.Status, e.Note = assigned, ""
	}
	return claim{Entity: e, location: at, space: s}, true
}

// resolve gives every claim a group, and skips claims that overlap with others.
func (p *planner) resolve() Plan {
	sites := labels(p.from.Sites)
	vrfs := labels(p.from.VRFs)

	byHome := map[location][]claim{}
	for _, c := range p.claims {
		byHome[c.location] = append(byHome[c.location], c)
	}
	scopes := map[string]*scope{"": {}} // of each group; public space has one for all
	for _, at := range slices.SortedFunc(maps.Keys(byHome), location.compare) {
		group := sites[at.site]
		switch {
		case at == location{}:
			group = p.from.System + ": no site"
		case at.site == 0:
			group = p.from.System + ": VRF " + vrfs[at.vrf]
		case at.vrf != 0 && slices.ContainsFunc(byHome[at], func(c claim) bool { return scopes[group].overlaps(c.Span) }):
			group += ": VRF " + vrfs[at.vrf]
		}
		if scopes[group] == nil {
			scopes[group] = &scope{}
		}
		if p.groups[at.vrf] == nil {
			p.groups[at.vrf] = map[string]bool{}
		}
		p.groups[at.vrf][group] = true
		var private []claim
		for _, c := range byHome[at] {
			c.Group = group
			if isPrivate(c.Span) {
				private = append(private, c)
			} else {
				scopes[""].waiting = append(scopes[""].waiting, c)
			}
		}
		p.addClaims(scopes[group], private)
	}
	p.addClaims(scopes[""], scopes[""].waiting)

	plan := Plan{Groups: slices.Sorted(maps.Values(sites))}
	extra := map[string]bool{}
	for _, s := range scopes {
		p.fillPools(s)
		for _, c := range s.kept {
			e := c.Entity
			if !e.Gateway.IsValid() {
				e.Gateway = findGateway(p.gateways[c.location.vrf], e)
			}
			plan.Entities = append(plan.Entities, e)
			extra[e.Group] = true
		}
	}
	for _, name := range plan.Groups {
		delete(extra, name)
	}
	plan.Groups = append(plan.Groups, slices.Sorted(maps.Keys(extra))...)
	return plan
}

// sort puts entities into the order of groups and addresses, and remarks into that of reasons.
func (p *Plan) sort() {
	position := map[string]int{}
	for i, name := range p.Groups {
		position[name] = i
	}
	slices.SortFunc(p.Entities, func(a, b Entity) int {
		return cmp.Or(cmp.Compare(position[a.Group], position[b.Group]), a.Span.From().Compare(b.Span.From()))
	})
	for _, list := range [][]Remark{p.Skipped, p.Others} {
		slices.SortFunc(list, func(a, b Remark) int {
			return cmp.Or(
				strings.Compare(a.Reason, b.Reason),
				strings.Compare(a.Source.Model, b.Source.Model),
				cmp.Compare(a.Source.PK, b.Source.PK),
			)
		})
	}
}

// labels returns a unique name for each record. VRFs may share a name, but groups may not.
func labels(names map[int64]string) map[int64]string {
	count := map[string]int{}
	for _, name := range names {
		count[name]++
	}
	unique := map[int64]string{}
	for pk, name := range names {
		unique[pk] = name
		if count[name] > 1 {
			unique[pk] = fmt.Sprintf("%s (id %d)", name, pk)
		}
	}
	return unique
}
