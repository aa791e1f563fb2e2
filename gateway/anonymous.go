package gateway

import (
	"context"
	"net/http"
	"net/netip"
	"strconv"

	"github.com/ironplane/ironplane/gateway/limits"
	"github.com/ironplane/ironplane/pkg/auth/principal"
)

// anonymous is a caller without a key that is known to be valid. His requests are counted by address.
type anonymous struct {
	limit   *limits.Rate[netip.Prefix]
	answer  http.Header
	network netip.Prefix
	counted bool
}

func (a *anonymous) count(ctx context.Context) error {
	if a.counted {
		return nil
	}
	err := a.limit.Take(ctx, a.answer, a.network)
	a.counted = err == nil
	return err
}

// uncount is for who turned out to have a valid key, or may have one.
func (a *anonymous) uncount() {
	if a.counted {
		a.limit.GiveBack(a.network)
		a.counted = false
	}
}

// networkOf is what counts as one caller: an IPv4 address, or the /64 that a site's host may choose from freely.
func networkOf(a netip.Addr) netip.Prefix {
	bits := 32
	if a.Is6() {
		bits = 64
	}
	p, _ := a.Prefix(bits) // of an address that is unknown: the zero Prefix, for all of these
	return p
}

func ownerName(o principal.Owner) string { return string(o.Type) + ":" + strconv.FormatInt(o.ID, 10) }
