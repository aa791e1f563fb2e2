// Package revocation tests that a revoked key stops working in time, whatever else fails.
package revocation

import (
	"encoding/hex"
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/apikey"

	"github.com/ironplane/ironplane/pkg/auth/keycache"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/identity/keys"
)

var full = flag.Bool(
	"full",
	false,
	"combine all revocations with all faults, split and in one process, with more load and longer outages",
)

// maxDelay is how long after the response a revoked key may still work.
const maxDelay = 100 * time.Millisecond

// fault is something that goes wrong while a key is revoked.
type fault struct {
	name         string
	gateways     int
	fillsEntries bool // entries are being filled all the time; otherwise they are as fresh as possible when the fault begins
	rare         bool // only -full includes it
	begin        func(*stand)
	end          func(*stand)
}

func noFault(*stand) {}

var faults = []fault{
	{"healthy", 1, false, false, noFault, noFault},
	{"two gateways", 2, true, false, noFault, noFault},
	{"the services' link cut", 1, false, false, func(s *stand) { s.servicesToRedis.cut() }, func(s *stand) { s.servicesToRedis.mend() }},
	{"the services' link stalled", 1, false, false, func(s *stand) { s.servicesToRedis.stall() }, func(s *stand) { s.servicesToRedis.heal() }},
	{
		"the services' link too slow",
		2,
		false,
		true,
		func(s *stand) { s.servicesToRedis.slow(2 * time.Second) },
		func(s *stand) { s.servicesToRedis.heal() },
	},
	{"the gateway's link cut", 1, true, false, func(s *stand) { s.gatewaysToRedis.cut() }, func(s *stand) { s.gatewaysToRedis.mend() }},
	{"the gateway's link stalled", 1, true, false, func(s *stand) { s.gatewaysToRedis.stall() }, func(s *stand) { s.gatewaysToRedis.heal() }},
	{
		"the gateway's link slow",
		1,
		true,
		true,
		func(s *stand) { s.gatewaysToRedis.slow(60 * time.Millisecond) },
		func(s *stand) { s.gatewaysToRedis.heal() },
	},
	{
		"both links cut",
		2,
		false,
		true,
		func(s *stand) { s.servicesToRedis.cut(); s.gatewaysToRedis.cut() },
		func(s *stand) { s.servicesToRedis.mend(); s.gatewaysToRedis.mend() },
	},
	{"fills held up before they read", 2, true, false, func(s *stand) { s.identity.question.Store(int64(600 * time.Millisecond)) }, noFault},
	{"fills held up before they land", 2, true, false, func(s *stand) { s.servicesToRedis.slow(50 * time.Millisecond) }, noFault},
	{"fills held up before they answer", 2, true, false, func(s *stand) { s.identity.answer.Store(int64(600 * time.Millisecond)) }, noFault},
}

// endings are the ways in which a key stops being valid. revoke returns when the response arrived and when the key
// became invalid.
var endings = []struct {
	name   string
	revoke func(s *stand, admin int64, key keys.APIKey) (answered, ended time.Time)
}{
	{"key deleted", func(s *stand, _ int64, key keys.APIKey) (answered, ended time.Time) {
		s.admin.Do("DELETE", fmt.Sprintf("/auth/key/%d", key.ID), nil).Want(200)
		answered = time.Now()
		return answered, answered
	}},
	{"owner deleted", func(s *stand, admin int64, _ keys.APIKey) (answered, ended time.Time) {
		s.admin.Do("DELETE", fmt.Sprintf("/admin/%d", admin), nil).Want(200)
		answered = time.Now()
		return answered, answered
	}},
	{"owner disabled", func(s *stand, admin int64, _ keys.APIKey) (answered, ended time.Time) {
		s.admin.Do("PATCH", fmt.Sprintf("/admin/%d", admin), `{"disabled": true}`).Want(200)
		answered = time.Now()
		return answered, answered
	}},
	{"permission lost", func(s *stand, admin int64, _ keys.APIKey) (answered, ended time.Time) {
		s.admin.Do("PATCH", fmt.Sprintf("/admin/%d/permission", admin), `{"network": {"switches": {"read": false}}}`).Want(200)
		answered = time.Now()
		return answered, answered
	}},
	{"key expires", func(s *stand, _ int64, key keys.APIKey) (answered, ended time.Time) {
		end := time.Now().Add(10 * time.Second).Truncate(time.Second) // long enough even if the fault delays the check of the admin's own key
		s.admin.Do("PATCH", fmt.Sprintf("/auth/key/%d", key.ID), map[string]any{"name": "brief",
			"expires_at": map[string]any{"unix": end.Unix(), "iso_8601": end.UTC().Format(time.RFC3339)}}).Want(200)
		answered = time.Now()
		ended = answered.Add(max(0, end.Sub(answered))) // with the monotonic clock
		time.Sleep(time.Until(ended))
		return answered, ended
	}},
}

// TestRevocation uses a key continuously, revokes it during a fault, and tests that no request after maxDelay is
// accepted.
func TestRevocation(t *testing.T) {
	t.Parallel()
	for _, topology := range []topology{split, together} {
		for i, ending := range endings {
			for _, fault := range faults {
				if !*full && (topology != split || fault.rare || i > 0 && fault.name != "healthy") {
					continue
				}
				t.Run(fmt.Sprintf("%s, %s, %s", ending.name, fault.name, topology), func(t *testing.T) {
					t.Parallel()
					testRevocation(t, newStand(t, topology, fault.gateways, nil), ending.revoke, fault)
				})
			}
		}
	}
}

func testRevocation(
	t *testing.T,
	s *stand,
	revoke func(s *stand, admin int64, key keys.APIKey) (answered, ended time.Time),
	fault fault,
) {
	admin, key := s.user("user")
	s.fillList()
	l := newLoad(t, s.gateways, portSpeeds, key.Key)
	l.awaitMore(t, &l.good, connections)
	stop := func() {}
	if fault.fillsEntries {
		stop = s.flushRepeatedly()
	} else {
		s.refill(key)
	}
	u := s.open(key.Key)
	fault.begin(s)
	l.awaitMore(t, &l.good, connections)

	asked := time.Now()
	answered, ended := revoke(s, admin, key)
	checkTimeout := time.Second
	if fault.fillsEntries { // a running list ends after two delayed checks: one that was running, and its own
		checkTimeout = 3 * time.Second
	}
	l.awaitMore(t, &l.refused, connections)
	time.Sleep(checkTimeout)
	u.end()
	fault.end(s) // delayed messages arrive now
	time.Sleep(500 * time.Millisecond)
	stop()
	time.Sleep(2 * maxDelay)
	l.stop()

	last := l.began.Add(time.Duration(l.lastSent.Load())).Sub(ended)
	t.Logf("revoked after %v; the last accepted request was sent %v after that; %d accepted, %d refused, %d failed",
		answered.Sub(asked).Round(time.Millisecond), last.Round(time.Millisecond), l.good.Load(), l.refused.Load(), l.failed.Load())
	if last > maxDelay {
		t.Errorf("got an accepted request that was sent %v after the revocation, want %v at most", last, maxDelay)
	}
	if l.failed.Load() > 0 {
		t.Errorf("got %d failures, the last with %v, want none", l.failed.Load(), l.failure.Load())
	}
}

// refill has the entries of a key in use filled anew, so that they are as fresh as possible.
func (s *stand) refill(key keys.APIKey) {
	s.t.Helper()
	hash := apikey.Hash(key.Key)
	s.redis.FlushDB(s.t.Context())
	testkit.Eventually(s.t, "the key's entry is filled", func() bool {
		return s.redis.HExists(s.t.Context(), "entry:"+keycache.KeyName(hex.EncodeToString(hash[:])), "body").Val()
	})
	time.Sleep(20 * time.Millisecond) // until its owner's entry is filled, too
}

// flushRepeatedly empties Redis again and again until stop is called, so that entries are being filled all the
// time.
func (s *stand) flushRepeatedly() (stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-end:
				return
			case <-time.After(40 * time.Millisecond):
				s.redis.FlushDB(s.t.Context())
			}
		}
	}()
	return func() { close(end); <-ended }
}
