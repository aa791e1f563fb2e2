package throttle

import (
	"math"
	"net/netip"
	"time"
)

// Levels is the number of networks of an address that count: for IPv4 the address, its /24, /20 and /16, for IPv6 its
// /64, /56, /48 and /32.
const Levels = 4

// Networks returns the networks of an address that count, from the narrowest to the widest. All unknown addresses share
// the zero Prefix.
func Networks(from netip.Addr) (all [Levels]netip.Prefix) {
	from = from.Unmap()
	bits := [Levels]int{32, 24, 20, 16}
	if from.Is6() {
		bits = [Levels]int{64, 56, 48, 32}
	}
	for i := range all {
		all[i], _ = from.Prefix(bits[i])
	}
	return all
}

// Weight weighs the counts of an address's networks, from the narrowest to the widest. A wider network has more people
// who have nothing to do with each other. So each level counts a quarter of the one before, and a count by its root: a
// person near an attacker weighs less than the attacker.
func Weight(counts [Levels]int) (weight float64) {
	for _, count := range counts {
		weight = 4*weight + math.Sqrt(float64(count))
	}
	return weight
}

const (
	// halfLife is how long it takes until a guess counts half.
	halfLife = 5 * time.Minute
	// maxNetworks bounds how many networks are remembered. Beyond it, guesses count half sooner.
	maxNetworks = 20_000
	// maxHalvings is how often any count can be halved until it is 0.
	maxHalvings = 62
)

// usage is what is known of a network.
type usage struct {
	prefix  netip.Prefix
	present int // callers that wait or are served
	guesses int // in the past
}

// networks are the networks of a caller.
type networks [Levels]*usage

// weight returns how much a caller's networks have guessed, or may be about to.
func (n *networks) weight() float64 {
	var counts [Levels]int
	for i, u := range n {
		counts[i] = u.present + u.guesses
	}
	return Weight(counts)
}

// history remembers the networks of the present callers, and those that have guessed.
type history struct {
	usages map[netip.Prefix]*usage
	halved time.Time // when guesses were halved
}

func newHistory(now time.Time) history { return history{map[netip.Prefix]*usage{}, now} }

// enter adds a caller to its networks, and returns them.
func (h *history) enter(from netip.Addr) (n networks) {
	for i, prefix := range Networks(from) {
		if h.usages[prefix] == nil {
			h.usages[prefix] = &usage{prefix: prefix}
		}
		n[i] = h.usages[prefix]
		n[i].present++
	}
	return n
}

// leave removes a caller from its networks. A network is forgotten at once unless it has guessed: otherwise callers that are
// refused could fill the history.
func (h *history) leave(n networks, guesses int) {
	for _, u := range n {
		u.present--
		u.guesses += guesses
		h.forgetUnused(u)
	}
	now := time.Now()
	if due := now.Sub(h.halved) / halfLife; due > 0 {
		h.halve(int(min(due, maxHalvings)))
		h.halved = h.halved.Add(due * halfLife)
	}
	for range maxHalvings {
		if len(h.usages) <= maxNetworks {
			return
		}
		h.halve(1)
	}
}

// halve halves the guesses this many times.
func (h *history) halve(times int) {
	for _, u := range h.usages {
		u.guesses >>= times
		h.forgetUnused(u)
	}
}

func (h *history) forgetUnused(u *usage) {
	if u.guesses == 0 && u.present == 0 {
		delete(h.usages, u.prefix)
	}
}
