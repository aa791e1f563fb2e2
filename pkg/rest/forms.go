package rest

import (
	"net/netip"
	"regexp"
	"strings"
)

var hostForm = regexp.MustCompile(`^([A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.)*[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?$`)

// IsHost tells whether a text is the name or the address of a host.
func IsHost(text string) bool {
	address, err := netip.ParseAddr(text)
	return err == nil && address.Zone() == "" || hostForm.MatchString(text)
}

// IsHeaderValue tells whether a text can be sent in a header.
func IsHeaderValue(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' })
}
