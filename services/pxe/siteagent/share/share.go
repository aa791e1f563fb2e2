// Package share bounds what callers without a key use at the same time, so that one of them cannot keep out the others.
package share

import (
	"net"
	"net/netip"
	"sync"
)

// networkBits is the size of the IPv6 network that has a share, because a host can choose any address in its /64.
const networkBits = 64

// Max is how much may be in use at the same time.
type Max struct {
	Total      int
	PerNetwork int // for each IPv6 /64
	PerAddress int
}

// Scope is the part of a limit that is used up.
type Scope int

// The scopes, from none to the whole limit.
const (
	None Scope = iota
	Address
	Network
	Total
)

// Covers reports whether b counts against the same part of the limit as a.
func (s Scope) Covers(a, b netip.Addr) bool {
	switch s {
	case Address:
		return plain(a) == plain(b)
	case Network:
		return networkOf(a) == networkOf(b)
	}
	return s == Total
}

// Limit counts what is in use. It reports refusals to Refusals.
type Limit struct {
	name     string
	max      Max
	refusals *Refusals

	mu        sync.Mutex
	total     int
	byAddress map[netip.Addr]int
	byNetwork map[netip.Prefix]int
}

// NewLimit returns a limit that is not in use yet. The name is a slug for metrics and logs.
func NewLimit(name string, limits Max, refusals *Refusals) *Limit {
	refusals.counter.WithLabelValues(name)
	return &Limit{name: name, max: limits, refusals: refusals, byAddress: map[netip.Addr]int{}, byNetwork: map[netip.Prefix]int{}}
}

// Enter counts one more use by an address until Leave. It returns the scope that is used up, or None.
func (l *Limit) Enter(from netip.Addr) Scope {
	from = plain(from)
	network := networkOf(from)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.byAddress[from] >= l.max.PerAddress:
		return Address
	case from.Is6() && l.byNetwork[network] >= l.max.PerNetwork:
		return Network
	case l.total >= l.max.Total:
		return Total
	}
	l.total++
	l.byAddress[from]++
	l.byNetwork[network]++
	return None
}

// Leave ends a use that Enter counted.
func (l *Limit) Leave(from netip.Addr) {
	from = plain(from)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total--
	leave(l.byAddress, from)
	leave(l.byNetwork, networkOf(from))
}

func leave[K comparable](counts map[K]int, key K) {
	if counts[key]--; counts[key] == 0 {
		delete(counts, key)
	}
}

// Used returns how many uses are counted.
func (l *Limit) Used() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total
}

// Refuse records that an address was refused.
func (l *Limit) Refuse(from netip.Addr) { l.refusals.add(l.name, plain(from)) }

// plain returns an address without its zone. An IPv4 address in an IPv6 one becomes the IPv4 address.
func plain(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }

// networkOf returns an IPv4 address, or the /64 of an IPv6 address.
func networkOf(a netip.Addr) netip.Prefix {
	a = plain(a)
	p, _ := a.Prefix(min(a.BitLen(), networkBits)) // an unknown address has the zero Prefix, so all such callers count as one
	return p
}

// AddressOf returns the IP address of a connection's peer.
func AddressOf(peer net.Addr) netip.Addr {
	addrPort, _ := netip.ParseAddrPort(peer.String()) // an unknown address counts as one caller
	return addrPort.Addr()
}
