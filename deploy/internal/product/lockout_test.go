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

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/deploy/internal/product/producttest"
	"github.com/ironplane/ironplane/pkg/auth/lockout"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/identity/keys"
)

// However many guesses at a password come at once, no more than the limit are compared, and each of these is logged.
func TestGuessing(t *testing.T) { producttest.Together(t, testGuessing) }

func testGuessing(t *testing.T, p *product.Product, c *testkit.Client) {
	id, own := newAdmin(t, c, "bob", `{}`)
	self := path("/admin/%d", id)
	c.Do("PATCH", self, `{"password": "a long walk home"}`).Want(200)
	right := `{"password": "a long walk home", "current_password": "a long walk home"}`
	wrong := `{"password": "mine mine mine!", "current_password": "who knows"}`
	for range lockout.OfKey - 1 {
		own.Do("PATCH", self, wrong).WantErrors("/current_password", "wrong")
	}
	own.Do("PATCH", self, right).Want(200) // which makes up for them
	var compared atomic.Int32
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			switch answer := own.Do("PATCH", self, wrong); {
			case answer.Status == 422:
				compared.Add(1)
			case answer.Status != 429 || answer.Header.Get("Retry-After") == "" || answer.Header.Get("Retry-After") == "1":
				t.Errorf("answered %d: %s", answer.Status, answer.Text)
			}
		})
	}
	all.Wait()
	if n := compared.Load(); n != lockout.OfKey {
		t.Errorf("%d guesses were compared, want %d", n, lockout.OfKey)
	}
	own.Do("PATCH", self, right).Want(429)
	sister := testkit.Decode[keys.APIKey](own.Do("POST", "/auth/key", `{"name": "sister"}`).Want(200))
	c.With(sister.Key).Do("PATCH", self, right).Want(429) // the name is locked from this address
	c.Do("PATCH", self, `{"receive_copies": true}`).Want(200)

	producttest.Drain(t, p)
	list := c.Do("GET", path("/log?type=admin.password.refused&target_type=admin&target_id=%d", id), nil).Want(200)
	if items := testkit.Decode[[]struct{ Desc string }](
		list,
	); len(items) != 2*lockout.OfKey-1 || items[0].Desc != "Password of admin bob refused." ||
		strings.Contains(list.Text, "who knows") {
		t.Errorf("%d log items: %s", len(items), list.Text)
	}
}

// However many strangers guess at passwords, who comes from where he signed in from has his compared, and who is signed in is answered.
func TestGuessesLeaveRoom(t *testing.T) { producttest.Together(t, testGuessesLeaveRoom) }

func testGuessesLeaveRoom(t *testing.T, p *product.Product, c *testkit.Client) {
	const guessers = 60 // more than may wait
	newPerson(t, c, "client", "ben@example.com")
	_, ben := signIn(t, c, loginOf("client", "ben@example.com", password))
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
			if gone := recover(); gone != nil && (gone != http.ErrAbortHandler || ctx.Err() == nil) { //nolint:errorlint // net/http compares it so
				panic(gone)
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
					t.Errorf("a guess is answered %d: %s", w.Code, w.Body)
					return
				}
				time.Sleep(100 * time.Millisecond)
			}
		})
	}
	testkit.Eventually(t, "too many guess", func() bool { return refused.Load() > 0 })
	for range 3 {
		signIn(t, c, loginOf("client", "ben@example.com", password))
		ben.Do("GET", "/auth/key/current", nil).Want(200)
	}
	still := refused.Load()
	testkit.Eventually(t, "too many guess still", func() bool { return refused.Load() > still })
	leave()
	all.Wait()
}
