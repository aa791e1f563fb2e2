package gateway

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// maxHops bounds how many proxies are believed in a row.
const maxHops = 32

// callerAddress is the caller's own address: the other end of the connection or, as far as that is a trusted proxy, whom
// it says that it forwards for, and so on. What no trusted proxy vouches for is not read, nor what makes no sense.
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
	// A proxy that sets one of the two passes on what the caller made up for the other.
	if len(f) > 0 && g.walkProxies(address, parseForwarded(f)) != caller {
		return address
	}
	return caller
}

// peerAddress is the address of the other end of the connection.
func peerAddress(r *http.Request) netip.Addr {
	peer, _ := netip.ParseAddrPort(r.RemoteAddr)
	return canonicalAddress(peer.Addr())
}

// walkProxies goes back from the nearest hop, which stands last, as long as it is a trusted proxy that speaks.
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

func canonicalAddress(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }

// parseNode reads an address, with or without a port.
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
