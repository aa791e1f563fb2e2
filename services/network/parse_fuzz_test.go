package network

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"go4.org/netipx"

	"github.com/ironplane/ironplane/pkg/problem"
)

// nasty has spellings that some parsers accept as an address.
var nasty = []string{
	"",
	" ",
	"10.0.0.1",
	"010.0.0.1",
	"10.0.0.1 ",
	" 10.0.0.1",
	"10.0.0",
	"10.1",
	"167772161",
	"0x0a.0.0.1",
	"10.0.0.256",
	"10.0.0.1.",
	"10..0.1",
	"+10.0.0.1",
	"-1.0.0.0",
	"１０.0.0.1",
	"10。0.0.1",
	"10.0.0.1\x00",
	"10.0.0.1\n",
	"10.0.0.0/8",
	"10.0.0.0/08",
	"10.0.0.0/33",
	"10.0.0.0/-1",
	"10.0.0.1/8",
	"10.0.0.1/32",
	"10.0.0.0/255.0.0.0",
	"10.0.0.0/",
	"/8",
	"0.0.0.0",
	"255.255.255.255",
	"223.255.255.255",
	"9.255.255.255",
	"224.0.0.0",
	"172.15.255.255",
	"100.64.0.0/10",
	"100.0.0.0/8",
	"::",
	"::1",
	"::ffff:1.2.3.4",
	"::ffff:0102:0304",
	"::1.2.3.4",
	"64:ff9b::1.2.3.4",
	"fe80::1%eth0",
	"fe80::1%25eth0",
	"2001:db8::1%",
	"2001:DB8::1",
	"2001:db8:0:0:0:0:0:1",
	"2001:db8::00001",
	"2001:db8:::1",
	"1::2::3",
	"[2001:db8::1]",
	"2001:db8::1/128",
	"2001:db8::/032",
	"2001:db8::/129",
	"fc00::/7",
	"f800::/5",
	"ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
	"340282366920938463463374607431768211455",
	"2001:db8::g",
	"２001:db8::1",
	"2001:db8::1/64",
}

// FuzzSpace compares the parser of addresses and prefixes with net/netip.
func FuzzSpace(f *testing.F) {
	for _, text := range nasty {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, family := range []*family{v4, v6} {
			var invalid problem.Fields
			first, last, length := family.parseSpace("/x", text, &invalid)
			want, ok := spaceByNetip(text)
			if ok = ok && want.Addr().BitLen() == family.bits && !family.isMixed(text); ok != (len(invalid) == 0) {
				t.Fatalf("%q: got the errors %v, want it valid, as by net/netip, %t", text, invalid, ok)
			}
			if !ok {
				continue
			}
			if first != want.Addr() || last != netipx.PrefixLastIP(want) || (length == nil) != want.IsSingleIP() ||
				length != nil && *length != want.Bits() {
				t.Fatalf("%q: got %s to %s, want %s", text, first, last, want)
			}
			var second problem.Fields
			if f2, l2, _ := family.parseSpace("/x", want.String(), &second); f2 != first || l2 != last || len(second) > 0 {
				t.Fatalf("%q, written as %s: got %s to %s, want %s to %s", text, want, f2, l2, first, last)
			}
		}
	})
}

// spaceByNetip parses a text with net/netip alone.
func spaceByNetip(text string) (netip.Prefix, bool) {
	if a, err := netip.ParseAddr(text); err == nil {
		return netip.PrefixFrom(a, a.BitLen()), a.Zone() == "" && !a.Is4In6()
	}
	p, err := netip.ParsePrefix(text)
	return p, err == nil && p == p.Masked() && !p.Addr().Is4In6()
}

// FuzzEntity checks that every accepted combination of members is consistent.
func FuzzEntity(f *testing.F) {
	for i, text := range nasty {
		f.Add(text, nasty[(i*7+3)%len(nasty)], nasty[(i*5+1)%len(nasty)], "255.255.255.0")
	}
	f.Add("192.0.2.5", "192.0.2.9", "192.0.2.1", "255.255.255.0")
	f.Fuzz(func(t *testing.T, address, end, gateway, mask string) {
		optional := func(text string) *ipText {
			if text == "" {
				return nil
			}
			canonical := ipText(ipText(text).Canonical())
			var as, was problem.Fields
			parseV6(new(ipText(text)), nil, nil, &as)
			if parseV6(&canonical, nil, nil, &was); len(as) != len(was) {
				t.Fatalf("%q, written as %q: got the errors %v, want %v", text, canonical, was, as)
			}
			return &canonical
		}
		var invalid problem.Fields
		if s := parseV4(
			optional(address),
			optional(end),
			optional(gateway),
			(*string)(optional(mask)),
			&invalid,
		); len(invalid) == 0 &&
			s.First != nil {
			if !s.First.Is4() || !s.Last.Is4() || s.Last.Less(*s.First) || s.Mask != nil && s.Bits != nil ||
				s.Mask != nil && !netip.PrefixFrom(*s.First, *s.Mask).Masked().Contains(*s.Last) {
				t.Fatalf("%q to %q: got %+v, want IPv4 addresses in order, in their mask", address, end, s)
			}
		}
		invalid = nil
		if s := parseV6(optional(address), nil, optional(gateway), &invalid); len(invalid) == 0 && s.First != nil {
			if !s.First.Is6() || s.First.Is4In6() || s.First.Zone() != "" || s.Last.Less(*s.First) {
				t.Fatalf("%q: got %+v, want IPv6 addresses in order and without a zone", address, s)
			}
		}
	})
}

// FuzzMask compares a parsed subnet mask with its length.
func FuzzMask(f *testing.F) {
	for _, text := range append(nasty, "255.255.255.0", "255.0.255.0", "0.0.0.0", "255.255.255.255", "128.0.0.0", "0.0.0.255") {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var invalid problem.Fields
		length := parseMask("/x", text, &invalid)
		if (length == nil) != (len(invalid) == 1) {
			t.Fatalf("%q: got the length %v and the errors %v, want one of the two", text, length, invalid)
		}
		if length == nil {
			return
		}
		all := netip.MustParseAddr("255.255.255.255")
		if back := netip.PrefixFrom(all, *length).Masked().Addr().String(); back != text || *length == 0 {
			t.Fatalf("%q: got /%d, the mask of which is %s, want the same mask and not /0", text, *length, back)
		}
	})
}

// FuzzSeries checks that every accepted series is within the limit and has adjacent entities.
func FuzzSeries(f *testing.F) {
	for i, text := range nasty {
		f.Add(text, nasty[(i*7+3)%len(nasty)], "", int64(i), int32(i), false)
		f.Add("", "", text, int64(1), int32(64), true)
	}
	f.Add("192.0.2.0", "192.0.2.255", "192.0.2.1", int64(8), int32(0), false)
	f.Add("2001:db8::", "2001:db8::ffff", "", int64(1), int32(126), true)
	f.Fuzz(func(t *testing.T, from, to, gateway string, increment int64, length int32, prefixes bool) {
		s := series{span: span{From: &from, To: &to}}
		if strings.Contains(to, "/") {
			s = series{span: span{Prefix: &to}}
		}
		if prefixes && length >= 1 && length <= 128 {
			s.Length = &length
		} else if increment >= 1 {
			s.Increment = &increment
		}
		if gateway != "" {
			s.Gateway = &gateway
		}
		var invalid problem.Fields
		s.Resolve(&invalid)
		if len(invalid) > 0 {
			return
		}
		if n := len(s.firstAddresses); n == 0 || n > maxSeries || n != len(s.lastAddresses) || n != len(s.vlans) {
			t.Fatalf("got %d entities, %d last addresses and %d VLANs, want 1 to %d of each", n, len(s.lastAddresses), len(s.vlans), maxSeries)
		}
		for i := range s.firstAddresses {
			if s.lastAddresses[i].Less(s.firstAddresses[i]) || s.firstAddresses[i].Less(s.first) || s.last.Less(s.lastAddresses[i]) ||
				i > 0 && !s.lastAddresses[i-1].Less(s.firstAddresses[i]) {
				t.Fatalf("got entity %d from %s to %s, want them in order within %s to %s", i, s.firstAddresses[i], s.lastAddresses[i], s.first, s.last)
			}
			if s.bits != nil && netipx.PrefixLastIP(netip.PrefixFrom(s.firstAddresses[i], *s.bits)) != s.lastAddresses[i] {
				t.Fatalf("got %s to %s, want a /%d", s.firstAddresses[i], s.lastAddresses[i], *s.bits)
			}
		}
	})
}

// FuzzSearch checks that every search yields valid ranges for the database.
func FuzzSearch(f *testing.F) {
	for _, text := range append(nasty, "192.0.2", "2001:db8", "2001:db8::", "10.0.0.1-10.0.0.9", "::1-::2", "1.256", "1.2.3.4.5") {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, q string) {
		for _, source := range append(searchAddresses(q), searchBeginning(q)...) {
			args := source.Where[0].Args
			first, last := args[0].(netip.Addr), args[len(args)-1].(netip.Addr)
			if !first.IsValid() || last.Less(first) || first.Zone() != "" || first.Is4In6() || first.Is4() != last.Is4() {
				t.Fatalf("%q: got a search from %s to %s, want addresses of one family in order", q, first, last)
			}
		}
	})
}

// FuzzBeginning checks that each beginning of an address with a separator finds it, in both spellings, and that every
// IPv4 address that is found starts with the text.
func FuzzBeginning(f *testing.F) {
	f.Add(uint64(0xc0000207), uint64(0), 6)
	f.Add(uint64(0x20010db8000d0000), uint64(1), 9)
	f.Add(uint64(0x20010db80d000001), uint64(0x1234123412341234), 12)
	f.Fuzz(func(t *testing.T, upper, lower uint64, cut int) {
		four := netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, uint32(upper))))
		six := netip.AddrFrom16([16]byte(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, upper), lower)))
		if six.Is4In6() {
			return
		}
		for text, a := range map[string]netip.Addr{four.String(): four, six.String(): six, six.StringExpanded(): six} {
			q := text[:max(0, min(cut, len(text)))]
			if _, err := netip.ParseAddr(
				q,
			); err == nil || !strings.ContainsAny(q, ".:") || strings.HasPrefix(q, ":") ||
				strings.Contains(q[:len(q)-1], "::") {
				continue
			}
			_, spans := spansBeginning(q)
			if !slices.ContainsFunc(spans, func(r netipx.IPRange) bool { return r.Contains(a) }) {
				t.Fatalf("%q: got the ranges %v, want %s in one of them", q, spans, a)
			}
			for _, r := range spans {
				if a.Is4() && (!strings.HasPrefix(r.From().String(), q) || !strings.HasPrefix(r.To().String(), q)) {
					t.Fatalf("%q: got the ranges %v, want only addresses that begin so", q, spans)
				}
			}
		}
	})
}
