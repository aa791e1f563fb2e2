package gateway

import (
	"context"
	"net/http"
	"net/netip"
	"strconv"

	"github.com/ironplane/ironplane/gateway/limits"
	"github.com/ironplane/ironplane/pkg/auth/principal"
)

// anonymousCaller is a caller whose key is missing, invalid or not yet looked up. Its requests count against its network.
type anonymousCaller struct {
	rate    *limits.Rate[netip.Prefix]
	header  http.Header
	network netip.Prefix
	counted bool
}

// count counts the request against the network's rate limit, once however often it is called. The error is a 429.
func (a *anonymousCaller) count(ctx context.Context) error {
	if a.counted {
		return nil
	}
	err := a.rate.Take(ctx, a.header, a.network)
	a.counted = err == nil
	return err
}

// refund takes the count back. It is called for a caller whose key turned out to be valid, or could not be looked up.
func (a *anonymousCaller) refund() {
	if a.counted {
		a.rate.Refund(a.network)
		a.counted = false
	}
}

// callerNetwork returns the network that counts as one caller: an IPv4 address, or the /64 of an IPv6 address, because a host can
// choose any address in its /64.
func callerNetwork(a netip.Addr) netip.Prefix {
	bits := 32
	if a.Is6() {
		bits = 64
	}
	p, _ := a.Prefix(bits) // an unknown address has the zero Prefix, so all such callers count as one
	return p
}

// ownerName returns the name of an owner's counter in Redis.
func ownerName(o principal.Owner) string { return string(o.Type) + ":" + strconv.FormatInt(o.ID, 10) }
