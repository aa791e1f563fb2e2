package product_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ironplane/ironplane/deploy/internal/product/producttest"
	"github.com/ironplane/ironplane/pkg/auth/account"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/identity/login"
)

// However many callers guess passwords, an account that signs in from a known address has its password compared, and
// requests with a key are served.
func TestGuessesBlockNoSignIn(t *testing.T) {
	t.Parallel()
	asInProduction := service.Settings{Tuning: service.Tuning{PasswordMemory: account.DefaultMemory}}
	p, c := producttest.StartWith(t, testkit.Redis(t), asInProduction)
	const guessers = 120 // more than may wait
	newPerson(t, c, "client", "ben@example.com")
	_, ben := signIn(t, c, loginOf("client", "ben@example.com", password))
	key := testkit.Decode[login.GivenKey](c.WithKey("").Do("POST", "/auth/key", loginOf("client", "ben@example.com", password)).Want(200))
	fromDevice := strings.TrimSuffix(loginOf("client", "ben@example.com", password), "}") + `, "device": "` + key.Device + `"}`
	var addresses []string
	for n := range guessers {
		addresses = append(addresses, fmt.Sprintf("10.0.0.%d", n))
	}
	refused, leave := guess(t, []http.Handler{p.Gateway}, addresses)
	testkit.Eventually(t, "too many guess", func() bool { return refused.Load() > 0 })
	for range 3 {
		signIn(t, c, fromDevice)
		ben.Do("GET", "/auth/key/current", nil).Want(200)
	}
	still := refused.Load()
	testkit.Eventually(t, "too many guess still", func() bool { return refused.Load() > still })
	leave()
}

// guess guesses passwords from each address at each gateway, again and again until leave is called. It returns how many guesses were
// refused because too many callers wait.
func guess(t *testing.T, gateways []http.Handler, addresses []string) (refused *atomic.Int64, leave func()) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	refused = &atomic.Int64{}
	var all sync.WaitGroup
	for n := range len(addresses) * len(gateways) {
		address, gateway := addresses[n%len(addresses)], gateways[n/len(addresses)]
		login := loginOf("client", fmt.Sprintf("%d@example.com", n), "wrong")
		all.Go(func() {
			for ctx.Err() == nil {
				switch w := signInFrom(ctx, gateway, address, login); {
				case ctx.Err() != nil, w.Code == http.StatusUnauthorized, w.Code == http.StatusTooManyRequests:
				case w.Code == http.StatusServiceUnavailable && w.Header().Get("Retry-After") == "5":
					refused.Add(1)
				case w.Code == http.StatusServiceUnavailable: // it has waited for as long as a request may take, on a busy machine
				default:
					t.Errorf("a guess: got %d %s, want 401, 429 or 503", w.Code, w.Body)
					return
				}
				time.Sleep(100 * time.Millisecond)
			}
		})
	}
	return refused, func() {
		stop()
		all.Wait()
	}
}

// signInFrom sends a login from an address.
func signInFrom(ctx context.Context, gateway http.Handler, address, login string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/auth/key", strings.NewReader(login))
	r.Header.Set("Content-Type", "application/json")
	r.RemoteAddr = net.JoinHostPort(address, "1")
	w := httptest.NewRecorder()
	defer func() {
		if panicked := recover(); panicked != nil &&
			(panicked != http.ErrAbortHandler || ctx.Err() == nil) { //nolint:errorlint // net/http compares it so
			panic(panicked)
		}
	}()
	gateway.ServeHTTP(w, r)
	return w
}

// While 70 /64s of a /48 and 70 /24s guess passwords, 24 people sign in from new addresses, each at the first attempt. Some of them
// have an address near the attackers'. It does not matter whether one process compares the passwords or two do.
func TestPeopleSignInUnderAttack(t *testing.T) {
	t.Parallel()
	for _, processes := range []int{1, 2} {
		t.Run(fmt.Sprintf("processes=%d", processes), func(t *testing.T) {
			t.Parallel()
			slowEnough := service.Settings{Tuning: service.Tuning{PasswordMemory: account.DefaultMemory / 4}} // so that a queue forms
			products, c := producttest.StartProducts(t, processes, testkit.Redis(t), slowEnough)
			const accounts, people = 4, 24
			for n := range accounts {
				newPerson(t, c, "client", fmt.Sprintf("person%d@example.com", n))
			}
			var gateways []http.Handler
			for _, p := range products {
				gateways = append(gateways, p.Gateway)
			}
			var addresses []string
			for n := range 70 {
				addresses = append(addresses, fmt.Sprintf("2001:db8:7:%x::1", n), fmt.Sprintf("%d.51.100.1", 20+n))
			}
			refused, leave := guess(t, gateways, addresses)
			defer leave()
			for n := range people {
				address := []string{
					fmt.Sprintf("203.0.%d.9", n), fmt.Sprintf("2a00:%x::1", n+1), fmt.Sprintf("%d.51.9.9", 20+n%70), fmt.Sprintf("2001:db8:a%02x::1", n),
				}[n%4]
				login := loginOf("client", fmt.Sprintf("person%d@example.com", n%accounts), password)
				if w := signInFrom(t.Context(), gateways[n%len(gateways)], address, login); w.Code != http.StatusOK {
					t.Errorf("sign-in %d from %s: got %d %s, want 200", n, address, w.Code, w.Body)
				}
			}
			testkit.Eventually(t, "more attackers come than may wait", func() bool { return refused.Load() > 0 })
		})
	}
}
