package keys

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/services/identity/access"
)

// maxNetworks bounds the networks that a key lists.
const maxNetworks = 50

// checkNetworks checks the networks of a member, and returns them as their column stores them.
func checkNetworks(member string, texts []string, invalid *problem.Fields) []string {
	if len(texts) > maxNetworks {
		invalid.Add(member, "too_long", "can have at most %d networks", maxNetworks)
		return texts
	}
	networks := []string{}
	for _, text := range texts {
		network, err := parseNetwork(text)
		if err != nil {
			invalid.Add(member, "invalid", "must be networks such as 192.0.2.0/24 and 2001:db8::/32, or addresses")
			return texts
		}
		networks = append(networks, network.String())
	}
	return networks
}

// parseNetwork reads a network, or an address as the network that has only this address.
func parseNetwork(text string) (netip.Prefix, error) {
	if address, err := netip.ParseAddr(text); err == nil && address.Zone() == "" {
		return address.Unmap().Prefix(address.Unmap().BitLen())
	}
	network, err := netip.ParsePrefix(text)
	if err == nil && network.Addr().Is4In6() {
		err = fmt.Errorf("%s is an IPv4 network in IPv6 notation", text)
	}
	return network.Masked(), err
}

// parseNetworks reads a column with networks.
func parseNetworks(texts []string) (all []netip.Prefix) {
	for _, text := range texts {
		network, _ := parseNetwork(text) // an invalid network contains no address; without it the key might work from anywhere
		all = append(all, network)
	}
	return all
}

// checkCallerNetworks refuses a key that could be used from networks outside the calling key's, or that could begin sessions
// outside those of the calling key's sessions. A key without networks gets the calling key's.
func checkCallerNetworks(c access.Caller, b *Body) error {
	if len(c.Networks) > 0 && len(b.Networks) == 0 {
		b.Networks = c.Networks
	}
	if len(c.SessionNetworks) > 0 && len(b.SessionNetworks) == 0 {
		b.SessionNetworks = c.SessionNetworks
	}
	if network := firstOutsideCaller(b.Networks, c.Networks); network.IsValid() {
		return problem.Member("/allowed_cidrs", "out_of_range", "has %s, which lies outside the calling key's networks", network)
	}
	if len(b.SessionNetworks) == 0 { // the sessions are bound to the key's own networks
		return nil
	}
	if network := firstOutsideCaller(b.SessionNetworks, ForSessions(c.Networks, c.SessionNetworks)); network.IsValid() {
		return problem.Member(
			"/session_cidrs",
			"out_of_range",
			"has %s, which lies outside the networks of the calling key's sessions",
			network,
		)
	}
	return nil
}

// firstOutsideCaller is FirstOutside for a calling key. One without networks has no limits.
func firstOutsideCaller(networks, callers []string) netip.Prefix {
	if len(callers) == 0 {
		return netip.Prefix{}
	}
	return FirstOutside(networks, callers)
}

// ForSessions returns the networks of the sessions that a key begins.
func ForSessions(networks, sessionNetworks []string) []string {
	if len(sessionNetworks) > 0 {
		return sessionNetworks
	}
	return networks
}

// FirstOutside returns the first of networks that lies within none of others, or the zero Prefix.
func FirstOutside(networks, others []string) netip.Prefix {
	for _, network := range parseNetworks(networks) {
		if !slices.ContainsFunc(
			parseNetworks(others),
			func(o netip.Prefix) bool { return o.Bits() <= network.Bits() && o.Contains(network.Addr()) },
		) {
			return network
		}
	}
	return netip.Prefix{}
}
