package revocation

import (
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/apikey"
	"github.com/ironplane/ironplane/pkg/settings"
)

// outageDuration returns how long Redis or identity is away. It is longer than entries stay fresh.
func outageDuration() time.Duration {
	if *full {
		return 30 * time.Second
	}
	return 7 * time.Second
}

// TestOutage tests that valid keys keep working, invalid keys stay refused, and limits hold while Redis or identity
// is away. Each gateway then limits on its own. A busy machine can make Redis answer too late, which counts as
// away, too.
func TestOutage(t *testing.T) {
	t.Parallel()
	const gateways = 2
	const rate, burst = 10, 20
	limits := settings.Values{
		settings.OwnerRate.Slug:    strconv.Itoa(rate),
		settings.OwnerBurst.Slug:   strconv.Itoa(burst),
		settings.AddressRate.Slug:  "1000000",
		settings.AddressBurst.Slug: "1000000",
	}
	for _, c := range []struct {
		name         string
		silent       bool // connections stay open, but no byte gets through
		identityAway bool // only Redis knows keys
		begin, end   func(*stand)
	}{
		{
			"Redis", false, false,
			func(s *stand) { s.servicesToRedis.cut(); s.gatewaysToRedis.cut() },
			func(s *stand) { s.servicesToRedis.mend(); s.gatewaysToRedis.mend() },
		},
		{
			"Redis", true, false,
			func(s *stand) { s.servicesToRedis.stall(); s.gatewaysToRedis.stall() },
			func(s *stand) { s.servicesToRedis.heal(); s.gatewaysToRedis.heal() },
		},
		{"identity", false, true, func(s *stand) { s.gatewaysToIdentity.cut() }, func(s *stand) { s.gatewaysToIdentity.mend() }},
		{"identity", true, true, func(s *stand) { s.gatewaysToIdentity.stall() }, func(s *stand) { s.gatewaysToIdentity.heal() }},
	} {
		if c.silent && !*full {
			continue
		}
		t.Run(fmt.Sprintf("%s, silent=%t", c.name, c.silent), func(t *testing.T) {
			t.Parallel()
			s := newStand(t, split, gateways, limits)
			u := &traffic{stand: s, identityAway: c.identityAway}
			admin, greedy := s.user("greedy")
			revoked := s.key(admin)
			for n := range 3 { // each has its own owner, because limits count by owner
				_, key := s.user(fmt.Sprint("valid", n))
				u.valid = append(u.valid, key.Key)
			}
			s.admin.Do("DELETE", fmt.Sprintf("/auth/key/%d", revoked.ID), nil).Want(200)
			u.greedy, u.revokedKey = greedy.Key, revoked.Key
			for _, key := range append(u.valid, u.greedy) {
				s.gateways[0].WithKey(key).Do("GET", "/port-speed", nil).Want(200)
			}
			began := time.Now()
			stop := u.start()
			time.Sleep(time.Second)
			c.begin(s)
			time.Sleep(outageDuration())
			c.end(s)
			time.Sleep(2 * time.Second)
			stop()
			elapsed := time.Since(began)

			maxGreedy := gateways*int(burst+elapsed.Seconds()*rate) + 1
			t.Logf(
				"away for %v of %v: %d requests with valid keys, %d with invalid ones; a greedy key made %d of at most %d requests and was "+
					"limited %d times",
				outageDuration(),
				elapsed.Round(time.Millisecond),
				u.good.Load(),
				u.refused.Load(),
				u.greedyGood.Load(),
				maxGreedy,
				u.heldBack.Load(),
			)
			if n := int(u.greedyGood.Load()); n > maxGreedy {
				t.Errorf("got %d requests of a greedy key, want %d at most", n, maxGreedy)
			}
			if n := u.unknown.Load(); n > u.good.Load()/2 { // after a late response, a gateway does not ask Redis for a second
				t.Errorf("got %d requests with valid keys that no process could check, want half of %d at most", n, u.good.Load())
			}
			if u.good.Load() == 0 || u.refused.Load() == 0 || u.greedyGood.Load() == 0 {
				t.Errorf("got %d accepted, %d refused, %d of a greedy key, want some of each", u.good.Load(), u.refused.Load(), u.greedyGood.Load())
			}
			if n := int(u.greedyGood.Load()); n > maxGreedy*3/4 && u.heldBack.Load() == 0 { // on a busy machine, the key may never reach its limit
				t.Errorf("got %d requests of a greedy key and none limited, want some limited", n)
			}
		})
	}
}

// traffic uses valid, greedy and invalid keys during an outage, and counts the responses.
type traffic struct {
	*stand
	valid              []string
	greedy, revokedKey string // greedy is used beyond its limit
	identityAway       bool

	good, refused, greedyGood, heldBack, unknown atomic.Int64
}

// start uses each valid key within its limits, the greedy key beyond them, and invalid keys, until stop is called.
func (u *traffic) start() (stop func()) {
	end := make(chan struct{})
	var users sync.WaitGroup
	every := func(d time.Duration, request func(gateway int)) {
		for gateway := range u.gateways {
			users.Go(func() {
				for {
					select {
					case <-end:
						return
					case <-time.After(d):
						request(gateway)
					}
				}
			})
		}
	}
	for _, key := range u.valid {
		every(400*time.Millisecond, func(gateway int) {
			switch answer := u.gateways[gateway].WithKey(key).Do("GET", "/port-speed", nil); {
			case answer.Status == http.StatusOK:
				u.good.Add(1)
			case u.identityAway && answer.Status == http.StatusServiceUnavailable:
				u.unknown.Add(1)
			default:
				u.t.Errorf("got %d for a valid key, want 200: %s", answer.Status, answer.Text)
			}
		})
	}
	for range 2 {
		every(10*time.Millisecond, func(gateway int) {
			switch answer := u.gateways[gateway].WithKey(u.greedy).Do("GET", "/port-speed", nil); answer.Status {
			case http.StatusOK:
				u.greedyGood.Add(1)
			case http.StatusTooManyRequests:
				u.heldBack.Add(1)
			case http.StatusServiceUnavailable:
				if !u.identityAway {
					u.t.Errorf("got %d for a greedy key, want 200 or 429: %s", answer.Status, answer.Text)
				}
			default:
				u.t.Errorf("got %d for a greedy key, want 200 or 429: %s", answer.Status, answer.Text)
			}
		})
	}
	every(100*time.Millisecond, func(gateway int) {
		unknown := apikey.New().Reveal()
		for key, statuses := range map[string][2]int{
			"x":                {401, 401},
			unknown[:51] + "!": {401, 401},
			unknown:            {401, 503}, // 503 if no process can check the key
			u.revokedKey:       {401, 503},
		} {
			if answer := u.gateways[gateway].WithKey(key).
				Do("GET", "/port-speed", nil); answer.Status != statuses[0] &&
				answer.Status != statuses[1] {
				u.t.Errorf("got %d for an invalid key, want %d or %d: %s", answer.Status, statuses[0], statuses[1], answer.Text)
			}
			u.refused.Add(1)
		}
	})
	return func() { close(end); users.Wait() }
}
