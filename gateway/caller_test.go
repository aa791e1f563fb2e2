package gateway

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
)

var behindProxies = &Gateway{config: Config{TrustedProxies: []netip.Prefix{
	netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8:ffff::/48"),
}}}

func findCaller(peer string, headers ...string) netip.Addr {
	r := httptest.NewRequest("GET", "/", http.NoBody)
	r.RemoteAddr = peer
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return behindProxies.callerAddress(r)
}

func TestCaller(t *testing.T) {
	t.Parallel()
	const x, f = "X-Forwarded-For", "Forwarded"
	for _, c := range []struct {
		want, peer string
		headers    []string
	}{
		{"192.0.2.1", "192.0.2.1:1", nil},
		{"192.0.2.1", "[::ffff:192.0.2.1]:1", nil},
		{"fe80::1", "[fe80::1%eth0]:1", nil},
		{"192.0.2.1", "192.0.2.1:1", []string{x, "203.0.113.1"}},
		{"203.0.113.1", "10.0.0.1:1", []string{x, "203.0.113.1"}},
		{"203.0.113.1", "10.0.0.1:1", []string{x, "198.51.100.9, 203.0.113.1"}},
		{"203.0.113.1", "10.0.0.1:1", []string{x, "198.51.100.9, 203.0.113.1, 10.0.0.2"}},
		{"203.0.113.1", "10.0.0.1:1", []string{x, "198.51.100.9", x, "203.0.113.1", x, "10.0.0.2"}},
		{"10.0.0.3", "10.0.0.1:1", []string{x, "10.0.0.3,10.0.0.2"}},
		{"203.0.113.1", "10.0.0.1:1", []string{x, "203.0.113.1:4711"}},
		{"2001:db8::1", "10.0.0.1:1", []string{x, "[2001:db8::1]:4711"}},
		{"2001:db8::1", "[2001:db8:ffff::1]:1", []string{x, "2001:db8::1"}},
		{"10.0.0.1", "10.0.0.1:1", []string{x, "garbage"}},
		{"10.0.0.2", "10.0.0.1:1", []string{x, "203.0.113.1, unknown, 10.0.0.2"}},
		{"10.0.0.1", "10.0.0.1:1", []string{x, "fe80::1%eth0"}},
		{"10.0.0.1", "10.0.0.1:1", []string{x, ""}},
		{"203.0.113.1", "10.0.0.1:1", []string{f, "for=203.0.113.1"}},
		{"203.0.113.1", "10.0.0.1:1", []string{f, `by=10.0.0.1;FOR="203.0.113.1:80";proto=https`}},
		{"2001:db8::1", "10.0.0.1:1", []string{f, `for="[2001:db8::1]:4711"`}},
		{"2001:db8::1", "10.0.0.1:1", []string{f, `for=1.1.1.1, for="\[2001:db8::1]" , for=10.0.0.9`}},
		{"203.0.113.1", "10.0.0.1:1", []string{f, `for="a,b;for=1.1.1.1", for=203.0.113.1`}},
		{"10.0.0.1", "10.0.0.1:1", []string{f, "for=_hidden"}},
		{"10.0.0.1", "10.0.0.1:1", []string{f, `for=203.0.113.1, for="`}},
		{"10.0.0.1", "10.0.0.1:1", []string{f, "proto=https"}},
		{"203.0.113.1", "10.0.0.1:1", []string{x, "203.0.113.1", f, "for=203.0.113.1"}},
		{"10.0.0.1", "10.0.0.1:1", []string{x, "203.0.113.1", f, "for=1.1.1.1"}},
		{"10.0.0.1", "10.0.0.1:1", []string{x, strings.Repeat("10.0.0.1,", 100) + "garbage"}},
	} {
		if got := findCaller(c.peer, c.headers...).String(); got != c.want {
			t.Errorf("%s with %v: got %s, want %s", c.peer, c.headers, got, c.want)
		}
	}
}

// The caller is the peer, if the peer is not trusted. Otherwise it is an address that the headers contain, or the peer.
func FuzzCaller(f *testing.F) {
	f.Add("203.0.113.1, 10.0.0.1", `for="[2001:db8::1]:4711";by=_x, for=10.0.0.1`)
	f.Add("[::1", `for="\`)
	f.Add(",,,", `;=;=,`)
	f.Fuzz(func(t *testing.T, x, forwarded string) {
		if got := findCaller("192.0.2.1:1", "X-Forwarded-For", x, "Forwarded", forwarded); got != netip.MustParseAddr("192.0.2.1") {
			t.Fatalf("got the anonymous caller %s, want 192.0.2.1", got)
		}
		for _, headers := range [][]string{{"X-Forwarded-For", x}, {"Forwarded", forwarded}, {"X-Forwarded-For", x, "Forwarded", forwarded}} {
			got := findCaller("10.0.0.1:1", headers...)
			if !got.IsValid() || got.Zone() != "" || got.Is4In6() {
				t.Fatalf("%q: got the caller %s, want a valid address without a zone, IPv4 as such", headers, got)
			}
		}
		for _, hop := range parseForwarded([]string{forwarded}) {
			if len(hop) > len(forwarded) {
				t.Fatalf("got the hop %q, want a part of %q", hop, forwarded)
			}
		}
	})
}
