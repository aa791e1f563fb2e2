package keys

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/services/identity/access"
)

// maxNetworks bounds the networks that a key can be good from.
const maxNetworks = 50

// checkNetworks checks the networks that a key is good from, and writes them in the form of the column allowed_cidrs.
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

func parseNetwork(text string) (netip.Prefix, error) {
	if address, err := netip.ParseAddr(text); err == nil && address.Zone() == "" {
		return address.Unmap().Prefix(address.Unmap().BitLen())
	}
	network, err := netip.ParsePrefix(text)
	if err == nil && network.Addr().Is4In6() {
		err = fmt.Errorf("%s is of IPv4 addresses, and does not say so", text)
	}
	return network.Masked(), err
}

// networksOf reads the column allowed_cidrs.
func networksOf(kept []string) (all []netip.Prefix) {
	for _, text := range kept {
		network, _ := parseNetwork(text) // an unreadable one holds no address; to leave it out could make the key good from anywhere
		all = append(all, network)
	}
	return all
}

// mayComeFrom refuses a key that is good from where the calling key is not. A key without networks gets the calling key's.
func mayComeFrom(c access.Caller, b *Body) error {
	if len(c.Networks) == 0 {
		return nil
	}
	if len(b.Networks) == 0 {
		b.Networks = c.Networks
	}
	if network := Outside(b.Networks, c.Networks); network.IsValid() {
		return problem.Member("/allowed_cidrs", "out_of_range", "has %s, from where the calling key is not good", network)
	}
	return nil
}

// Outside returns the first of networks that is within none of others; the zero Prefix where there is none.
func Outside(networks, others []string) netip.Prefix {
	for _, network := range networksOf(networks) {
		if !slices.ContainsFunc(
			networksOf(others),
			func(o netip.Prefix) bool { return o.Bits() <= network.Bits() && o.Contains(network.Addr()) },
		) {
			return network
		}
	}
	return netip.Prefix{}
}
