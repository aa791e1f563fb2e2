package network

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
	"strconv"
	"strings"

	"go4.org/netipx"

	"github.com/ironplane/ironplane/pkg/problem"
)

// v4Space is the IPv4 part of an entity, parsed from a body. A nil pointer is NULL in the database.
type v4Space struct {
	First   *netip.Addr
	Last    *netip.Addr
	Bits    *int // the length of a prefix; nil for an address or a range
	Mask    *int // the prefix length of the subnet around an address or a range
	Gateway *netip.Addr
}

// v6Space is the IPv6 part of an entity, parsed from a body. A nil pointer is NULL in the database.
type v6Space struct {
	First   *netip.Addr
	Last    *netip.Addr
	Bits    *int
	Gateway *netip.Addr
}

// family holds what differs between IPv4 and IPv6.
type family struct {
	name        string
	short       string // prefix of its columns, and name of its member in a body
	bits        int
	firstColumn string // the expression that entities are found and sorted by

	// An address is written in parts of partBits bits, each with at most so many digits in this base.
	separator              string
	partBits, digits, base int

	isFamily func(netip.Addr) bool
	private  []netip.Prefix
	refused  []refusedSpace
	example  string
	prefix   string
}

// writeSQL returns a statement for the family. {v} stands for the prefix of its columns; more has other placeholders and their texts.
func (f *family) writeSQL(sql string, more ...string) string {
	return strings.NewReplacer(append(more, "{v}", f.short, "{first}", f.firstColumn, "{bits}", strconv.Itoa(f.bits))...).Replace(sql)
}

// refusedSpace is a prefix that no server can use.
type refusedSpace struct {
	space  netip.Prefix
	reason string
}

var v4 = &family{
	name:        "IPv4",
	short:       "v4",
	bits:        32,
	firstColumn: "coalesce(v4_first, v6_first)",
	separator:   ".",
	partBits:    8,
	digits:      3,
	base:        10,
	isFamily:    netip.Addr.Is4,
	example:     "192.0.2.10",
	prefix:      "192.0.2.0/29",
	private:     prefixes("10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.168.0.0/16"),
	refused: []refusedSpace{
		{netip.MustParsePrefix("0.0.0.0/8"), "“this network”"},
		{netip.MustParsePrefix("127.0.0.0/8"), "loopback"},
		{netip.MustParsePrefix("169.254.0.0/16"), "link-local"},
		{netip.MustParsePrefix("224.0.0.0/4"), "multicast"},
		{netip.MustParsePrefix("240.0.0.0/4"), "reserved"},
	},
}

var v6 = &family{
	name:        "IPv6",
	short:       "v6",
	bits:        128,
	firstColumn: "v6_first",
	separator:   ":",
	partBits:    16,
	digits:      4,
	base:        16,
	isFamily:    func(a netip.Addr) bool { return a.Is6() && !a.Is4In6() },
	example:     "2001:db8::10",
	prefix:      "2001:db8::/64",
	private:     prefixes("fc00::/7"),
	refused: []refusedSpace{
		{netip.MustParsePrefix("::/8"), "reserved"},
		{netip.MustParsePrefix("fe80::/10"), "link-local"},
		{netip.MustParsePrefix("fec0::/10"), "site-local, deprecated by RFC 3879"},
		{netip.MustParsePrefix("ff00::/8"), "multicast"},
	},
}

func prefixes(texts ...string) []netip.Prefix {
	all := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		all[i] = netip.MustParsePrefix(text)
	}
	return all
}

// parseV4 parses the members of a body's v4. All are optional, but the others need an address.
func parseV4(address, rangeEnd, gateway *ipText, mask *string, invalid *problem.Fields) v4Space {
	if address == nil {
		if rangeEnd != nil || gateway != nil || mask != nil {
			invalid.Add("/v4/address", "required", "is required where another member of v4 is set")
		}
		return v4Space{}
	}
	errorsBefore := len(*invalid)
	first, last, length := v4.parseSpace("/v4/address", string(*address), invalid)
	s := v4Space{First: &first, Last: &last, Bits: length}
	if mask != nil {
		s.Mask = parseMask("/v4/subnet_mask", *mask, invalid)
	}
	if rangeEnd != nil {
		if length != nil {
			invalid.Add("/v4/range_end", "conflict", "cannot be set where the address is a prefix")
		} else if end, ok := v4.parseAddress("/v4/range_end", string(*rangeEnd), invalid); ok && first.IsValid() {
			if end.Less(first) {
				invalid.Add("/v4/range_end", "out_of_range", "is below the address")
			}
			s.Last = &end
		}
	}
	if gateway != nil {
		if a, ok := v4.parseAddress("/v4/gateway", string(*gateway), invalid); ok {
			s.Gateway = &a
		}
	}
	if len(*invalid) == errorsBefore {
		s.check(invalid)
	}
	return s
}

// check refuses members that contradict each other, such as a gateway outside the subnet.
func (s *v4Space) check(invalid *problem.Fields) {
	v4.checkSpace("/v4/address", *s.First, *s.Last, invalid)
	var subnet netip.Prefix
	switch {
	case s.Bits != nil:
		subnet = netip.PrefixFrom(*s.First, *s.Bits)
		if s.Mask != nil && *s.Mask != *s.Bits {
			invalid.Add("/v4/subnet_mask", "disagrees", "must be the mask of the prefix")
		}
		s.Mask = nil
	case s.Mask != nil:
		subnet = netip.PrefixFrom(*s.First, *s.Mask).Masked()
		if !subnet.Contains(*s.Last) {
			invalid.Add("/v4/range_end", "out_of_range", "lies outside the subnet %s", subnet)
		}
	}
	if s.Gateway == nil {
		return
	}
	if subnet.IsValid() && !subnet.Contains(*s.Gateway) {
		invalid.Add("/v4/gateway", "out_of_range", "lies outside the subnet %s", subnet)
	}
	if s.Bits == nil && !s.Gateway.Less(*s.First) && !s.Last.Less(*s.Gateway) {
		invalid.Add("/v4/gateway", "conflict", "is one of the entity's own addresses")
	}
}

// parseV6 parses the members of a body's v6. All are optional, but the others need an address.
func parseV6(address, rangeEnd, gateway *ipText, invalid *problem.Fields) v6Space {
	if address == nil {
		if rangeEnd != nil || gateway != nil {
			invalid.Add("/v6/address", "required", "is required where another member of v6 is set")
		}
		return v6Space{}
	}
	errorsBefore := len(*invalid)
	first, last, length := v6.parseSpace("/v6/address", string(*address), invalid)
	s := v6Space{First: &first, Last: &last, Bits: length}
	if rangeEnd != nil {
		if end, ok := v6.parseAddress("/v6/range_end", string(*rangeEnd), invalid); ok && (length != nil || end != first) {
			invalid.Add("/v6/range_end", "conflict", "must be the address itself: use a prefix such as %s instead of an IPv6 range", v6.prefix)
		}
	}
	if gateway != nil {
		if a, ok := v6.parseAddress("/v6/gateway", string(*gateway), invalid); ok {
			s.Gateway = &a
		}
	}
	if len(*invalid) > errorsBefore {
		return s
	}
	v6.checkSpace("/v6/address", first, last, invalid)
	if g := s.Gateway; g != nil {
		// Routers often have a link-local address, which lies in no subnet.
		if length != nil && !netip.PrefixFrom(first, *length).Contains(*g) && !g.IsLinkLocalUnicast() {
			invalid.Add("/v6/gateway", "out_of_range", "lies outside the prefix %s", *address)
		}
		if length == nil && *g == first {
			invalid.Add("/v6/gateway", "conflict", "is the entity's own address")
		}
	}
	return s
}

// parseSpace parses an address or a prefix. A prefix with one address, such as a /32, is that address: its length is nil.
func (f *family) parseSpace(pointer, text string, invalid *problem.Fields) (first, last netip.Addr, length *int) {
	if !strings.Contains(text, "/") {
		first, _ = f.parseAddress(pointer, text, invalid)
		return first, first, nil
	}
	p, err := netip.ParsePrefix(text)
	if err != nil || !f.isFamily(p.Addr()) || f.isMixed(text) {
		invalid.Add(pointer, "invalid", "must be an %s address such as %s or a prefix such as %s", f.name, f.example, f.prefix)
		return first, last, nil
	}
	if p.Masked() != p {
		invalid.Add(pointer, "host_bits", "has host bits set: send %s for the prefix, or leave out the length for one address", p.Masked())
		return first, last, nil
	}
	if p.IsSingleIP() {
		return p.Addr(), p.Addr(), nil
	}
	n := p.Bits()
	return p.Addr(), netipx.PrefixLastIP(p), &n
}

func (f *family) parseAddress(pointer, text string, invalid *problem.Fields) (netip.Addr, bool) {
	a, err := netip.ParseAddr(text)
	if err != nil || !f.isFamily(a) || a.Zone() != "" || f.isMixed(text) {
		invalid.Add(pointer, "invalid", "must be an %s address such as %s", f.name, f.example)
		return netip.Addr{}, false
	}
	return a, true
}

// isMixed reports whether a text is an IPv6 address with a part in IPv4 notation, such as ::ffff:192.0.2.1.
func (f *family) isMixed(text string) bool { return f == v6 && strings.Contains(text, ".") }

// ipText is an address or a prefix in the spelling that the caller sent.
type ipText string

// Canonical returns the spelling that answers use. Invalid texts are returned as they are.
func (t ipText) Canonical() string {
	for _, f := range []*family{v4, v6} {
		var invalid problem.Fields
		if first, last, bits := f.parseSpace("", string(t), &invalid); len(invalid) == 0 {
			address, _ := spaceTexts(&first, &last, bits)
			return string(*address)
		}
	}
	return string(t)
}

// spaceTexts returns the address or prefix of a space, and the last address if it is a range.
func spaceTexts(first, last *netip.Addr, bits *int) (address, rangeEnd *ipText) {
	switch {
	case first == nil:
		return nil, nil
	case bits != nil:
		return new(ipText(netip.PrefixFrom(*first, *bits).String())), nil
	case *first != *last:
		rangeEnd = addressText(last)
	}
	return addressText(first), rangeEnd
}

// addressText returns an address as a text, or nil.
func addressText(a *netip.Addr) *ipText {
	if a == nil {
		return nil
	}
	return new(ipText(a.String()))
}

// maskText returns the subnet mask of a prefix length, such as 255.255.255.0 for 24, or nil.
func maskText(length *int) *string {
	if length == nil {
		return nil
	}
	return new(netip.PrefixFrom(netip.AddrFrom4([4]byte{255, 255, 255, 255}), *length).Masked().Addr().String())
}

// checkSpace refuses addresses that no server can have, and ranges that are partly private and partly public: such a
// range would have to be unique in two scopes.
func (f *family) checkSpace(pointer string, first, last netip.Addr, invalid *problem.Fields) {
	overlaps := func(p netip.Prefix) bool { return !netipx.PrefixLastIP(p).Less(first) && !last.Less(p.Addr()) }
	for _, r := range f.refused {
		if overlaps(r.space) {
			invalid.Add(pointer, "out_of_range", "overlaps with %s (%s), which servers cannot use", r.space, r.reason)
			return
		}
	}
	for _, p := range f.private {
		if overlaps(p) && !(p.Contains(first) && p.Contains(last)) {
			invalid.Add(pointer, "straddles", "must be all inside or all outside of the private space %s", p)
			return
		}
	}
}

// scopeOf returns the scope in which an address must be unique: 0 for public addresses, the group's id for private ones.
func (f *family) scopeOf(first netip.Addr, group int64) int64 {
	for _, p := range f.private {
		if p.Contains(first) {
			return group
		}
	}
	return 0
}

// parseMask returns the prefix length of a subnet mask such as 255.255.255.0.
func parseMask(pointer, text string, invalid *problem.Fields) *int {
	a, err := netip.ParseAddr(text)
	if err == nil && a.Is4() {
		b := a.As4()
		n := binary.BigEndian.Uint32(b[:])
		length := bits.LeadingZeros32(^n)
		if length > 0 && n<<length == 0 {
			return &length
		}
	}
	invalid.Add(pointer, "invalid", "must be a subnet mask such as 255.255.255.0")
	return nil
}
