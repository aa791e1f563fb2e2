package gateway

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// maxHops bounds how many proxies in a row the gateway trusts.
const maxHops = 32

// callerAddress returns the caller's own address. It starts with the peer of the connection. As long as the address belongs to a
// trusted proxy, it goes on with the address that this proxy forwards for. Headers from untrusted peers, and malformed ones, are
// ignored.
func (g *Gateway) callerAddress(r *http.Request) netip.Addr {
	address := peerAddress(r)
	if !g.isTrusted(address) {
		return address
	}
	x, f := r.Header.Values("X-Forwarded-For"), r.Header.Values("Forwarded")
	if len(x) == 0 {
		return g.walkProxies(address, parseForwarded(f))
	}
	caller := g.walkProxies(address, splitNonEmpty(strings.Join(x, ",")))
	// A proxy that sets only one of the two headers passes the other one on as the caller sent it.
	if len(f) > 0 && g.walkProxies(address, parseForwarded(f)) != caller {
		return address
	}
	return caller
}

// peerAddress returns the address of the other end of the connection.
func peerAddress(r *http.Request) netip.Addr {
	peer, _ := netip.ParseAddrPort(r.RemoteAddr)
	return canonicalAddress(peer.Addr())
}

// walkProxies follows hops from the nearest one, which is the last, while the current address is a trusted proxy and the hop can
// be parsed.
func (g *Gateway) walkProxies(address netip.Addr, hops []string) netip.Addr {
	for i, hop := range slices.Backward(hops) {
		if !g.isTrusted(address) || len(hops)-i > maxHops {
			break
		}
		previous, ok := parseNode(hop)
		if !ok {
			break
		}
		address = previous
	}
	return address
}

func (g *Gateway) isTrusted(a netip.Addr) bool {
	return slices.ContainsFunc(g.config.TrustedProxies, func(p netip.Prefix) bool { return p.Contains(a) })
}

// canonicalAddress returns the address without an IPv6 zone, and as IPv4 if it is one mapped to IPv6.
func canonicalAddress(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }

// parseNode parses an address with or without a port.
func parseNode(s string) (netip.Addr, bool) {
	if a, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(s, "["), "]")); err == nil && a.Zone() == "" {
		return a.Unmap(), true
	}
	p, err := netip.ParseAddrPort(s)
	if err != nil || p.Addr().Zone() != "" {
		return netip.Addr{}, false
	}
	return p.Addr().Unmap(), true
}

func splitNonEmpty(list string) []string {
	var hops []string
	for hop := range strings.SplitSeq(list, ",") {
		if hop = strings.Trim(hop, " \t"); hop != "" {
			hops = append(hops, hop)
		}
	}
	return hops
}
