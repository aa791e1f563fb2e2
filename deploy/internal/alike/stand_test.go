// Package alike shows that who is not let in cannot tell by it whether an account exists.
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

var full = flag.Bool("full", false, "compare times, too")

func TestMain(m *testing.M) {
	flag.Parse()
	if !*full { // which has its price
		traceAll()
	}
	testkit.Main(m)
}

type stand struct {
	t       *testing.T
	product *product.Product
	redis   *cache.Client
	admin   *testkit.Client
	nobody  *testkit.Client
	asked   int
	made    int
}

func newStand(t *testing.T) *stand {
	t.Helper()
	client := testkit.Redis(t)
	p, admin := producttest.StartWith(t, client, service.Settings{
		ClientURL: "https://panel.example.com",
		Tuning:    service.Tuning{PasswordMemory: passwords.DefaultMemory}, // it is times of logins that are compared
	})
	return &stand{t: t, product: p, redis: client, admin: admin, nobody: admin.WithKey("")}
}

// in is the same one for a subtest.
func (s *stand) in(t *testing.T) *stand {
	other := *s
	other.t, other.admin, other.nobody = t, s.admin.WithT(t), s.nobody.WithT(t)
	return &other
}

// account is one that somebody tries, and what with.
type account struct {
	what, kind, email, sent string
}

func (a account) login() map[string]any {
	return map[string]any{"type": a.kind, "email": a.email, "password": a.sent}
}

func (a account) forgotten() map[string]any {
	return map[string]any{"type": a.kind, "email": a.email}
}

const (
	unknownName = "an unknown name"
	signedIn    = "an account that was signed in to" // of clients: it is claimed
)

// unknown is a name that nobody has, and that was not tried before.
func (s *stand) unknown(kind string) account {
	s.made++
	return account{unknownName, kind, fmt.Sprintf("%d@nobody.example.com", s.made), "wrong"}
}

const password = "a long walk in the rain"

// makeAccounts makes those that nobody is let in to.
func (s *stand) makeAccounts(t *testing.T, kind string) (all []account) {
	t.Helper()
	admin := s.admin.WithT(t)
	for _, a := range []struct {
		what, password, sent string
		change               func(url string)
	}{
		{"a wrong password", password, "wrong", nil},
		{"an account without a password", "", "", nil},
		{"a disabled account", password, password, func(url string) { admin.Do("PATCH", url, `{"disabled": true}`).Want(200) }},
		{"a deleted account", password, password, func(url string) { admin.Do("DELETE", url, nil).Want(200) }},
		{signedIn, password, "wrong", nil},
	} {
		s.made++
		email := fmt.Sprintf("%d@%s.example.com", s.made, kind)
		body := map[string]any{"email": email, "password": a.password}
		if kind == "client" {
			body["first"], body["last"] = "Ben", "Miller"
		}
		id := admin.Do("POST", "/"+kind, body).Want(200).ID()
		if a.what == signedIn { // from elsewhere: where it usually is, fewer guesses of others count
			s.time(t, "/auth/key", account{kind: kind, email: email, sent: password}.login(), http.StatusOK)
		}
		if a.change != nil {
			a.change(fmt.Sprintf("/%s/%d", kind, id))
		}
		all = append(all, account{a.what, kind, email, a.sent})
	}
	return all
}
