// Package revocation shows that a key that is revoked does not work any more, whatever else is going wrong.
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

var full = flag.Bool("full", false, "every way of revoking with every fault, split and in one process, under more load, and longer outages")

// promise is how long after the answer a revoked key may still work.
const promise = 100 * time.Millisecond

type fault struct {
	name  string
	doors int
	fills bool // entries are always just being filled, and else are as young as can be when it begins
	rare  bool // it is left out where not all are tried
	begin func(*stand)
	end   func(*stand)
}

func nothing(*stand) {}

var faults = []fault{
	{"healthy", 1, false, false, nothing, nothing},
	{"two gateways", 2, true, false, nothing, nothing},
	{"the services' link cut", 1, false, false, func(s *stand) { s.services.cut() }, func(s *stand) { s.services.mend() }},
	{"the services' link stalled", 1, false, false, func(s *stand) { s.services.stall() }, func(s *stand) { s.services.heal() }},
	{"the services' link too slow", 2, false, true, func(s *stand) { s.services.slow(2 * time.Second) }, func(s *stand) { s.services.heal() }},
	{"the gateway's link cut", 1, true, false, func(s *stand) { s.gateways.cut() }, func(s *stand) { s.gateways.mend() }},
	{"the gateway's link stalled", 1, true, false, func(s *stand) { s.gateways.stall() }, func(s *stand) { s.gateways.heal() }},
	{
		"the gateway's link slow",
		1,
		true,
		true,
		func(s *stand) { s.gateways.slow(60 * time.Millisecond) },
		func(s *stand) { s.gateways.heal() },
	},
	{
		"both links cut",
		2,
		false,
		true,
		func(s *stand) { s.services.cut(); s.gateways.cut() },
		func(s *stand) { s.services.mend(); s.gateways.mend() },
	},
	{"fills held up before they read", 2, true, false, func(s *stand) { s.identity.question.Store(int64(600 * time.Millisecond)) }, nothing},
	{"fills held up before they land", 2, true, false, func(s *stand) { s.services.slow(50 * time.Millisecond) }, nothing},
	{"fills held up before they answer", 2, true, false, func(s *stand) { s.identity.answer.Store(int64(600 * time.Millisecond)) }, nothing},
}

// endings are how a key ends. Each answers when that was said, and from when on it was so.
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
		end := time.Now().Add(10 * time.Second).Truncate(time.Second) // a held-up decision of the admin's own key takes some of it
		s.admin.Do("PATCH", fmt.Sprintf("/auth/key/%d", key.ID), map[string]any{"name": "brief",
			"expires_at": map[string]any{"unix": end.Unix(), "iso_8601": end.UTC().Format(time.RFC3339)}}).Want(200)
		answered = time.Now()
		ended = answered.Add(max(0, end.Sub(answered))) // with the monotonic clock
		time.Sleep(time.Until(ended))
		return answered, ended
	}},
}

func TestRevocation(t *testing.T) {
	t.Parallel()
	for _, reached := range []way{split, together} {
		for i, ending := range endings {
			for _, fault := range faults {
				if !*full && (reached != split || fault.rare || i > 0 && fault.name != "healthy") {
					continue
				}
				t.Run(fmt.Sprintf("%s, %s, %s", ending.name, fault.name, reached), func(t *testing.T) {
					t.Parallel()
					testRevocation(t, newStand(t, reached, fault.doors, nil), ending.revoke, fault)
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
	l := newLoad(t, s.doors, portSpeeds, key.Key)
	l.more(t, &l.good, connections)
	stop := func() {}
	if fault.fills {
		stop = s.forget()
	} else {
		s.refill(key)
	}
	u := s.begin(key.Key)
	fault.begin(s)
	l.more(t, &l.good, connections)

	asked := time.Now()
	answered, ended := revoke(s, admin, key)
	decided := time.Second
	if fault.fills { // a list is stopped by a look-up that is held up, behind one that was under way
		decided = 3 * time.Second
	}
	l.more(t, &l.refused, connections)
	time.Sleep(decided)
	u.end()
	fault.end(s) // what was held up arrives
	time.Sleep(500 * time.Millisecond)
	stop()
	time.Sleep(2 * promise)
	l.stop()

	last := l.began.Add(time.Duration(l.lastSent.Load())).Sub(ended)
	t.Logf("answered after %v; the last request that was let in was sent %v after the end; %d were let in, %d refused, %d failed",
		answered.Sub(asked).Round(time.Millisecond), last.Round(time.Millisecond), l.good.Load(), l.refused.Load(), l.failed.Load())
	if last > promise {
		t.Errorf("got a request let in that was sent %v after the end, want %v at most", last, promise)
	}
	if l.failed.Load() > 0 {
		t.Errorf("got %d failures, the last with %v, want none", l.failed.Load(), l.failure.Load())
	}
}

// refill sees to it that the entries of a key in use are as young as can be.
func (s *stand) refill(key keys.APIKey) {
	s.t.Helper()
	hash := apikey.Hash(key.Key)
	s.redis.FlushDB(s.t.Context())
	testkit.Eventually(s.t, "the key's entry is filled", func() bool {
		return s.redis.HExists(s.t.Context(), "entry:"+keycache.KeyName(hex.EncodeToString(hash[:])), "body").Val()
	})
	time.Sleep(20 * time.Millisecond) // and its owner's
}

// forget empties Redis again and again, so that entries are always just being filled.
func (s *stand) forget() (stop func()) {
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
