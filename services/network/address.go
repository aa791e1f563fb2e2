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

// v4Space and v6Space are what an entity holds of a family, worked out from the texts of a body. A pointer that is
// nil is NULL in the database.
type v4Space struct {
	First   *netip.Addr
	Last    *netip.Addr
	Bits    *int // the length of a prefix; nil for an address or a range
	Mask    *int // the length of the subnet that an address or a range lies in
	Gateway *netip.Addr
}

type v6Space struct {
	First   *netip.Addr
	Last    *netip.Addr
	Bits    *int
	Gateway *netip.Addr
}

// family is what differs between the two families of addresses.
type family struct {
	name  string
	short string // of its columns and of its member in a body
	bits  int
	first string // by which entities are found and sorted

	// How addresses are written: in parts of so many bits and so many digits at most.
	separator              string
	partBits, digits, base int

	is      func(netip.Addr) bool
	private []netip.Prefix
	refused []refusedSpace
	example string
	prefix  string
}

// in writes a statement out for the family, whose columns it names by {v}.
func (f *family) in(sql string, more ...string) string {
	return strings.NewReplacer(append(more, "{v}", f.short, "{first}", f.first, "{bits}", strconv.Itoa(f.bits))...).Replace(sql)
}

type refusedSpace struct {
	space netip.Prefix
	why   string
}

var v4 = &family{
	name:      "IPv4",
	short:     "v4",
	bits:      32,
	first:     "coalesce(v4_first, v6_first)",
	separator: ".",
	partBits:  8,
	digits:    3,
	base:      10,
	is:        netip.Addr.Is4,
	example:   "192.0.2.10",
	prefix:    "192.0.2.0/29",
	private:   prefixes("10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.168.0.0/16"),
	refused: []refusedSpace{
		{netip.MustParsePrefix("0.0.0.0/8"), "“this network”"},
		{netip.MustParsePrefix("127.0.0.0/8"), "loopback"},
		{netip.MustParsePrefix("169.254.0.0/16"), "link-local"},
		{netip.MustParsePrefix("224.0.0.0/4"), "multicast"},
		{netip.MustParsePrefix("240.0.0.0/4"), "reserved"},
	},
}

var v6 = &family{
	name:      "IPv6",
	short:     "v6",
	bits:      128,
	first:     "v6_first",
	separator: ":",
	partBits:  16,
	digits:    4,
	base:      16,
	is:        func(a netip.Addr) bool { return a.Is6() && !a.Is4In6() },
	example:   "2001:db8::10",
	prefix:    "2001:db8::/64",
	private:   prefixes("fc00::/7"),
	refused: []refusedSpace{
		{netip.MustParsePrefix("::/8"), "reserved"},
		{netip.MustParsePrefix("fe80::/10"), "link-local"},
		{netip.MustParsePrefix("fec0::/10"), "site-local, which is withdrawn"},
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

// parseV4 reads the members of a body's v4. All are optional, but nothing is said without an address.
func parseV4(address, rangeEnd, gateway *ipText, mask *string, invalid *problem.Fields) v4Space {
	if address == nil {
		if rangeEnd != nil || gateway != nil || mask != nil {
			invalid.Add("/v4/address", "required", "is required where another member of v4 is set")
		}
		return v4Space{}
	}
	before := len(*invalid)
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
	if len(*invalid) == before {
		s.check(invalid)
	}
	return s
}

// check compares the members of a space with each other.
func (s *v4Space) check(invalid *problem.Fields) {
	v4.checkSpace("/v4/address", *s.First, *s.Last, invalid)
	var subnet netip.Prefix
	switch {
	case s.Bits != nil:
		subnet = netip.PrefixFrom(*s.First, *s.Bits)
		if s.Mask != nil && *s.Mask != *s.Bits {
			invalid.Add("/v4/subnet_mask", "disagrees", "is not that of the prefix")
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

// parseV6 reads the members of a body's v6.
func parseV6(address, rangeEnd, gateway *ipText, invalid *problem.Fields) v6Space {
	if address == nil {
		if rangeEnd != nil || gateway != nil {
			invalid.Add("/v6/address", "required", "is required where another member of v6 is set")
		}
		return v6Space{}
	}
	before := len(*invalid)
	first, last, length := v6.parseSpace("/v6/address", string(*address), invalid)
	s := v6Space{First: &first, Last: &last, Bits: length}
	if rangeEnd != nil {
		if end, ok := v6.parseAddress("/v6/range_end", string(*rangeEnd), invalid); ok && (length != nil || end != first) {
			invalid.Add("/v6/range_end", "conflict", "can only be the address itself: IPv6 has no ranges, but prefixes such as %s", v6.prefix)
		}
	}
	if gateway != nil {
		if a, ok := v6.parseAddress("/v6/gateway", string(*gateway), invalid); ok {
			s.Gateway = &a
		}
	}
	if len(*invalid) > before {
		return s
	}
	v6.checkSpace("/v6/address", first, last, invalid)
	if g := s.Gateway; g != nil {
		// A router is often named by its link-local address, which is in no subnet.
		if length != nil && !netip.PrefixFrom(first, *length).Contains(*g) && !g.IsLinkLocalUnicast() {
			invalid.Add("/v6/gateway", "out_of_range", "lies outside the prefix %s", *address)
		}
		if length == nil && *g == first {
			invalid.Add("/v6/gateway", "conflict", "is the entity's own address")
		}
	}
	return s
}

// parseSpace reads an address or a prefix. A prefix of one address is that address.
func (f *family) parseSpace(pointer, text string, invalid *problem.Fields) (first, last netip.Addr, length *int) {
	if !strings.Contains(text, "/") {
		first, _ = f.parseAddress(pointer, text, invalid)
		return first, first, nil
	}
	p, err := netip.ParsePrefix(text)
	if err != nil || !f.is(p.Addr()) || f.mixed(text) {
		invalid.Add(pointer, "invalid", "must be an %s address such as %s or a prefix such as %s", f.name, f.example, f.prefix)
		return first, last, nil
	}
	if p.Masked() != p {
		invalid.Add(pointer, "host_bits", "has host bits set: the prefix is %s; for one address in that subnet leave the length out", p.Masked())
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
	if err != nil || !f.is(a) || a.Zone() != "" || f.mixed(text) {
		invalid.Add(pointer, "invalid", "must be an %s address such as %s", f.name, f.example)
		return netip.Addr{}, false
	}
	return a, true
}

// mixed tells whether a text has a part of an IPv6 address as IPv4 writes it.
func (f *family) mixed(text string) bool { return f == v6 && strings.Contains(text, ".") }

// ipText is an address or a prefix as it was sent.
type ipText string

// Canonical is what answers have for the text; rest reads one that is sent so.
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

// spaceTexts are a space's address or prefix, and the last address of a range.
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

func addressText(a *netip.Addr) *ipText {
	if a == nil {
		return nil
	}
	return new(ipText(a.String()))
}

func maskText(length *int) *string {
	if length == nil {
		return nil
	}
	return new(netip.PrefixFrom(netip.AddrFrom4([4]byte{255, 255, 255, 255}), *length).Masked().Addr().String())
}

// checkSpace refuses what no server can have, and what is partly private and partly public: that would be unique
// in two scopes at once.
func (f *family) checkSpace(pointer string, first, last netip.Addr, invalid *problem.Fields) {
	overlaps := func(p netip.Prefix) bool { return !netipx.PrefixLastIP(p).Less(first) && !last.Less(p.Addr()) }
	for _, r := range f.refused {
		if overlaps(r.space) {
			invalid.Add(pointer, "out_of_range", "reaches into %s (%s)", r.space, r.why)
			return
		}
	}
	for _, p := range f.private {
		if overlaps(p) && !(p.Contains(first) && p.Contains(last)) {
			invalid.Add(pointer, "straddles", "reaches into the private space %s and beyond it", p)
			return
		}
	}
}

// scope is what a space that begins here is unique in: 0 is the world, any other number the group of that id.
func (f *family) scope(first netip.Addr, group int64) int64 {
	for _, p := range f.private {
		if p.Contains(first) {
			return group
		}
	}
	return 0
}

// parseMask reads a subnet mask such as 255.255.255.0 and answers its length.
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
