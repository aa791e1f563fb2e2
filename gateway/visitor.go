package gateway

import (
	"context"
	"net/http"
	"net/netip"
	"strconv"
)

// visitor is who comes without a key that is known to be valid. What it costs is counted by address.
type visitor struct {
	limit   *limit[netip.Prefix]
	answer  http.Header
	network netip.Prefix
	charged bool
}

func (v *visitor) charge(ctx context.Context) error {
	if v.charged {
		return nil
	}
	err := v.limit.take(ctx, v.answer, v.network)
	v.charged = err == nil
	return err
}

// spare is for who turned out to have a valid key, or may have one.
func (v *visitor) spare() {
	if v.charged {
		v.limit.giveBack(v.network)
		v.charged = false
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

func keyName(id int64) string { return strconv.FormatInt(id, 10) }
