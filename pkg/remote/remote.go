// Package remote is what resources have in common that describe another system: where it is called, and with which key.
package remote

import (
	"net/netip"
	"regexp"
	"strings"

	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/secret"
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

// RequireKey refuses an edit that moves an agent to another address without the key that it is called with, the member at
// pointer: a key that is kept, and shown to nobody, would be sent to whom the editor chose.
func RequireKey(moved bool, key *secret.String, pointer string) error {
	if kept := key != nil && key.IsZero(); !moved || !kept {
		return nil
	}
	return problem.Member(pointer, "required", "is required where the address changes that it is sent to")
}
