package identity_test

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ironplane/ironplane/pkg/auth/credentials"
	"github.com/ironplane/ironplane/pkg/auth/lockout"
	"github.com/ironplane/ironplane/pkg/mail"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/pkg/testkit/secondfactor"
	"github.com/ironplane/ironplane/services/identity/keys"
	"github.com/ironplane/ironplane/services/identity/login"
	"github.com/ironplane/ironplane/services/identity/mfa"
)

// invalidToken is a token that matches no code.
const invalidToken = "12345x"

// recoveryForm matches 24 characters of base32, which are 120 bits.
var recoveryForm = regexp.MustCompile(`^([a-z2-7]{4}-){5}[a-z2-7]{4}$`)

// Once an app is added and verified, logins ask for its code. To remove the last one takes a recent confirmation.
func TestTwoFactorLogin(t *testing.T) {
	t.Parallel()
	s, c := newFixture(t)
	for _, kind := range []string{"admin", "client"} {
		email := "two@" + kind + ".example.com"
		self := path("/%s/%d", kind, s.newPerson(kind, email))
		_, session := signIn(t, c, loginBody(kind, email, password))
		a := secondfactor.NewApp(t, s.DB, session)
		session.Do("PATCH", a.Path(), `{"verified": true}`).WantErrors("/verified", "unconfirmed")
		signIn(t, c, loginBody(kind, email, password)) // without a code, until the app is verified
		if text := session.Do("GET", a.Path(), nil).Want(200).Text; strings.Contains(text, a.Secret) || strings.Contains(text, "otpauth") {
			t.Errorf("got %s, want the app without its secret", text)
		}
		session.Do("POST", "/auth/verify/recovery", nil).Want(409)
		a.Confirm(session)
		_, other := signIn(t, c, loginBody(kind, email, password))
		other.Do("PATCH", a.Path(), `{"verified": true}`).WantErrors("/verified", "unconfirmed") // another session's code
		verified := testkit.Decode[mfa.Authenticator](session.Do("PATCH", a.Path(), `{"verified": true}`).Want(200))
		if !verified.Verified || len(verified.RecoveryCodes) != 10 || verified.Owner.URL != self {
			t.Errorf("got %+v, want it verified with ten recovery codes and the owner %s", verified, self)
		}
		for _, code := range verified.RecoveryCodes {
			if !recoveryForm.MatchString(code) {
				t.Errorf("got the recovery code %q, want one of at least 112 bits", code)
			}
		}
		session.Do("PATCH", a.Path(), `{"verified": true}`).Want(200)
		session.Do("PATCH", a.Path(), `{"method": {"id": 2}}`).WantErrors("/method", "read_only")
		session.Do("PATCH", a.Path(), `{"verifed": true}`).WantErrors("/verifed", "unknown")
		session.Do("PATCH", a.Path(), `{"value": "x@example.com"}`).WantErrors("/value", "read_only")

		// Now a login needs a code.
		v := secondfactor.BeginLogin(t, c, loginBody(kind, email, password))
		if v.Code.Auth.ID != a.ID || v.Code.Auth.Method.Name != "totp" || len(v.Auths) != 1 {
			t.Errorf("got %+v, want a totp code of authenticator %d alone", v, a.ID)
		}
		anonymous := c.WithKey("")
		anonymous.Do("PATCH", v.Path(), map[string]any{"token": a.Code()}).Want(401)
		anonymous.Do("PATCH", v.Path(), map[string]any{"token": a.Code(), "challenge": v.Challenge + "x"}).Want(401)
		anonymous.Do("PATCH", v.Path(), map[string]any{"challenge": v.Challenge}).WantErrors("/token", "required")
		anonymous.Do("PATCH", v.Path(), v.Answer(invalidToken)).WantErrors("/token", "wrong")
		session.Do("PATCH", v.Path(), map[string]any{"token": a.Code()}).Want(404) // this key has not asked for the code
		key, signedIn := v.Complete(t, c, a.Code())
		if key.Owner.URL != self {
			t.Errorf("got a key of %+v, want one of %s", key.Owner, self)
		}
		signedIn.Do("GET", "/auth/key/current", nil).Want(200)
		anonymous.Do("PATCH", v.Path(), v.Answer(a.Code())).WantErrors("/token", "expired")
		v = secondfactor.BeginLogin(t, c, loginBody(kind, email, password))
		misspelled := anonymous.Do("PATCH", path("/auth/verify/auth/%d/code/%s", a.ID, v.Challenge), `{"tokn": "1"}`)
		misspelled.WantErrors("/token", "required", "/tokn", "unknown")
		anonymous.Do("PATCH", path("/auth/verify/auth/%d/code/%s", a.ID, v.Challenge), map[string]any{"verify": a.Code()}).Want(200)
		v = secondfactor.BeginLogin(t, c, loginBody(kind, email, password))
		wrapped := map[string]any{"verify": map[string]any{"token": a.Code()}}
		anonymous.Do("PATCH", path("/auth/verify/auth/%d/code/%s", a.ID, v.Challenge), wrapped).Want(200)

		// The code of a time step counts once.
		v, otherLogin := secondfactor.BeginLogin(
			t,
			c,
			loginBody(kind, email, password),
		), secondfactor.BeginLogin(
			t,
			c,
			loginBody(kind, email, password),
		)
		token := a.Code()
		v.Complete(t, c, token)
		anonymous.Do("PATCH", otherLogin.Path(), otherLogin.Answer(token)).
			WantErrors("/token", "expired")

		// To add a second authenticator or remove the last one takes a confirmation, which the other session has not.
		other.Do("POST", "/auth/verify/auth", `{"method": 2, "value": "b@example.com"}`).Want(403)
		other.Do("DELETE", a.Path(), nil).Want(403)
		other.Do("PATCH", a.Path(), `{"verified": false}`).Want(403)
		other.Do("POST", "/auth/verify/recovery", nil).Want(403)
		if created := testkit.Decode[mfa.RecoveryCodes](
			signedIn.Do("POST", "/auth/verify/recovery", nil).Want(200),
		); created.Left != 10 ||
			created.Codes[0] == verified.RecoveryCodes[0] {
			t.Errorf("got %+v, want ten new recovery codes", created)
		}
		second := signedIn.Do("POST", "/auth/verify/auth", `{"method": 2, "value": "b@example.com"}`).Want(200).ID()
		signedIn.Do("DELETE", path("/auth/verify/auth/%d", second), nil).Want(200)
		testkit.Execute(t, s.DB, "UPDATE verify_code SET confirmed_at = confirmed_at - interval '11 minutes'")
		signedIn.Do("DELETE", a.Path(), nil).Want(403)
		a.Confirm(signedIn)
		signedIn.Do("DELETE", a.Path(), nil).Want(200)
		if left := testkit.Decode[mfa.RecoveryCodes](signedIn.Do("GET", "/auth/verify/recovery", nil).Want(200)); left.Left != 0 {
			t.Errorf("without an authenticator: got the recovery codes %+v, want none left", left)
		}
		signIn(t, c, loginBody(kind, email, password))
	}
	for kind, want := range map[string]int{
		"admin.verify_code.refused": 1, "client.verify_code.refused": 1, "auth.verify.auth.verified": 2, "auth.verify.auth.deleted": 4,
		"admin.recovery_codes.renewed": 1,
	} {
		s.wantRecords(kind, want)
	}
}

// Of many concurrent requests with one code or recovery code, one signs in.
func TestCodeCountsOnce(t *testing.T) {
	t.Parallel()
	s, c := newFixture(t)
	s.newPerson("client", "ben@example.com")
	login := loginBody("client", "ben@example.com", password)
	_, session := signIn(t, c, login)
	a, recovery := secondfactor.NewVerifiedApp(t, s.DB, session)
	count := func(logins []*secondfactor.Login, token string) (let int32) {
		var in atomic.Int32
		var all sync.WaitGroup
		for i := range 32 {
			v := logins[i%len(logins)]
			all.Go(func() {
				switch response := c.WithKey("").Do("PATCH", v.Path(), v.Answer(token)); response.Status {
				case 200:
					in.Add(1)
				case 422, 429:
				default:
					t.Errorf("got %d: %s, want 200, 422 or 429", response.Status, response.Text)
				}
			})
		}
		all.Wait()
		return in.Load()
	}
	token := a.Code()
	if n := count([]*secondfactor.Login{secondfactor.BeginLogin(t, c, login)}, token); n != 1 {
		t.Errorf("one code: got %d signed in, want 1", n)
	}
	var logins []*secondfactor.Login
	for range 16 {
		logins = append(logins, secondfactor.BeginLogin(t, c, login))
	}
	if n := count(logins, token); n != 0 {
		t.Errorf("a used code: got %d signed in, want 0", n)
	}
	testkit.Execute(t, s.DB, "DELETE FROM verify_code WHERE confirmed_at IS NULL")
	logins = nil
	for range 16 {
		logins = append(logins, secondfactor.BeginLogin(t, c, login))
	}
	if n := count(logins, strings.ToUpper(recovery[0])); n != 1 {
		t.Errorf("one recovery code: got %d signed in, want 1", n)
	}
	if left := testkit.Decode[mfa.RecoveryCodes](session.Do("GET", "/auth/verify/recovery", nil).Want(200)); left.Left != 9 {
		t.Errorf("got %d recovery codes left, want 9", left.Left)
	}
}

// Five wrong codes end a challenge. Twenty lock the account's codes for a quarter of an hour.
func TestGuessingCodes(t *testing.T) {
	t.Parallel()
	s, c := newFixture(t)
	s.newPerson("client", "ben@example.com")
	login := loginBody("client", "ben@example.com", password)
	_, session := signIn(t, c, login)
	a, _ := secondfactor.NewVerifiedApp(t, s.DB, session)
	guess := func(v *secondfactor.Login, token string) *testkit.Response {
		return c.WithKey("").Do("PATCH", v.Path(), v.Answer(token))
	}
	const tries = 5
	v := secondfactor.BeginLogin(t, c, login)
	var compared, expired atomic.Int32
	var all sync.WaitGroup
	for range 16 { // fewer than lockout.MaxCodes, which would refuse some of them with 429
		all.Go(func() {
			switch text := guess(v, invalidToken).Text; {
			case strings.Contains(text, `"wrong"`):
				compared.Add(1)
			case strings.Contains(text, `"expired"`):
				expired.Add(1)
			}
		})
	}
	all.Wait()
	if compared.Load() != tries || expired.Load() != 16-tries {
		t.Errorf("concurrent guesses at one code: got %d compared and %d refused, want %d and %d",
			compared.Load(), expired.Load(), tries, 16-tries)
	}
	guess(v, a.Code()).WantErrors("/token", "expired")
	for guessed := tries; guessed < lockout.MaxCodes; guessed++ {
		if guessed%tries == 0 {
			v = secondfactor.BeginLogin(t, c, login)
		}
		guess(v, invalidToken).WantErrors("/token", "wrong")
	}
	locked := guess(secondfactor.BeginLogin(t, c, login), a.Code()).Want(429)
	if locked.Header.Get("Retry-After") == "" {
		t.Error("got a 429 without Retry-After, want one with it")
	}
}

// Callers may read and write second factors as their permissions allow.
func TestSecondFactorPermissions(t *testing.T) {
	t.Parallel()
	s, c := newFixture(t)
	anna, annaClient := newAdmin(
		t,
		c,
		"anna",
		`{"users": {"admins": {"read": true, "write": true}, "clients": {"read": true, "write": true}}}`,
	)
	_, powerless := newAdmin(t, c, "powerless", `{}`)
	_, reader := newAdmin(t, c, "reader", `{"users": {"admins": {"read": true, "write": false}, "clients": {"read": true, "write": false}}}`)
	big, bigClient := newAdmin(t, c, "big", `{"network": {"groups": {"read": true, "write": true}}}`)
	client := s.newPerson("client", "ben@example.com")
	_, benClient := signIn(t, c, loginBody("client", "ben@example.com", password))
	of := map[string]*secondfactor.App{}
	for name, caller := range map[string]*testkit.Client{"anna": annaClient, "big": bigClient, "ben": benClient} {
		of[name], _ = secondfactor.NewVerifiedApp(t, s.DB, caller)
	}
	for name, a := range of {
		powerless.Do("GET", a.Path(), nil).Want(404)
		powerless.Do("DELETE", a.Path(), nil).Want(404)
		reader.Do("GET", a.Path(), nil).Want(200)
		reader.Do("DELETE", a.Path(), nil).Want(403)
		reader.Do("PATCH", a.Path(), `{"verified": false}`).Want(403)
		reader.Do("POST", a.Path()+"/code", `{}`).Want(403) // only the owner may ask for a code
		if name != "anna" {
			annaClient.Do("POST", a.Path()+"/code", `{}`).Want(403)
		}
	}
	for _, kind := range []string{"admin", "client"} {
		reader.Do("DELETE", path("/%s/%d/verify", kind, client), nil).Want(403)
	}
	if n := len(testkit.Decode[[]mfa.Authenticator](powerless.Do("GET", "/auth/verify/auth", nil).Want(200))); n != 0 {
		t.Errorf("an powerless caller: got %d authenticators, want 0", n)
	}
	if all := testkit.Decode[[]mfa.Authenticator](
		reader.Do("GET", path("/auth/verify/auth?owner=/client/%d", client), nil).Want(200),
	); len(all) != 1 || all[0].ID != of["ben"].ID ||
		all[0].Value != nil {
		t.Errorf("got the client's authenticators %+v, want only %d without its value", all, of["ben"].ID)
	}
	// A caller that holds less than an account cannot remove its factors. One's own need a confirmation on every path.
	annaClient.Do("DELETE", of["big"].Path(), nil).Want(403)
	annaClient.Do("DELETE", path("/admin/%d/verify", big), nil).Want(403)
	testkit.Execute(t, s.DB, "DELETE FROM verify_code")
	annaClient.Do("DELETE", path("/admin/%d/verify", anna), nil).Want(403)
	annaClient.Do("DELETE", "/admin/999/verify", nil).Want(404)
	annaClient.Do("DELETE", "/client/999/verify", nil).Want(404)

	// Integrations have no second factors. A session that acts for a client cannot change its factors.
	s.System.SetIntegration(1, "shop")
	shopClient := c.WithKey(
		testkit.Decode[keys.APIKey](c.Do("POST", "/auth/key", `{"name": "shop", "owner": {"url": "/integration/1"}}`).Want(200)).Key,
	)
	shopClient.Do("POST", "/auth/verify/auth", `{"method": 1}`).Want(403)
	shopClient.Do("DELETE", of["ben"].Path(), nil).Want(404)
	shopClient.Do("DELETE", path("/client/%d/verify", client), nil).Want(403)
	acting := c.WithKey(
		testkit.Decode[keys.APIKey](c.Do("POST", "/auth/key", path(`{"owner": {"url": "/client/%d"}}`, client)).Want(200)).Key,
	)
	acting.Do("GET", of["ben"].Path(), nil).Want(200)
	for _, refused := range []*testkit.Response{acting.Do("POST", "/auth/verify/auth", `{"method": 1}`), acting.Do("POST", of["ben"].Path()+"/code", `{}`), acting.Do("DELETE", of["ben"].Path(), nil),
		acting.Do("PATCH", of["ben"].Path(), `{"verified": false}`), acting.Do("POST", "/auth/verify/recovery", nil)} {
		refused.Want(403)
	}

	// A key that is bound to less than its owner holds cannot change the owner's factors.
	bound := c.WithKey(
		testkit.Decode[keys.APIKey](annaClient.Do("POST", "/auth/key", keyBody(newAdminID(t, c, "lifted", `{}`))).Want(200)).Key,
	)
	bound.Do("POST", "/auth/verify/auth", `{"method": 1}`).Want(200)
	c.Do("PATCH", path("/admin/%d/permission", ownerID(t, bound)), `{"network": {"groups": {"read": true}}}`).Want(200)
	bound.Do("POST", "/auth/verify/auth", `{"method": 1}`).WantDetail(403, "The account holds permissions that the key lacks: network.groups read.")

	// Removing the factors of an account that has lost them.
	annaClient.Do("DELETE", path("/client/%d/verify", client), nil).Want(200)
	_, newSession := signIn(t, c, loginBody("client", "ben@example.com", password))
	newSession.Do("GET", of["ben"].Path(), nil).Want(404)
	c.Do("DELETE", path("/admin/%d/verify", big), nil).Want(200)
	c.Do("DELETE", path("/admin/%d/verify", big), nil).Want(200)
	s.wantRecords("admin.authenticators.removed", 1)
	// Deleting an account deletes its authenticators.
	c.Do("DELETE", path("/admin/%d", anna), nil).Want(200)
	c.Do("GET", of["anna"].Path(), nil).Want(404)
	var left int
	if err := s.DB.QueryRow(t.Context(), "SELECT count(*) FROM recovery_code").Scan(&left); err != nil || left != 0 {
		t.Errorf("deleted accounts: got %d recovery codes and the error %v, want 0", left, err)
	}
}

func newAdminID(t *testing.T, c *testkit.Client, name, permissions string) int64 {
	t.Helper()
	id, _ := newAdmin(t, c, name, permissions)
	return id
}

// ownerID returns the id of the admin that owns the client's key.
func ownerID(t *testing.T, c *testkit.Client) (id int64) {
	t.Helper()
	owner := testkit.Decode[keys.APIKey](c.Do("GET", "/auth/key/current", nil).Want(200)).Owner
	if _, err := fmt.Sscanf(owner.URL, "/admin/%d", &id); err != nil {
		t.Fatal(err)
	}
	return id
}

// mailedCode waits for the nth code that was mailed to an address.
func (s *fixture) mailedCode(address string, n int) string {
	s.t.Helper()
	var codes []string
	testkit.Eventually(s.t, "a code is mailed to "+address, func() bool {
		codes = nil
		for _, m := range s.System.Mails(address) {
			if is, ok := m.Opened.(mail.TwoFactorCode); ok {
				codes = append(codes, is.Code.Reveal())
			}
		}
		return len(codes) >= n
	})
	return codes[n-1]
}

// An account that needs a second factor and has none is mailed a code. To use another address takes a code sent to it.
func TestCodesByMail(t *testing.T) {
	t.Parallel()
	s, c := newFixture(t)
	id := s.newPerson("client", "ben@example.com")
	s.editClient(id, func(a *credentials.Account) { a.Require = true })
	body := loginBody("client", "ben@example.com", password)
	v := secondfactor.BeginLogin(t, c, body)
	if v.Code.Auth.ID != 0 || v.Code.Auth.Method.Name != "email" || len(v.Auths) != 0 {
		t.Errorf("got %+v, want a code by mail", v)
	}
	_, own := v.Complete(t, c, s.mailedCode("ben@example.com", 1))

	// A changed password ends the codes that were sent before.
	v = secondfactor.BeginLogin(t, c, body)
	code := s.mailedCode("ben@example.com", 2)
	s.editClient(id, func(a *credentials.Account) { a.Version++ })
	c.WithKey("").Do("PATCH", v.Path(), v.Answer(code)).WantErrors("/token", "expired")
	own.Do("GET", current, nil).Want(401)
	_, own = secondfactor.BeginLogin(t, c, body).Complete(t, c, s.mailedCode("ben@example.com", 3))

	auth := testkit.Decode[mfa.Authenticator](own.Do("POST", "/auth/verify/auth", `{"method": {"id": 2}}`).Want(200))
	if auth.Value == nil || *auth.Value != "ben@example.com" {
		t.Errorf("got %+v, want it with the account's address", auth)
	}
	at := path("/auth/verify/auth/%d", auth.ID)
	own.Do("PATCH", at, `{"value": "nowhere"}`).WantErrors("/value", "invalid")
	own.Do("PATCH", at, `{"value": "phone@example.com"}`).Want(200)
	asked := own.Do("POST", at+"/code", `{"isWrapped": true}`).Want(200)
	code = s.mailedCode("phone@example.com", 1)
	of := path("%s/code/%d", at, asked.ID())
	if text := own.Do("GET", of, nil).Want(200).Text + asked.Text; strings.Contains(text, code) {
		t.Errorf("got %s, want it without the code", text)
	}
	own.Do("PATCH", of, map[string]any{"token": code}, "If-Match", `"7"`).Want(412)
	own.Do("PATCH", of, map[string]any{"token": " " + code[:3] + " " + code[3:]}).Want(200)
	own.Do("PATCH", at, `{"verified": true, "value": "other@example.com"}`).WantErrors("/verified", "unconfirmed")
	own.Do("PATCH", at, `{"verified": true}`).Want(200)

	// With two authenticators the login chooses one.
	a, _ := secondfactor.NewVerifiedApp(t, s.DB, own)
	if v = secondfactor.BeginLogin(t, c, body); v.Code.Auth.ID != a.ID || len(v.Auths) != 2 {
		t.Errorf("got %+v, want the app's code out of two", v)
	}
	if v = secondfactor.BeginLogin(t, c, strings.TrimSuffix(body, "}")+path(`, "auth": %d}`, auth.ID)); v.Code.Auth.ID != auth.ID {
		t.Errorf("got %+v, want a code by mail of authenticator %d", v, auth.ID)
	}
	v.Complete(t, c, s.mailedCode("phone@example.com", 2))
	c.WithKey("").Do("POST", "/auth/key", strings.TrimSuffix(body, "}")+`, "auth": 999}`).WantErrors("/auth", "not_found")
}

// If the setting asks for it, an admin without a second factor is mailed a code.
func TestAdminsMustHaveSecondFactors(t *testing.T) {
	t.Parallel()
	s, c := newFixture(t)
	s.newPerson("admin", "anna@example.com")
	s.System.SetSetting("security.verify_admins", "1")
	testkit.Eventually(t, "a login takes a code", func() bool {
		answer := testkit.Decode[login.GivenKey](
			c.WithKey("").Do("POST", "/auth/key", loginBody("admin", "anna@example.com", password)).Want(200),
		)
		return answer.Verify != nil && answer.Verify.Code.Auth.ID == 0
	})
	s.mailedCode("anna@example.com", 1)
}
