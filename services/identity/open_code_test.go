package identity_test

import (
	"sync"
	"testing"

	"github.com/ironplane/ironplane/pkg/auth/credentials"
	"github.com/ironplane/ironplane/pkg/auth/lockout"
	"github.com/ironplane/ironplane/pkg/mail"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/pkg/testkit/secondfactor"
)

// from is an address of a network that nobody else uses.
func from(n int) string { return path("2001:db8:%x::1", n) }

// beginLoginFrom sends the right password of an account with a second factor from an address.
func beginLoginFrom(t *testing.T, c *testkit.Client, address, body string) *secondfactor.Login {
	t.Helper()
	return testkit.Decode[struct{ Verify *secondfactor.Login }](
		c.WithKey("").WithT(t).Do("POST", "/auth/key", body, "Test-Address", address).Want(200),
	).Verify
}

// attackNetworks are the addresses of attackers who know a password.
var attackNetworks = map[string]func(n int) string{
	"one address": func(int) string { return "198.51.100.1" },
	"a /48":       func(n int) string { return path("2001:db9:7:%x::1", n) },
	"a /24":       func(n int) string { return path("198.51.100.%d", n) },
	"a /16":       func(n int) string { return path("198.51.%d.1", n) },
}

// A caller that knows a password begins any number of logins. It ends none of the challenges that the owner began from another network,
// from a known device or in a session. The owner can begin others.
func TestOpenCodes(t *testing.T) {
	t.Parallel()
	s, c := newFixture(t)
	for label, address := range attackNetworks {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			email := path("often%d@example.com", len(label)*10+len(address(1)))
			id := s.newPerson("admin", email)
			body := loginBody("admin", email, password)
			device := newDevice(t, c.WithKey(""), body)
			_, session := signIn(t, c.WithT(t), body)
			a, _ := secondfactor.NewVerifiedApp(t, s.DB, session)
			fromSession := session.Do("POST", a.Path()+"/code", `{}`).Want(200).ID()
			begun := []*secondfactor.Login{
				beginLoginFrom(t, c, from(1), body),
				beginLoginFrom(t, c, address(201), withDevice(body, device)), // as near as the attacker
			}
			for first := range 12 {
				var all sync.WaitGroup
				for n := range lockout.MaxPerNameAndAddress {
					all.Go(func() { beginLoginFrom(t, c, address(12*n+first), body) })
				}
				all.Wait()
			}
			begun = append(begun, beginLoginFrom(t, c, from(2), body), beginLoginFrom(t, c, address(202), body))
			var open int
			if err := s.DB.QueryRow(t.Context(), "SELECT count(*) FROM verify_code WHERE owner_type = 'admin' AND owner_id = $1 "+
				"AND challenge IS NOT NULL AND expires_at > now()", id).Scan(&open); err != nil || open != 21 {
				t.Errorf("got %d open logins and %v, want 20, and one from the device", open, err)
			}
			for _, v := range begun {
				v.Complete(t, c, a.Code())
			}
			session.Do("PATCH", path("%s/code/%d", a.Path(), fromSession), map[string]any{"token": a.Code()}).Want(200)
		})
	}
}

// A caller that knows a password and sends wrong codes locks out neither the owner's known devices nor its sessions.
func TestInvalidCodesLockOutLogins(t *testing.T) {
	t.Parallel()
	s, c := newFixture(t)
	s.newPerson("client", "ben@example.com")
	body := loginBody("client", "ben@example.com", password)
	device := newDevice(t, c.WithKey(""), body)
	_, session := signIn(t, c, body)
	a, _ := secondfactor.NewVerifiedApp(t, s.DB, session)
	for guessed := 0; guessed < lockout.MaxCodes; {
		v := beginLoginFrom(t, c, "198.51.100.1", body)
		for range 5 {
			c.WithKey("").Do("PATCH", v.Path(), v.Answer(invalidToken)).WantErrors("/token", "wrong")
			guessed++
		}
	}
	v := beginLoginFrom(t, c, from(1), body)
	c.WithKey("").Do("PATCH", v.Path(), v.Answer(a.Code())).Want(429)
	beginLoginFrom(t, c, from(1), withDevice(body, device)).Complete(t, c, a.Code())
	a.Confirm(session)
}

// Logins mail a bounded number of codes for each network, so nobody floods the owner's mailbox, and the owner gets codes elsewhere.
func TestMailedCodesAreBounded(t *testing.T) {
	t.Parallel()
	s, c := newFixture(t)
	s.editClient(s.newPerson("client", "ben@example.com"), func(a *credentials.Account) { a.Require = true })
	body := loginBody("client", "ben@example.com", password)
	v := beginLoginFrom(t, c, from(1), body)
	_, _ = v.Complete(t, c, s.mailedCode("ben@example.com", 1))
	mailed := 1
	attack := func(times, want int, address func(n int) string) {
		t.Helper()
		var asked int
		for n := range times {
			switch response := c.WithKey("").Do("POST", "/auth/key", body, "Test-Address", address(n)); {
			case response.Status == 200:
				asked++
			case response.Status != 429 || response.Header.Get("Retry-After") != "600":
				t.Errorf("got %d: %s, want 200, or 429 with Retry-After 600", response.Status, response.Text)
			}
		}
		if mailed += asked; asked != want {
			t.Errorf("got %d codes mailed, want %d", asked, want)
		}
	}
	attack(15, 10, attackNetworks["one address"])
	attack(30, 10, attackNetworks["a /16"]) // after those of one of its addresses
	attack(30, 10, attackNetworks["a /48"]) // all of one /56
	v = beginLoginFrom(t, c, from(2), body) // the owner elsewhere
	mailed++
	v.Complete(t, c, s.mailedCode("ben@example.com", mailed))
	attack(70, 60-mailed, func(n int) string { return path("%d.0.0.1", n+1) })
	c.WithKey("").Do("POST", "/auth/key", body, "Test-Address", from(3)).Want(429)
	codes := 0
	for _, m := range s.System.Mails("ben@example.com") {
		if _, ok := m.Opened.(mail.TwoFactorCode); ok {
			codes++
		}
	}
	if codes > mailed {
		t.Errorf("got %d mailed codes, want at most %d", codes, mailed)
	}
	testkit.Execute(t, s.DB, "UPDATE verify_code SET mailed_at = mailed_at - interval '10 minutes'")
	beginLoginFrom(t, c, from(3), body)
}
