package importer

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"go4.org/netipx"

	"github.com/ironplane/ironplane/deploy/cli/importer/source"
)

// selectors holds the values of --available, which name prefixes by role, tag or address.
type selectors []selector

type selector struct{ key, value string }

// String implements flag.Value.
func (s *selectors) String() string { return "" }

// Type is what the help shows for a value.
func (s *selectors) Type() string { return "prefixes" }

// Set adds a selector.
func (s *selectors) Set(text string) error {
	key, value, _ := strings.Cut(text, "=")
	if !slices.Contains([]string{"role", "tag", "prefix"}, key) || value == "" {
		return errors.New("must be role=NAME, tag=NAME or prefix=ADDRESS/LENGTH")
	}
	if key == "prefix" {
		if _, err := netip.ParsePrefix(value); err != nil {
			return err
		}
	}
	*s = append(*s, selector{key, value})
	return nil
}

func (s selector) matches(space *source.Space) bool {
	names := space.Roles
	switch s.key {
	case "tag":
		names = space.Tags
	case "prefix":
		prefix, _ := space.Span.Prefix()
		named, _ := netip.ParsePrefix(s.value)
		return prefix == named.Masked()
	}
	return slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(name, s.value) })
}

// check returns an error if a selector matches no prefix, since that is probably a typing error.
func (s selectors) check(plan *source.Plan) error {
	var errs []error
	for _, one := range s {
		if !slices.ContainsFunc(plan.Prefixes, func(space source.Space) bool { return one.matches(&space) }) {
			errs = append(errs, fmt.Errorf("--available %s=%s matches no prefix of the file", one.key, one.value))
		}
	}
	return errors.Join(errs...)
}

// isStock reports whether the free addresses of a prefix become available entities.
func (p *planner) isStock(s *source.Space) bool {
	isNamed := slices.ContainsFunc(p.stock, func(one selector) bool { return one.matches(s) })
	return (s.IsPool || s.IsAvailable || isNamed) && s.CanHoldStock()
}

// isLarge reports whether an IPv4 prefix is larger than a /16. So many addresses do not become single entities.
func isLarge(s netipx.IPRange) bool {
	p, ok := s.Prefix()
	return ok && p.Addr().Is4() && p.Bits() < 16
}

// fillPools turns pools into single addresses. Nothing that a record says to be in use becomes one.
func (p *planner) fillPools(s *scope) {
	slices.SortStableFunc(s.pools, bySpan)
	kept := s.kept // sorted, without the addresses of pools
	var earlier []claim
	for _, pool := range s.pools {
		free := p.freeIn(pool, kept)
		for _, other := range earlier {
			free.RemoveRange(other.Span)
		}
		set, _ := free.IPSet()
		if len(set.Ranges()) == 0 {
			p.skip(pool.space, &pool.Entity, "stock without a free address; its content is imported", "")
		}
		for _, run := range set.Ranges() {
			for a := run.From(); a.IsValid() && a.Compare(run.To()) <= 0; a = a.Next() {
				c := pool
				c.isPool, c.Kind, c.Span, c.Nickname, c.Note = false, source.Address, source.SingleAddress(a), "", ""
				if prefix, ok := pool.Span.Prefix(); ok && pool.Kind == source.Prefix && !prefix.IsSingleIP() {
					c.Subnet = prefix
				}
				s.kept = append(s.kept, c)
			}
		}
		earlier = append(earlier, pool)
	}
	slices.SortFunc(s.kept, bySpan)
}

// freeIn returns the addresses of a pool that nothing else has: no entity, no other record and, unless all addresses of the
// pool can be used, neither its network nor its broadcast address.
func (p *planner) freeIn(pool claim, kept []claim) *netipx.IPSetBuilder {
	var free netipx.IPSetBuilder
	free.AddRange(pool.Span)
	start, _ := slices.BinarySearchFunc(kept, pool.Span.From(), func(c claim, from netip.Addr) int { return c.Span.To().Compare(from) })
	for _, c := range kept[start:] {
		if !c.Span.Overlaps(pool.Span) {
			break
		}
		free.RemoveRange(c.Span)
	}
	for _, used := range p.inUse(pool.space) {
		free.RemoveRange(used)
	}
	if pool.Gateway.IsValid() {
		free.Remove(pool.Gateway)
	}
	if prefix, _ := pool.Span.Prefix(); pool.Kind == source.Prefix && !pool.space.IsPool && prefix.Bits() < 31 {
		free.Remove(pool.Span.From())
		free.Remove(pool.Span.To())
	}
	return &free
}

// inUse returns what other records have of stock, whether they become entities or not: addresses, ranges, and prefixes
// inside. Private space is in use by records of its VRF, public space by all.
func (p *planner) inUse(stock *source.Space) (used []netipx.IPRange) {
	isPublic := !isPrivate(stock.Span)
	for _, list := range [][]source.Space{p.from.Addresses, p.from.Ranges, p.from.Prefixes} {
		for i := range list {
			s := &list[i]
			if s.Source == stock.Source || s.VRF != stock.VRF && !isPublic || !s.Span.Overlaps(stock.Span) {
				continue
			}
			prefix, _ := s.Span.Prefix()
			switch {
			case s.Kind == source.Prefix && !covers(stock.Span, s.Span): // around it
			case s.Kind == source.Prefix && s.Span == stock.Span && p.tables[s.VRF][prefix].isStock: // the same stock again
			case s.Kind == source.Range && s.IsAvailable:
			default:
				used = append(used, s.Span)
			}
		}
	}
	return used
}
