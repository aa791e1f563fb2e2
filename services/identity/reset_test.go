package identity_test

import (
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ironplane/ironplane/pkg/auth/credentials"
	"github.com/ironplane/ironplane/pkg/mail"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/pkg/testkit/secondfactor"
	"github.com/ironplane/ironplane/services/identity/keys"
	"github.com/ironplane/ironplane/services/identity/login"
	"github.com/ironplane/ironplane/services/identity/mfa"
)

const newPassword = "seven grey herons at dusk"

// links returns the links that were mailed to an address.
func (s *fixture) links(address string) (all []*url.URL) {
	s.t.Helper()
	for _, m := range s.System.Mails(address) {
		var link secret.String
		switch is := m.Opened.(type) {
		case mail.PasswordReset:
			link = is.Link
		case mail.ClientAccountCreated:
			link = is.Link
		default:
			continue
		}
		at, err := url.Parse(link.Reveal())
		if err != nil {
			s.t.Fatal(err)
		}
		all = append(all, at)
	}
	return all
}

// nextLink waits until more than before links were mailed to an address, and returns the newest.
func (s *fixture) nextLink(address string, before int) *url.URL {
	s.t.Helper()
	var all []*url.URL
	testkit.Eventually(s.t, "a link is mailed to "+address, func() bool {
		all = s.links(address)
		return len(all) > before
	})
	return all[len(all)-1]
}

func tokenOf(t *testing.T, link *url.URL) string {
	t.Helper()
	values, err := url.ParseQuery(link.Fragment)
	if err != nil || values.Get("token") == "" {
		t.Fatalf("the link: got %s, want one with a token", link)
	}
	return values.Get("token")
}

// A mailed link sets a new password once, and ends the account's sessions and other links.
func TestPasswordReset(t *testing.T) {
	t.Parallel()
	s, c := newFixture(t)
	s.setPanels()
	testkit.Eventually(t, "the service knows the panels' addresses", func() bool { return c.Do("GET", "/auth/sso", nil).Status == 200 })
	anonymous := c.WithKey("")
	for kind, panel := range map[string]string{"admin": "admin.example.com", "client": "panel.example.com"} {
		email := "one@" + kind + ".example.com"
		id := s.newPerson(kind, email)
		if kind == "client" {
			s.editClient(id, func(a *credentials.Account) { a.Claimed = true })
		}
		_, session := signIn(t, c, loginBody(kind, email, password))
		lasting := testkit.Decode[keys.APIKey](session.Do("POST", "/auth/key", `{"name": "lasting"}`).Want(200))

		ask := map[string]any{"type": kind, "email": strings.ToUpper(email)}
		want := `{"user":{"email":"` + strings.ToUpper(email) + `"}}`
		if got := anonymous.Do("POST", "/auth/password-reset", ask).Want(200).Text; strings.TrimSpace(got) != want {
			t.Errorf("answer to a caller without a key: got %s, want %s", got, want)
		}
		link := s.nextLink(email, 0)
		if link.Host != panel || !strings.HasPrefix(link.Path, "/auth/password-reset/") {
			t.Errorf("the link: got %s, want one to %s", link, panel)
		}
		for _, caller := range []*testkit.Client{c, session} {
			shown := testkit.Decode[login.PasswordReset](caller.Do("POST", "/auth/password-reset", ask).Want(200)).User
			if shown.ID == nil || *shown.ID != id || shown.Name == nil || (shown.Username != nil) != (kind == "admin") {
				t.Errorf("answer to a caller that may read the account: got %+v, want all of it", shown)
			}
		}
		second := s.nextLink(email, 2)

		choose := func(at *url.URL, token, password string) *testkit.Response {
			return anonymous.Do("PATCH", at.Path, map[string]any{"token": token, "password": password})
		}
		token := tokenOf(t, link)
		choose(link, tokenOf(t, second), newPassword).WantErrors("/token", "wrong")
		choose(link, token, "short").WantErrors("/password", "too_short")
		choose(link, token, "passwordpassword").WantErrors("/password", "too_weak")
		choose(link, token, "Bundesliga2026").WantErrors("/password", "too_weak")
		choose(link, token, "").WantErrors("/password", "too_short")
		var done atomic.Int32
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				switch response := choose(link, token, newPassword); response.Status {
				case 200:
					done.Add(1)
				case 404, 503: // too many passwords are being hashed
				default:
					t.Errorf("got %d: %s, want 200 or 404", response.Status, response.Text)
				}
			})
		}
		all.Wait()
		if n := done.Load(); n > 1 || n == 0 && choose(link, token, newPassword).Status != 200 {
			t.Errorf("uses of the link: got %d, want 1", n)
		}
		session.Do("GET", current, nil).Want(401)
		c.WithKey(lasting.Key).Do("GET", current, nil).Want(200)
		anonymous.Do("POST", "/auth/key", loginBody(kind, email, password)).Want(401)
		signIn(t, c, loginBody(kind, email, newPassword))
		choose(second, tokenOf(t, second), password).Want(404) // the first link's use has ended it
		testkit.Eventually(t, "the account is notified", func() bool {
			for _, m := range s.System.Mails(email) {
				if is, ok := m.Opened.(mail.AccountChanged); ok && strings.Contains(strings.Join(is.Changes, " "), "all sessions ended") {
					return true
				}
			}
			return false
		})

		// With the member keys, the lasting keys end too.
		before := len(s.links(email))
		anonymous.Do("POST", "/auth/password-reset", ask).Want(200)
		third := s.nextLink(email, before)
		anonymous.Do("PATCH", third.Path, map[string]any{"token": tokenOf(t, third), "password": password, "keys": true}).Want(200)
		c.WithKey(lasting.Key).Do("GET", current, nil).Want(401)
		s.wantRecords(kind+".password-reset.used", 2)

		// Disabling an account ends its links.
		before = len(s.links(email))
		anonymous.Do("POST", "/auth/password-reset", ask).Want(200)
		link = s.nextLink(email, before)
		if kind == "admin" {
			c.Do("PATCH", path("/admin/%d", id), disable).Want(200)
		} else {
			s.editClient(id, func(a *credentials.Account) { a.Disabled = true })
		}
		choose(link, tokenOf(t, link), newPassword).Want(404)
	}
	anonymous.Do("POST", "/auth/password-reset", `{}`).WantErrors("/email", "required", "/type", "required")
	anonymous.Do("POST", "/auth/password-reset", `{"email": "x@example.com", "type": "integration"}`).WantErrors("/type", "invalid")
}

// The response to a request for a link is the same whether or not the account exists.
func TestResetHidesAccounts(t *testing.T) {
	t.Parallel()
	s, c := newFixture(t)
	for _, kind := range []string{"admin", "client"} {
		s.newPerson(kind, "right@"+kind+".example")
		off := s.newPerson(kind, "disabled@"+kind+".example")
		if kind == "admin" {
			c.Do("PATCH", path("/admin/%d", off), disable).Want(200)
		} else {
			s.editClient(off, func(a *credentials.Account) { a.Disabled = true })
		}
		var texts []string
		for _, name := range []string{"right", "disabled", "unknown"} {
			response := c.WithKey("").
				Do("POST", "/auth/password-reset", map[string]any{"type": kind, "email": name + "@" + kind + ".example"}).
				Want(200)
			texts = append(texts, strings.ReplaceAll(response.Text, name, ""))
		}
		for _, text := range texts {
			if text != texts[0] {
				t.Errorf("answers: got %s and %s, want one", text, texts[0])
			}
		}
	}
}

// A new client is mailed a link. Its use claims the account, and removes the second factors that others added before.
func TestWelcome(t *testing.T) {
	t.Parallel()
	s, c := newFixture(t)
	s.setPanels()
	id := s.newPerson("client", "new@example.com")
	s.Clients.Send("identity", credentials.WelcomeKind, credentials.Welcome{Client: id}, secret.String{})
	link := s.nextLink("new@example.com", 0)
	early := testkit.Decode[keys.APIKey](
		c.Do("POST", "/auth/key", map[string]any{"name": "early", "owner": map[string]any{"url": path("/client/%d", id)}}).Want(200),
	)
	secondfactor.NewVerifiedApp(t, s.DB, c.WithKey(early.Key))
	c.WithKey("").Do("PATCH", link.Path, map[string]any{"token": tokenOf(t, link), "password": newPassword}).Want(200)
	if !s.Clients.Account(id).Claimed {
		t.Error("after a used link: got it unclaimed, want it claimed")
	}
	if left := testkit.Decode[[]mfa.Authenticator](c.Do("GET", path("/auth/verify/auth?owner=/client/%d", id), nil).Want(200)); len(left) > 0 {
		t.Errorf("authenticators from before: got %+v, want none", left)
	}
	signIn(t, c, loginBody("client", "new@example.com", newPassword))
}
