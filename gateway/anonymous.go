package gateway

import (
	"context"
	"net/http"
	"net/netip"
	"strconv"

	"github.com/ironplane/ironplane/gateway/limits"
	"github.com/ironplane/ironplane/pkg/auth/principal"
)

// anonymousCaller is a caller without a key that is known to be valid. His requests are counted by address.
type anonymousCaller struct {
	rate    *limits.Rate[netip.Prefix]
	header  http.Header
	network netip.Prefix
	counted bool
}

func (a *anonymousCaller) count(ctx context.Context) error {
	if a.counted {
		return nil
	}
	err := a.rate.Take(ctx, a.header, a.network)
	a.counted = err == nil
	return err
}

// refund is for who turned out to have a valid key, or may have one.
func (a *anonymousCaller) refund() {
	if a.counted {
		a.rate.Refund(a.network)
		a.counted = false
	}
}

// callerNetwork is what counts as one caller: an IPv4 address, or the /64 that a site's host may choose from freely.
func callerNetwork(a netip.Addr) netip.Prefix {
	bits := 32
	if a.Is6() {
		bits = 64
	}
	p, _ := a.Prefix(bits) // of an address that is unknown: the zero Prefix, for all of these
	return p
}

func ownerName(o principal.Owner) string { return string(o.Type) + ":" + strconv.FormatInt(o.ID, 10) }
