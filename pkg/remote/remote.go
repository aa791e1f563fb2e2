// Package remote has checks for resources that describe another system: its address, and the key to call it.
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

// RequireKey refuses an edit that changes a system's address without its key, the member at pointer. Otherwise the
// stored key, which nobody can read, would be sent to an address of the editor's choice.
func RequireKey(moved bool, key *secret.String, pointer string) error {
	if kept := key != nil && key.IsZero(); !moved || !kept {
		return nil
	}
	return problem.Member(pointer, "required", "is required if the address changes, because the key is sent there")
}
