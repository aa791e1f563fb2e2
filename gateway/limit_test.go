package gateway

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/devservers"
)

var narrow = set{
	rates: rates{
		OwnerRate:          20,
		OwnerBurst:         40,
		AddressRate:        5,
		AddressBurst:       10,
		OwnerConcurrency:   1_000_000,
		AddressConcurrency: 1_000_000,
	},
}

// flood asks by all the gateways at the same time for a while, and until each is refused, and answers how many requests were let through.
func flood(gateways []*Gateway, d time.Duration, ask func(g http.Handler) (status int)) int {
	var through atomic.Int64
	var callers sync.WaitGroup
	end := time.Now().Add(d)
	for _, g := range gateways {
		for range 4 {
			callers.Go(func() {
				for let := true; let || time.Now().Before(end); time.Sleep(time.Millisecond) {
					if let = ask(g) == http.StatusOK; let {
						through.Add(1)
					}
				}
			})
		}
	}
	callers.Wait()
	return int(through.Load())
}

// The limits hold across gateways, and where Redis is away for each of them.
func TestLimitsHold(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		who         string
		rate, burst int
		ask         func(d *door, key string) func(http.Handler) int
	}{
		{"an owner", narrow.OwnerRate, narrow.OwnerBurst, func(_ *door, key string) func(http.Handler) int {
			return func(g http.Handler) int { return get(g, somebody, key, "/port-speed").Code }
		}},
		{"an address", narrow.AddressRate, narrow.AddressBurst, func(*door, string) func(http.Handler) int {
			return func(g http.Handler) int { return get(g, somebody, "", "/port-speed").Code }
		}},
		{"a /64", narrow.AddressRate, narrow.AddressBurst, func(*door, string) func(http.Handler) int {
			var n atomic.Int64
			return func(g http.Handler) int {
				return get(g, fmt.Sprintf("[2001:db8::%x]:1", n.Add(1)), "", "/port-speed").Code
			}
		}},
	} {
		for _, redis := range []string{"is there", "goes away", "is away"} {
			t.Run(c.who+", Redis "+redis, func(t *testing.T) {
				t.Parallel()
				d := newDoorOn(t, narrow, devservers.RedisOptions{})
				gateways := []*Gateway{d.gateway, d.another(narrow)}
				key := d.identity.issue(1)
				const while = time.Second
				most := c.burst + c.rate*int(while/time.Second)
				least := most
				switch redis {
				case "goes away":
					most *= len(gateways)
					timer := time.AfterFunc(while/2, func() { _ = d.server.Stop(t.Context()) })
					defer timer.Stop()
				case "is away":
					most *= len(gateways)
					least *= len(gateways)
					_ = d.server.Stop(t.Context())
				}
				began := time.Now()
				through := flood(gateways, while, c.ask(d, key))
				most += int((time.Since(began)-while)*time.Duration(c.rate*len(gateways))/time.Second) + 1
				if redis == "is there" && d.warnings.any.Load() { // it did not answer in time, on a busy machine
					most *= len(gateways)
				}
				t.Logf("%d requests were let through, at most %d may be", through, most)
				if through > most || through < least*3/4 {
					t.Errorf("%d requests were let through; %d to %d should be", through, least, most)
				}
			})
		}
	}
}

func TestRefusal(t *testing.T) {
	t.Parallel()
	d := newDoor(t, narrow)
	key := d.identity.issue(1)
	var w *httptest.ResponseRecorder
	for n := 0; n == 0 || w.Code == http.StatusOK; n++ {
		w = get(d.gateway, somebody, key, "/port-speed")
	}
	refused := time.Now()
	if w.Code != http.StatusTooManyRequests {
		t.Fatalf("answered %d", w.Code)
	}
	if after, err := strconv.Atoi(w.Header().Get("Retry-After")); err != nil || after != 1 {
		t.Errorf("Retry-After: %q", w.Header().Get("Retry-After"))
	}
	if policy, state := w.Header().
		Get("RateLimit-Policy"),
		w.Header().
			Get("RateLimit"); policy != `"owner";q=40;w=2` ||
		state != `"owner";r=0;t=1` {
		t.Errorf("RateLimit-Policy: %s, RateLimit: %s", policy, state)
	}
	d.want(200, "", "/port-speed") // another limit
	left := 0                      // some are allowed meanwhile
	another := get(d.gateway, somebody, d.identity.issue(2), "/port-speed")
	if _, err := fmt.Sscanf(
		another.Header().Get("RateLimit"),
		`"owner";r=%d`,
		&left,
	); err != nil ||
		left >= narrow.OwnerBurst/2+int(time.Since(refused)/time.Second)*narrow.OwnerRate {
		t.Errorf("another key of the same owner has a limit of its own: %d %v", another.Code, another.Header())
	}
	time.Sleep(time.Second)
	d.want(200, key, "/port-speed")

	for n := 0; n == 0 || w.Code == http.StatusUnauthorized; n++ {
		w = get(d.gateway, "192.0.2.9:1", "wrong", "/port-speed")
	}
	if w.Code != 429 || w.Header().Get("RateLimit-Policy") != `"address";q=10;w=2` {
		t.Errorf("%d %v", w.Code, w.Header())
	}
	for range 100 {
		if w := get(d.gateway, "192.0.2.9:3", "", healthPath); w.Code != 200 {
			t.Errorf("health answered %d", w.Code)
		}
	}
	time.Sleep(time.Second)
	if w := get(d.gateway, "192.0.2.9:3", key, "/port-speed"); w.Code != 200 {
		t.Errorf("a valid key from the same address: %d", w.Code)
	}
}

// A limit that is raised lets through at once whom the one before had let through its burst, here and in Redis.
func TestRaisedLimit(t *testing.T) {
	t.Parallel()
	d := newDoorOn(t, narrow, devservers.RedisOptions{})
	key := d.identity.issue(1)
	for d.gateway.perOwner.Set(1, 20); get(d.gateway, somebody, key, "/port-speed").Code == http.StatusOK; {
	}
	d.gateway.perOwner.Set(1000, 10)
	d.want(http.StatusOK, key, "/port-speed")
}

// Every answer that a limit was counted for says what is left of it, across gateways.
func TestRateLimitHeaders(t *testing.T) {
	t.Parallel()
	d := newDoorOn(t, narrow, devservers.RedisOptions{})
	gateways := []*Gateway{d.gateway, d.another(narrow)}
	key := d.identity.issue(1)
	left := func(w *httptest.ResponseRecorder, limit string) int {
		t.Helper()
		state, ok := strings.CutPrefix(w.Header().Get("RateLimit"), `"`+limit+`";r=`)
		n, err := strconv.Atoi(state)
		if !ok || err != nil || !strings.HasPrefix(w.Header().Get("RateLimit-Policy"), `"`+limit+`";`) {
			t.Fatalf("%d %v", w.Code, w.Header())
		}
		return n
	}
	most := narrow.OwnerBurst
	for n := range 20 {
		now := left(get(gateways[n%2], somebody, key, "/port-speed"), "owner")
		if now >= most || now < narrow.OwnerBurst-n-4 { // some of a batch may lie at the other
			t.Errorf("after %d requests %d are left", n+1, now)
		}
		most = now + 1 + narrow.OwnerRate // as many may have come back since, were the machine that slow
	}
	for _, key := range []string{"", "wrong"} {
		if n := left(get(d.gateway, "192.0.2.11:1", key, "/port-speed"), "address"); n >= narrow.AddressBurst {
			t.Errorf("%d are left to an anonymous caller", n)
		}
	}
	if w := get(d.gateway, somebody, "", healthPath); w.Header().Get("RateLimit") != "" {
		t.Errorf("what is not counted says %v", w.Header())
	}
}
