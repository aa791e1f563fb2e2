package product_test

import (
	"context"
	"fmt"
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
	const guessers = 60 // more than may wait
	newPerson(t, c, "client", "ben@example.com")
	_, ben := signIn(t, c, loginOf("client", "ben@example.com", password))
	key := testkit.Decode[login.GivenKey](c.WithKey("").Do("POST", "/auth/key", loginOf("client", "ben@example.com", password)).Want(200))
	fromDevice := strings.TrimSuffix(loginOf("client", "ben@example.com", password), "}") + `, "device": "` + key.Device + `"}`
	ctx, leave := context.WithCancel(t.Context())
	guess := func(n int) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(
			ctx,
			http.MethodPost,
			"/auth/key",
			strings.NewReader(loginOf("client", fmt.Sprintf("%d@example.com", n), "wrong")),
		)
		r.Header.Set("Content-Type", "application/json")
		r.RemoteAddr = fmt.Sprintf("10.0.0.%d:1", n)
		w := httptest.NewRecorder()
		defer func() {
			if panicked := recover(); panicked != nil &&
				(panicked != http.ErrAbortHandler || ctx.Err() == nil) { //nolint:errorlint // net/http compares it so
				panic(panicked)
			}
		}()
		p.Gateway.ServeHTTP(w, r)
		return w
	}
	var refused atomic.Int64
	var all sync.WaitGroup
	for n := range guessers {
		all.Go(func() {
			for ctx.Err() == nil {
				switch w := guess(n); {
				case ctx.Err() != nil, w.Code == http.StatusUnauthorized, w.Code == http.StatusTooManyRequests:
				case w.Code == http.StatusServiceUnavailable && w.Header().Get("Retry-After") == "5":
					refused.Add(1)
				default:
					t.Errorf("a guess: got %d %s, want 401, 429 or 503 with Retry-After 5", w.Code, w.Body)
					return
				}
				time.Sleep(100 * time.Millisecond)
			}
		})
	}
	testkit.Eventually(t, "too many guess", func() bool { return refused.Load() > 0 })
	for range 3 {
		signIn(t, c, fromDevice)
		ben.Do("GET", "/auth/key/current", nil).Want(200)
	}
	still := refused.Load()
	testkit.Eventually(t, "too many guess still", func() bool { return refused.Load() > still })
	leave()
	all.Wait()
}
