package machine

import (
	"net"
	"net/netip"
	"strconv"

	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/services/pxe/siteagent"
)

const (
	maxMACs        = 64
	maxNameservers = 16
	maxNameLength  = 253
	maxTokenLength = 200
	minTokenLength = 22 // 128 bits in base64
	// MaxFileSize is the largest size of one of a machine's files, in bytes.
	MaxFileSize = 2 << 20
)

// check returns all field errors of a machine.
func check(m *siteagent.Machine) error {
	var invalid problem.Fields
	if m.ID < 1 {
		invalid.Add("/id", "out_of_range", "must be 1 or more")
	}
	if len(m.MACs) == 0 || len(m.MACs) > maxMACs {
		invalid.Add("/macs", "invalid", "must be 1 to %d MAC addresses", maxMACs)
	}
	for i, text := range m.MACs {
		if mac, err := net.ParseMAC(text); err != nil || len(mac) != 6 || mac.String() != text {
			invalid.Add("/macs/"+strconv.Itoa(i), "invalid", "must be a MAC address such as 52:54:00:12:34:56")
		}
	}
	if len(m.Hostname) > maxNameLength {
		invalid.Add("/hostname", "too_long", "must have at most %d characters", maxNameLength)
	}
	checkAddress(&invalid, "/ipv4", m.IPv4, netip.Addr.Is4)
	checkAddress(&invalid, "/ipv6", m.IPv6, netip.Addr.Is6)
	if len(m.Nameservers) > maxNameservers {
		invalid.Add("/nameservers", "invalid", "must have at most %d addresses", maxNameservers)
	}
	for i, text := range m.Nameservers {
		if _, err := netip.ParseAddr(text); err != nil {
			invalid.Add("/nameservers/"+strconv.Itoa(i), "invalid", "must be an IP address")
		}
	}
	if len(m.Reason) > siteagent.MaxReasonLength {
		invalid.Add("/reason", "too_long", "must have at most %d bytes", siteagent.MaxReasonLength)
	}
	if m.Token != "" && (len(m.Token) < minTokenLength || len(m.Token) > maxTokenLength) {
		invalid.Add("/token", "invalid", "must have %d to %d characters", minTokenLength, maxTokenLength)
	}
	switch m.Boot {
	case siteagent.BootInstall:
		if m.Token == "" {
			invalid.Add("/token", "required", "is required when boot is install")
		}
		if m.Files.Boot == "" {
			invalid.Add("/files/boot", "required", "is required when boot is install")
		}
	case siteagent.BootWait, siteagent.BootLocal:
	default:
		invalid.Add("/boot", "invalid", "must be install, wait or local")
	}
	for name, text := range map[string]string{
		"boot": m.Files.Boot, "preseed": m.Files.Preseed, "during": m.Files.During, "after": m.Files.After,
	} {
		if len(text) > MaxFileSize {
			invalid.Add("/files/"+name, "too_long", "must have at most %d bytes", MaxFileSize)
		}
	}
	return invalid.Err()
}

// checkAddress adds the field errors of an address, unless it is nil.
func checkAddress(invalid *problem.Fields, pointer string, a *siteagent.Address, isFamily func(netip.Addr) bool) {
	if a == nil {
		return
	}
	if p, err := netip.ParsePrefix(a.Prefix); err != nil || !isFamily(p.Addr()) {
		invalid.Add(pointer+"/prefix", "invalid", "must be an address of this IP version with a prefix length")
	}
	if a.Gateway == "" {
		return
	}
	if gateway, err := netip.ParseAddr(a.Gateway); err != nil || !isFamily(gateway) {
		invalid.Add(pointer+"/gateway", "invalid", "must be an address of this IP version")
	}
}
