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
					t.Errorf("got %d requests let through, want %d to %d", through, least*3/4, most)
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
		t.Fatalf("got %d, want 429", w.Code)
	}
	if after, err := strconv.Atoi(w.Header().Get("Retry-After")); err != nil || after != 1 {
		t.Errorf("got Retry-After %q, want 1", w.Header().Get("Retry-After"))
	}
	if policy, state := w.Header().
		Get("RateLimit-Policy"),
		w.Header().
			Get("RateLimit"); policy != `"owner";q=40;w=2` ||
		state != `"owner";r=0;t=1` {
		t.Errorf("got the policy %s and the state %s, want \"owner\";q=40;w=2 and \"owner\";r=0;t=1", policy, state)
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
		t.Errorf("got %d %v for another key of the same owner, want the limit shared", another.Code, another.Header())
	}
	time.Sleep(time.Second)
	d.want(200, key, "/port-speed")

	for n := 0; n == 0 || w.Code == http.StatusUnauthorized; n++ {
		w = get(d.gateway, "192.0.2.9:1", "wrong", "/port-speed")
	}
	if w.Code != 429 || w.Header().Get("RateLimit-Policy") != `"address";q=10;w=2` {
		t.Errorf("got %d %v, want 429 by the address's limit", w.Code, w.Header())
	}
	for range 100 {
		if w := get(d.gateway, "192.0.2.9:3", "", healthPath); w.Code != 200 {
			t.Errorf("got %d for the health check, want 200", w.Code)
		}
	}
	time.Sleep(time.Second)
	if w := get(d.gateway, "192.0.2.9:3", key, "/port-speed"); w.Code != 200 {
		t.Errorf("got %d for a valid key from the same address, want 200", w.Code)
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
			t.Fatalf("got %d %v, want the limit %q", w.Code, w.Header(), limit)
		}
		return n
	}
	most := narrow.OwnerBurst
	for n := range 20 {
		now := left(get(gateways[n%2], somebody, key, "/port-speed"), "owner")
		if now >= most || now < narrow.OwnerBurst-n-4 { // some of a batch may lie at the other
			t.Errorf("got %d left after %d requests, want %d to %d", now, n+1, narrow.OwnerBurst-n-4, most-1)
		}
		most = now + 1 + narrow.OwnerRate // as many may have come back since, were the machine that slow
	}
	for _, key := range []string{"", "wrong"} {
		if n := left(get(d.gateway, "192.0.2.11:1", key, "/port-speed"), "address"); n >= narrow.AddressBurst {
			t.Errorf("got %d left to an anonymous caller, want less than %d", n, narrow.AddressBurst)
		}
	}
	if w := get(d.gateway, somebody, "", healthPath); w.Header().Get("RateLimit") != "" {
		t.Errorf("got %v for a request that is not counted, want no RateLimit", w.Header())
	}
}
