// Package lockout bounds how often secrets can be guessed. A guess is counted before it is compared, so simultaneous
// guesses cannot exceed the limit. A right guess is not counted in the end.
package lockout

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"github.com/ironplane/ironplane/pkg/cache"
	"github.com/ironplane/ironplane/pkg/problem"
)

// Duration is how long a lockout lasts, and how long wrong guesses count from the first one on.
const Duration = 15 * time.Minute

// DeviceDuration is the Duration of guesses from known devices.
const DeviceDuration = time.Hour

// The limits are how many wrong guesses are allowed within the duration.
const (
	MaxPerNameAndAddress = 5
	MaxPerKey            = 5
	MaxPerAddress        = 50
	MaxPerName           = 100
	MaxFromDevices       = 50 // of all known devices of an account, within DeviceDuration
	MaxCodes             = 20 // of an account's second factors, for each way to ask for them
)

// Guess tells whose secret is guessed, and from where.
type Guess struct {
	Name    string     // of the account, whether or not it exists; not a secret
	Address netip.Addr // of the caller; an IPv6 address counts as its /64
	Key     int64      // the calling key; 0: none

	// KnownDevice is true if the account has signed in from the caller's device. Such guesses have a count of their own, so that
	// guesses of others do not lock them out.
	KnownDevice bool
}

// counter counts guesses of one kind.
type counter struct {
	name  string
	limit int
	// duration is how long a lockout lasts, and how long guesses count from the first one on.
	duration time.Duration
	// resetOnSuccess is true if a right guess shows that the wrong ones were the same person's. It shows nothing if
	// others share the address or the name.
	resetOnSuccess bool
}

// counters returns the counters that a guess counts against. IPv6 addresses count by their /64.
func (g Guess) counters() []counter {
	if g.KnownDevice {
		return []counter{{fmt.Sprintf("devices of %s", g.Name), MaxFromDevices, DeviceDuration, false}}
	}
	bits := 32
	if g.Address.Is6() {
		bits = 64
	}
	network, _ := g.Address.Prefix(bits) // all unknown addresses share the zero Prefix
	all := []counter{
		{fmt.Sprintf("name %s from %s", g.Name, network), MaxPerNameAndAddress, Duration, true},
		{fmt.Sprintf("address %s", network), MaxPerAddress, Duration, false},
		{fmt.Sprintf("name %s", g.Name), MaxPerName, Duration, false},
	}
	if g.Key != 0 {
		all = append(all, counter{fmt.Sprintf("key %d", g.Key), MaxPerKey, Duration, true})
	}
	return all
}

// Lockouts counts guesses twice with the same limits: in Redis for all processes, and in this process. While Redis is
// unavailable, at most the limit times the number of processes are compared.
type Lockouts struct {
	shared shared
	local  *localCounters
}

// New returns lockouts that use a client of cache.Open.
func New(client *cache.Client, log *slog.Logger) *Lockouts {
	return &Lockouts{shared{cache.NewLink(client, "lockouts", log)}, newLocalCounters()}
}

// Try calls compare, unless there were too many wrong guesses: then it returns a 429. A guess whose comparison fails
// with an error does not count.
func (l *Lockouts) Try(ctx context.Context, g Guess, compare func() (right bool, err error)) (right bool, err error) {
	return l.try(ctx, g.counters(), "passwords", compare)
}

// TryCode does the same for codes of second factors, whose caller already has the password. name is of the account, and of the way
// to ask for them.
func (l *Lockouts) TryCode(ctx context.Context, name string, compare func() (right bool, err error)) (right bool, err error) {
	return l.try(ctx, []counter{{"codes of " + name, MaxCodes, Duration, false}}, "codes", compare)
}

// try counts a guess against all counters, then compares. A right guess, or an error of the comparison, is taken back.
func (l *Lockouts) try(ctx context.Context, all []counter, guesses string, compare func() (right bool, err error)) (right bool, err error) {
	if locked := l.local.reserve(all); locked > 0 {
		return false, tooMany(guesses, locked)
	}
	locked, away := l.shared.reserve(ctx, all)
	if locked > 0 {
		l.local.release(all, false)
		return false, tooMany(guesses, locked)
	}
	if right, err = compare(); right || err != nil {
		l.local.release(all, right)
		if away == nil {
			_ = l.shared.release(ctx, all, right) // if it fails, the guess counts as a wrong one until the counter expires
		}
	}
	return right, err
}

// tooMany returns the 429 for a locked counter.
func tooMany(guesses string, locked time.Duration) error {
	refused := problem.New(
		problem.TooManyRequests,
		"There were too many wrong %s. Try again when the time in Retry-After has passed.",
		guesses,
	)
	refused.RetryAfter = locked
	return refused
}
