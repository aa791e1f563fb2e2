package access

import (
	"context"
	"net/netip"

	"github.com/ironplane/ironplane/pkg/auth/principal"
)

// Address returns the address that the request comes from.
func Address(ctx context.Context) netip.Addr {
	if ip := principal.FromContext(ctx).IP; ip.IsValid() {
		return ip
	}
	return netip.IPv6Unspecified()
}

// Network returns the caller's network: its IPv4 address, or the /64 of its IPv6 address. Sign-ins from one network count as
// sign-ins from one place.
func Network(ctx context.Context) netip.Prefix {
	ip := Address(ctx)
	bits := 32
	if ip.Is6() {
		bits = 64
	}
	network, _ := ip.Prefix(bits)
	return network
}
