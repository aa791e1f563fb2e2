package script

import (
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/remote"
)

// ParseMACs parses the MAC addresses of a machine. It leaves out empty texts and duplicates.
func ParseMACs(invalid *problem.Fields, pointer string, texts ...string) (macs []string) {
	for _, text := range texts {
		mac, err := net.ParseMAC(text)
		switch {
		case text == "":
		case err != nil || len(mac) != 6:
			invalid.Add(pointer, "invalid", "must be a MAC address such as 52:54:00:12:34:56")
		case !slices.Contains(macs, mac.String()):
			macs = append(macs, mac.String())
		}
	}
	return macs
}

// CheckHostname refuses an invalid host name. An empty one is valid.
func CheckHostname(invalid *problem.Fields, name string) {
	if name != "" && !remote.IsHost(name) {
		invalid.Add("/host/hostname", "invalid", "must be a host name such as web1.example.com")
	}
}

// ParseNameservers parses addresses that are separated by spaces.
func ParseNameservers(invalid *problem.Fields, text string) []string {
	all := []string{}
	for one := range strings.FieldsSeq(text) {
		address, err := netip.ParseAddr(one)
		if err != nil {
			invalid.Add("/host/nameservers", "invalid", "must be IP addresses separated by spaces")
		}
		all = append(all, address.String())
	}
	return all
}
