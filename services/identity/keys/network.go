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

// checkNetworks checks the networks that a key may be used from, and writes them as the column allowed_cidrs stores them.
func (b *Body) checkNetworks(invalid *problem.Fields) {
	if len(b.Networks) > maxNetworks {
		invalid.Add("/allowed_cidrs", "too_long", "can have at most %d networks", maxNetworks)
		return
	}
	networks := []string{}
	for _, text := range b.Networks {
		network, err := parseNetwork(text)
		if err != nil {
			invalid.Add("/allowed_cidrs", "invalid", "must be networks such as 192.0.2.0/24 and 2001:db8::/32, or addresses")
			return
		}
		networks = append(networks, network.String())
	}
	b.Networks = networks
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

// parseNetworks reads the column allowed_cidrs.
func parseNetworks(texts []string) (all []netip.Prefix) {
	for _, text := range texts {
		network, _ := parseNetwork(text) // an invalid network contains no address; without it the key might work from anywhere
		all = append(all, network)
	}
	return all
}

// checkCallerNetworks refuses a key that could be used from networks outside the calling key's. A key without networks gets the
// calling key's.
func checkCallerNetworks(c access.Caller, b *Body) error {
	if len(c.Networks) == 0 {
		return nil
	}
	if len(b.Networks) == 0 {
		b.Networks = c.Networks
	}
	if network := FirstOutside(b.Networks, c.Networks); network.IsValid() {
		return problem.Member("/allowed_cidrs", "out_of_range", "has %s, which lies outside the calling key's networks", network)
	}
	return nil
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
