// Package lockout bounds how often secrets are guessed. A guess is counted before it is compared, so however many come
// at once, no more than the limit are compared; a right one is given back.
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

// Duration is how long a lockout lasts, and failures count from the first.
const Duration = 15 * time.Minute

// DeviceDuration is the Duration of guesses from known devices.
const DeviceDuration = time.Hour

// The limits are how many wrong guesses there may be.
const (
	MaxPerNameAndAddress = 5
	MaxPerKey            = 5
	MaxPerAddress        = 50
	MaxPerName           = 100
	MaxFromDevices       = 50 // of all known devices of an account, within DeviceDuration
	MaxCodes             = 20 // second factors' of an account, whatever they are for
)

// Guess is whose secret is guessed, and by whom.
type Guess struct {
	Name    string     // of the account that is tried, alike whether there is one: no secret
	Address netip.Addr // of the caller; of IPv6 its /64 counts
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
	// forgotten tells whether a right guess shows that the wrong ones were the same person's: of an address or a name that
	// others use, too, it shows nothing.
	resetOnSuccess bool
}

func (g Guess) counters() []counter {
	if g.KnownDevice {
		return []counter{{fmt.Sprintf("devices of %s", g.Name), MaxFromDevices, DeviceDuration, false}}
	}
	bits := 32
	if g.Address.Is6() {
		bits = 64
	}
	network, _ := g.Address.Prefix(bits) // of an address that is unknown: the zero Prefix, for all of these
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

// Lockouts counts guesses twice: in Redis, for all processes, and in this process, with the same limits. So while Redis is
// away or slow, there are as many times the limit as processes, and never more.
type Lockouts struct {
	shared shared
	local  *localCounters
}

// New makes lockouts by a client that cache.Open made.
func New(client *cache.Client, log *slog.Logger) *Lockouts {
	return &Lockouts{shared{cache.NewLink(client, "lockouts", log)}, newLocalCounters()}
}

// Try compares a guess, unless there were too many wrong ones: then the error is a 429, and nothing is compared. Where
// compare fails the guess does not count.
func (l *Lockouts) Try(ctx context.Context, g Guess, compare func() (right bool, err error)) (right bool, err error) {
	return l.try(ctx, g.counters(), "passwords", compare)
}

// TryCode is Try of an account's second factor: who guesses at it has the password already.
func (l *Lockouts) TryCode(ctx context.Context, account string, compare func() (right bool, err error)) (right bool, err error) {
	return l.try(ctx, []counter{{"codes of " + account, MaxCodes, Duration, false}}, "codes", compare)
}

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
			_ = l.shared.release(ctx, all, right) // where it cannot be, the guess counts as a wrong one until its time is over
		}
	}
	return right, err
}

func tooMany(guesses string, locked time.Duration) error {
	refused := problem.New(problem.TooManyRequests, "There were too many wrong %s. Try again later.", guesses)
	refused.RetryAfter = locked
	return refused
}
