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

// outage is how long something is away: longer than entries are fresh.
func outage() time.Duration {
	if *full {
		return 30 * time.Second
	}
	return 7 * time.Second
}

// While Redis or identity is away, valid keys work, the others do not, and the limits hold, for each gateway by itself:
// Redis counts as away, too, when the machine is too busy for it to answer in time.
func TestOutage(t *testing.T) {
	t.Parallel()
	const doors = 2
	const rate, burst = 10, 20
	limits := settings.Values{
		settings.OwnerRate.Slug:    strconv.Itoa(rate),
		settings.OwnerBurst.Slug:   strconv.Itoa(burst),
		settings.AddressRate.Slug:  "1000000",
		settings.AddressBurst.Slug: "1000000",
	}
	for _, c := range []struct {
		name       string
		silent     bool // connections stand, but nothing gets through
		onlyRedis  bool // can tell of keys
		begin, end func(*stand)
	}{
		{"Redis", false, false, func(s *stand) { s.services.cut(); s.gateways.cut() }, func(s *stand) { s.services.mend(); s.gateways.mend() }},
		{
			"Redis", true, false, func(s *stand) { s.services.stall(); s.gateways.stall() }, func(s *stand) { s.services.heal(); s.gateways.heal() },
		},
		{"identity", false, true, func(s *stand) { s.toIdentity.cut() }, func(s *stand) { s.toIdentity.mend() }},
		{"identity", true, true, func(s *stand) { s.toIdentity.stall() }, func(s *stand) { s.toIdentity.heal() }},
	} {
		if c.silent && !*full {
			continue
		}
		t.Run(fmt.Sprintf("%s, silent=%t", c.name, c.silent), func(t *testing.T) {
			t.Parallel()
			s := newStand(t, split, doors, limits)
			u := &use{stand: s, onlyRedis: c.onlyRedis}
			admin, greedy := s.user("greedy")
			gone := s.key(admin)
			for n := range 3 { // of owners of their own, by which limits count
				_, key := s.user(fmt.Sprint("valid", n))
				u.valid = append(u.valid, key.Key)
			}
			s.admin.Do("DELETE", fmt.Sprintf("/auth/key/%d", gone.ID), nil).Want(200)
			u.greedy, u.gone = greedy.Key, gone.Key
			for _, key := range append(u.valid, u.greedy) {
				s.doors[0].WithKey(key).Do("GET", "/port-speed", nil).Want(200)
			}
			began := time.Now()
			stop := u.start()
			time.Sleep(time.Second)
			c.begin(s)
			time.Sleep(outage())
			c.end(s)
			time.Sleep(2 * time.Second)
			stop()
			took := time.Since(began)

			most := doors*int(burst+took.Seconds()*rate) + 1
			t.Logf(
				"away for %v of %v: %d requests with valid keys, %d with others; a greedy key made %d requests, at most %d may be, and was held "+
					"back %d times",
				outage(),
				took.Round(time.Millisecond),
				u.good.Load(),
				u.refused.Load(),
				u.greedyGood.Load(),
				most,
				u.heldBack.Load(),
			)
			if n := int(u.greedyGood.Load()); n > most {
				t.Errorf("got %d requests of a greedy key, want %d at most", n, most)
			}
			if n := u.unknown.Load(); n > u.good.Load()/2 { // on a busy machine Redis is late with an answer, and left alone for a second then
				t.Errorf("got %d valid keys that nobody could check, want half of %d at most", n, u.good.Load())
			}
			if u.good.Load() == 0 || u.refused.Load() == 0 || u.greedyGood.Load() == 0 {
				t.Errorf("got %d let in, %d refused, %d of a greedy key, want some of each", u.good.Load(), u.refused.Load(), u.greedyGood.Load())
			}
			if n := int(u.greedyGood.Load()); n > most*3/4 && u.heldBack.Load() == 0 { // a busy machine is not fast enough to be greedy
				t.Errorf("got %d requests of a greedy key and none held back, want some held back", n)
			}
		})
	}
}

// use is what goes on while something is away.
type use struct {
	*stand
	valid        []string
	greedy, gone string
	onlyRedis    bool

	good, refused, greedyGood, heldBack, unknown atomic.Int64
}

// start has each valid key used less than it may be, one more than it may be, and keys that are not valid.
func (u *use) start() (stop func()) {
	end := make(chan struct{})
	var users sync.WaitGroup
	every := func(d time.Duration, use func(door int)) {
		for door := range u.doors {
			users.Go(func() {
				for {
					select {
					case <-end:
						return
					case <-time.After(d):
						use(door)
					}
				}
			})
		}
	}
	for _, key := range u.valid {
		every(400*time.Millisecond, func(door int) {
			switch answer := u.doors[door].WithKey(key).Do("GET", "/port-speed", nil); {
			case answer.Status == http.StatusOK:
				u.good.Add(1)
			case u.onlyRedis && answer.Status == http.StatusServiceUnavailable:
				u.unknown.Add(1)
			default:
				u.t.Errorf("got %d for a valid key, want 200: %s", answer.Status, answer.Text)
			}
		})
	}
	for range 2 {
		every(10*time.Millisecond, func(door int) {
			switch answer := u.doors[door].WithKey(u.greedy).Do("GET", "/port-speed", nil); answer.Status {
			case http.StatusOK:
				u.greedyGood.Add(1)
			case http.StatusTooManyRequests:
				u.heldBack.Add(1)
			case http.StatusServiceUnavailable:
				if !u.onlyRedis {
					u.t.Errorf("got %d for a greedy key, want 200 or 429: %s", answer.Status, answer.Text)
				}
			default:
				u.t.Errorf("got %d for a greedy key, want 200 or 429: %s", answer.Status, answer.Text)
			}
		})
	}
	every(100*time.Millisecond, func(door int) {
		unknown := apikey.New().Reveal()
		for key, may := range map[string][2]int{
			"x":                {401, 401},
			unknown[:51] + "!": {401, 401},
			unknown:            {401, 503}, // 503 where nobody can tell
			u.gone:             {401, 503},
		} {
			if answer := u.doors[door].WithKey(key).Do("GET", "/port-speed", nil); answer.Status != may[0] && answer.Status != may[1] {
				u.t.Errorf("got %d for an invalid key, want %d or %d: %s", answer.Status, may[0], may[1], answer.Text)
			}
			u.refused.Add(1)
		}
	})
	return func() { close(end); users.Wait() }
}
