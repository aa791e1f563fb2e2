package importer

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/ironplane/ironplane/deploy/cli/importer/source"
)

// scope is a space in which no two entities overlap: the private space of a group, or all public space.
type scope struct {
	kept    []claim // sorted by address, and free of overlaps
	pools   []claim
	waiting []claim
}

// overlaps reports whether an entity or a pool has some of span.
func (s *scope) overlaps(span netipx.IPRange) bool {
	if s == nil {
		return false
	}
	_, found := findOverlap(s.kept, span)
	return found || slices.ContainsFunc(s.pools, func(c claim) bool { return c.Span.Overlaps(span) })
}

// addClaims adds claims to those of the scope, and skips those that overlap with one of them. IPv6 ranges come before the
// addresses inside. IPv4 ranges come after these, and are cut around them. Prefixes come last: they only describe space
// that may be in use.
func (p *planner) addClaims(s *scope, claims []claim) {
	slices.SortFunc(claims, bySpan)
	for _, isNext := range []func(*claim) bool{
		func(c *claim) bool { return c.Kind == source.Range && c.Span.From().Is6() },
		func(c *claim) bool { return c.Kind == source.Address },
		func(c *claim) bool { return c.Kind == source.Range && c.Span.From().Is4() },
		func(c *claim) bool { return c.Kind == source.Prefix },
	} {
		var fresh []claim
		for _, c := range claims {
			switch {
			case !isNext(&c):
			case c.isPool:
				s.pools = append(s.pools, c)
			default:
				for _, piece := range c.cut(s.kept) {
					fresh = p.keep(s.kept, fresh, piece)
				}
			}
		}
		s.kept = append(s.kept, fresh...)
		slices.SortFunc(s.kept, bySpan)
	}
}

// keep adds a claim to the fresh ones, unless it overlaps with one of them or of the kept ones. Both stay sorted.
func (p *planner) keep(kept, fresh []claim, c claim) []claim {
	other, found := findOverlap(kept, c.Span)
	if !found {
		other, found = findOverlap(fresh, c.Span)
	}
	if found {
		p.skip(c.space, &c.Entity, describeOverlap(c, other), fmt.Sprintf("%s, %s", other.Address(), other.Source))
		return fresh
	}
	// A part of a range can come before parts of an earlier range.
	i, _ := slices.BinarySearchFunc(fresh, c.Span.From(), func(f claim, from netip.Addr) int { return f.Span.To().Compare(from) })
	return slices.Insert(fresh, i, c)
}

// cut returns the parts of an IPv4 range around the addresses inside. Any other claim stays whole.
func (c claim) cut(kept []claim) []claim {
	if c.Kind != source.Range || c.Span.From().Is6() {
		return []claim{c}
	}
	var parts []claim
	first := c.Span.From()
	add := func(last netip.Addr) {
		if part := netipx.IPRangeFrom(first, last); part.IsValid() {
			parts = append(parts, c)
			parts[len(parts)-1].Span = part
		}
	}
	start, _ := slices.BinarySearchFunc(kept, c.Span.From(), func(k claim, from netip.Addr) int { return k.Span.To().Compare(from) })
	for _, k := range kept[start:] {
		if !k.Span.Overlaps(c.Span) {
			break
		}
		if k.Kind == source.Range { // as a whole, so that the report names the range
			return []claim{c}
		}
		add(k.Span.From().Prev())
		first = k.Span.To().Next()
	}
	add(c.Span.To())
	if parts == nil {
		return []claim{c}
	}
	return parts
}

func bySpan(a, b claim) int {
	return cmp.Or(
		a.Span.From().Compare(b.Span.From()),
		cmp.Compare(rank(a.Status), rank(b.Status)),
		cmp.Compare(a.Source.PK, b.Source.PK),
	)
}

// rank puts the record that says most about an address first: whose it is, then that it is in use.
func rank(status string) int { return slices.Index([]string{assigned, reserved, available}, status) }

// findOverlap returns the first claim that overlaps with span. claims must be sorted and free of overlaps.
func findOverlap(claims []claim, span netipx.IPRange) (claim, bool) {
	i, _ := slices.BinarySearchFunc(claims, span.From(), func(c claim, from netip.Addr) int { return c.Span.To().Compare(from) })
	if i == len(claims) || !claims[i].Span.Overlaps(span) {
		return claim{}, false
	}
	return claims[i], true
}

// describeOverlap returns the reason why c is skipped.
func describeOverlap(c, other claim) string {
	reason := "overlaps another record"
	switch {
	case c.Span == other.Span:
		reason = "same address as another record"
	case other.Kind == source.Range && covers(other.Span, c.Span):
		reason = "inside an imported range"
	}
	if c.location != other.location {
		reason += " at another site or in another VRF; an installation has each public address once"
	}
	return reason
}
