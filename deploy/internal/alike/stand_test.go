// Package alike tests that a refused sign-in does not reveal whether the account exists.
package alike

import (
	"flag"
	"fmt"
	"net/http"
	"testing"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/deploy/internal/product/producttest"
	passwords "github.com/ironplane/ironplane/pkg/auth/account"
	"github.com/ironplane/ironplane/pkg/cache"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/testkit"
)

var full = flag.Bool("full", false, "compare response times too")

func TestMain(m *testing.M) {
	flag.Parse()
	if !*full { // tracing would distort the measured times
		traceAll()
	}
	testkit.Main(m)
}

// stand is a running product with clients of its API. Its counters keep names and addresses unique.
type stand struct {
	t            *testing.T
	product      *product.Product
	redis        *cache.Client
	admin        *testkit.Client
	anonymous    *testkit.Client
	requestCount int
	accountCount int
}

func newStand(t *testing.T) *stand {
	t.Helper()
	client := testkit.Redis(t)
	p, admin := producttest.StartWith(t, client, service.Settings{
		ClientURL: "https://panel.example.com",
		Tuning:    service.Tuning{PasswordMemory: passwords.DefaultMemory}, // as in production, because response times are compared
	})
	return &stand{t: t, product: p, redis: client, admin: admin, anonymous: admin.WithKey("")}
}

// withT returns a copy that reports to a subtest.
func (s *stand) withT(t *testing.T) *stand {
	other := *s
	other.t, other.admin, other.anonymous = t, s.admin.WithT(t), s.anonymous.WithT(t)
	return &other
}

// account is an account to sign in to. kind is "admin" or "client", and guess is the password to try.
type account struct {
	label, kind, email, guess string
}

func (a account) login() map[string]any {
	return map[string]any{"type": a.kind, "email": a.email, "password": a.guess}
}

func (a account) passwordReset() map[string]any {
	return map[string]any{"type": a.kind, "email": a.email}
}

const (
	unknownName = "an unknown name"
	signedIn    = "an account with a sign-in" // a sign-in also claims a client's account
)

// unknown returns an account that does not exist, under a name that no test has tried before.
func (s *stand) unknown(kind string) account {
	s.accountCount++
	return account{unknownName, kind, fmt.Sprintf("%d@nobody.example.com", s.accountCount), "wrong"}
}

const password = "a long walk in the rain"

// makeAccounts creates one account for each reason to refuse a sign-in.
func (s *stand) makeAccounts(t *testing.T, kind string) (all []account) {
	t.Helper()
	admin := s.admin.WithT(t)
	for _, a := range []struct {
		label, password, guess string
		change                 func(url string)
	}{
		{"a wrong password", password, "wrong", nil},
		{"an account without a password", "", "", nil},
		{"a disabled account", password, password, func(url string) { admin.Do("PATCH", url, `{"disabled": true}`).Want(200) }},
		{"a deleted account", password, password, func(url string) { admin.Do("DELETE", url, nil).Want(200) }},
		{signedIn, password, "wrong", nil},
	} {
		s.accountCount++
		email := fmt.Sprintf("%d@%s.example.com", s.accountCount, kind)
		body := map[string]any{"email": email, "password": a.password}
		if kind == "client" {
			body["first"], body["last"] = "Ben", "Miller"
		}
		id := admin.Do("POST", "/"+kind, body).Want(200).ID()
		if a.label == signedIn { // from an address of its own, so that no right password resets a count
			s.sendTimed(t, "/auth/key", account{kind: kind, email: email, guess: password}.login(), http.StatusOK)
		}
		if a.change != nil {
			a.change(fmt.Sprintf("/%s/%d", kind, id))
		}
		all = append(all, account{a.label, kind, email, a.guess})
	}
	return all
}
