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

var lowLimits = testConfig{
	rates: rates{
		OwnerRate:          20,
		OwnerBurst:         40,
		AddressRate:        5,
		AddressBurst:       10,
		OwnerConcurrency:   1_000_000,
		AddressConcurrency: 1_000_000,
	},
}

// flood sends requests through all gateways at once, for a duration and then until each caller is refused. It returns how many
// were let through.
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

// Limits hold across gateways. While Redis is away, they hold for each gateway.
func TestLimitsHold(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		caller      string
		rate, burst int
		ask         func(d *testGateway, key string) func(http.Handler) int
	}{
		{"an owner", lowLimits.OwnerRate, lowLimits.OwnerBurst, func(_ *testGateway, key string) func(http.Handler) int {
			return func(g http.Handler) int { return get(g, testAddress, key, "/port-speed").Code }
		}},
		{"an address", lowLimits.AddressRate, lowLimits.AddressBurst, func(*testGateway, string) func(http.Handler) int {
			return func(g http.Handler) int { return get(g, testAddress, "", "/port-speed").Code }
		}},
		{"a /64", lowLimits.AddressRate, lowLimits.AddressBurst, func(*testGateway, string) func(http.Handler) int {
			var n atomic.Int64
			return func(g http.Handler) int {
				return get(g, fmt.Sprintf("[2001:db8::%x]:1", n.Add(1)), "", "/port-speed").Code
			}
		}},
	} {
		for _, redis := range []string{"is there", "goes away", "is away"} {
			t.Run(c.caller+", Redis "+redis, func(t *testing.T) {
				t.Parallel()
				d := newTestGatewayOn(t, lowLimits, devservers.RedisOptions{})
				gateways := []*Gateway{d.gateway, d.newGateway(lowLimits)}
				key := d.identity.issue(1)
				const duration = time.Second
				maxThrough := c.burst + c.rate*int(duration/time.Second)
				minThrough := maxThrough
				switch redis {
				case "goes away":
					maxThrough *= len(gateways)
					timer := time.AfterFunc(duration/2, func() { _ = d.server.Stop(t.Context()) })
					defer timer.Stop()
				case "is away":
					maxThrough *= len(gateways)
					minThrough *= len(gateways)
					_ = d.server.Stop(t.Context())
				}
				began := time.Now()
				through := flood(gateways, duration, c.ask(d, key))
				maxThrough += int((time.Since(began)-duration)*time.Duration(c.rate*len(gateways))/time.Second) + 1
				if redis == "is there" && d.warnings.any.Load() { // Redis did not respond in time, on a busy machine
					maxThrough *= len(gateways)
				}
				t.Logf("%d requests passed, at most %d may", through, maxThrough)
				if through > maxThrough || through < minThrough*3/4 {
					t.Errorf("got %d requests let through, want %d to %d", through, minThrough*3/4, maxThrough)
				}
			})
		}
	}
}

func TestRefusal(t *testing.T) {
	t.Parallel()
	config := unlimited
	config.OwnerRate, config.OwnerBurst, config.AddressRate, config.AddressBurst = 1, 8, 1, 8 // slower than any machine
	d := newTestGateway(t, config)
	key := d.identity.issue(1)
	var w *httptest.ResponseRecorder
	for n := 0; n == 0 || w.Code == http.StatusOK; n++ {
		w = get(d.gateway, testAddress, key, "/port-speed")
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
			Get("RateLimit"); policy != `"owner";q=8;w=8` ||
		state != `"owner";r=0;t=1` {
		t.Errorf("got the policy %s and the state %s, want \"owner\";q=8;w=8 and \"owner\";r=0;t=1", policy, state)
	}
	d.want(200, "", "/port-speed") // newGateway limit
	left := 0                      // some are allowed meanwhile
	another := get(d.gateway, testAddress, d.identity.issue(2), "/port-speed")
	if _, err := fmt.Sscanf(
		another.Header().Get("RateLimit"),
		`"owner";r=%d`,
		&left,
	); err != nil ||
		left >= config.OwnerBurst/2+int(time.Since(refused)/time.Second) {
		t.Errorf("got %d %v for another key of the same owner, want the limit shared", another.Code, another.Header())
	}
	time.Sleep(time.Second)
	d.want(200, key, "/port-speed")

	for n := 0; n == 0 || w.Code == http.StatusUnauthorized; n++ {
		w = get(d.gateway, "192.0.2.9:1", "wrong", "/port-speed")
	}
	if w.Code != 429 || w.Header().Get("RateLimit-Policy") != `"address";q=8;w=8` {
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

// A raised limit applies at once to a caller that has used up the previous one, in the gateway and in Redis.
func TestRaisedLimit(t *testing.T) {
	t.Parallel()
	d := newTestGatewayOn(t, lowLimits, devservers.RedisOptions{})
	key := d.identity.issue(1)
	for d.gateway.ownerRate.Set(1, 20); get(d.gateway, testAddress, key, "/port-speed").Code == http.StatusOK; {
	}
	d.gateway.ownerRate.Set(1000, 10)
	d.want(http.StatusOK, key, "/port-speed")
}

// Every response that counts against a limit says how much of it remains, across gateways.
func TestRateLimitHeaders(t *testing.T) {
	t.Parallel()
	d := newTestGatewayOn(t, lowLimits, devservers.RedisOptions{})
	gateways := []*Gateway{d.gateway, d.newGateway(lowLimits)}
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
	maxThrough := lowLimits.OwnerBurst
	for n := range 20 {
		now := left(get(gateways[n%2], testAddress, key, "/port-speed"), "owner")
		if now >= maxThrough || now < lowLimits.OwnerBurst-n-4 { // the other gateway may hold a part of a batch
			t.Errorf("got %d left after %d requests, want %d to %d", now, n+1, lowLimits.OwnerBurst-n-4, maxThrough-1)
		}
		maxThrough = now + 1 + lowLimits.OwnerRate // on a slow machine the limit recovers by as many
	}
	for _, key := range []string{"", "wrong"} {
		if n := left(get(d.gateway, "192.0.2.11:1", key, "/port-speed"), "address"); n >= lowLimits.AddressBurst {
			t.Errorf("got %d left to an anonymous caller, want less than %d", n, lowLimits.AddressBurst)
		}
	}
	if w := get(d.gateway, testAddress, "", healthPath); w.Header().Get("RateLimit") != "" {
		t.Errorf("got %v for a request that is not counted, want no RateLimit", w.Header())
	}
}
