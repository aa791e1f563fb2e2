package importer

import (
	"net/netip"
	"strings"

	"go4.org/netipx"

	"github.com/ironplane/ironplane/deploy/cli/importer/source"
)

// privateSpace lists the prefixes that every group may use for itself (RFC 1918, RFC 6598, ULA). Any other address
// exists at most once in an installation.
var privateSpace = []netip.Prefix{
	netip.MustParsePrefix("10.0.0.0/8"),
	netip.MustParsePrefix("172.16.0.0/12"),
	netip.MustParsePrefix("192.168.0.0/16"),
	netip.MustParsePrefix("100.64.0.0/10"),
	netip.MustParsePrefix("fc00::/7"),
}

// isPrivate reports whether all of s is in one private prefix.
func isPrivate(s netipx.IPRange) bool {
	for _, p := range privateSpace {
		if p.Contains(s.From()) {
			return p.Contains(s.To())
		}
	}
	return false
}

// isMixed reports whether s has private and public addresses.
func isMixed(s netipx.IPRange) bool {
	for _, p := range privateSpace {
		if s.Overlaps(netipx.RangeOfPrefix(p)) {
			return !isPrivate(s)
		}
	}
	return false
}

func isSingle(s netipx.IPRange) bool { return s.From() == s.To() }

func covers(outer, inner netipx.IPRange) bool {
	return outer.Contains(inner.From()) && outer.Contains(inner.To())
}

// parseSpan parses addresses as the API writes them: an address, a prefix, or first and last address joined by a dash.
func parseSpan(text string) (netipx.IPRange, bool) {
	switch {
	case strings.Contains(text, "/"):
		p, err := netip.ParsePrefix(text)
		return netipx.RangeOfPrefix(p), err == nil
	case strings.Contains(text, "-"):
		r, err := netipx.ParseIPRange(text)
		return r, err == nil
	default:
		a, err := netip.ParseAddr(text)
		return source.SingleAddress(a), err == nil
	}
}
