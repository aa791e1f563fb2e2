package identity_test

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pquerna/otp"
	"github.com/pquerna/otp/totp"

	"github.com/ironplane/ironplane/pkg/auth/credentials"
	"github.com/ironplane/ironplane/pkg/auth/lockout"
	"github.com/ironplane/ironplane/pkg/mail"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/identity/keys"
	"github.com/ironplane/ironplane/services/identity/login"
	"github.com/ironplane/ironplane/services/identity/mfa"
)

// app is what shows somebody codes.
type app struct {
	t   *testing.T
	s   *fixture
	id  int64
	key *otp.Key
}

// newApp makes an authenticator of the caller, which is not verified yet.
func newApp(t *testing.T, s *fixture, c *testkit.Client) app {
	t.Helper()
	created := testkit.Decode[mfa.Authenticator](c.Do("POST", "/auth/verify/auth", `{"method": {"id": 1}}`).Want(200))
	if created.Value == nil || created.Verified || len(created.RecoveryCodes) > 0 {
		t.Fatalf("got %+v, want an unverified app with its value and without recovery codes", created)
	}
	key, err := otp.NewKeyFromURL(*created.Value)
	if err != nil {
		t.Fatal(err)
	}
	return app{t, s, created.ID, key}
}

// code is what the app shows now, also where the service has taken it before: a test does not wait for the next one.
func (a app) code() string {
	a.t.Helper()
	testkit.Execute(a.t, a.s.DB, "UPDATE authenticator SET step = 0")
	return a.shown()
}

func (a app) shown() string {
	a.t.Helper()
	code, err := totp.GenerateCode(a.key.Secret(), time.Now())
	if err != nil {
		a.t.Fatal(err)
	}
	return code
}

func (a app) path() string { return path("/auth/verify/auth/%d", a.id) }

// confirm confirms a code of the app with a key.
func (a app) confirm(c *testkit.Client) {
	a.t.Helper()
	code := c.Do("POST", a.path()+"/code", `{}`).Want(200).ID()
	c.Do("PATCH", path("%s/code/%d", a.path(), code), map[string]any{"token": a.code()}).Want(200)
}

// verifiedApp makes an authenticator of the caller that is used, and answers the recovery codes that came with it.
func verifiedApp(t *testing.T, s *fixture, c *testkit.Client) (app, []string) {
	t.Helper()
	a := newApp(t, s, c)
	a.confirm(c)
	return a, testkit.Decode[mfa.Authenticator](c.Do("PATCH", a.path(), `{"verified": true}`).Want(200)).RecoveryCodes
}

// beginLogin is a login that takes a code.
func beginLogin(t *testing.T, c *testkit.Client, body string) *mfa.LoginVerify {
	t.Helper()
	answer := testkit.Decode[login.GivenKey](c.WithKey("").WithT(t).Do("POST", "/auth/key", body).Want(200))
	if answer.Key != "" || answer.ID != 0 || answer.Verify == nil || answer.Verify.Challenge == "" {
		t.Fatalf("got %+v, want a challenge and no key", answer)
	}
	return answer.Verify
}

func codePath(v *mfa.LoginVerify) string {
	return path("/auth/verify/auth/%d/code/%d", v.Code.Auth.ID, v.Code.ID)
}

// completeLogin completes a login with a token.
func completeLogin(t *testing.T, c *testkit.Client, v *mfa.LoginVerify, token string) (keys.APIKey, *testkit.Client) {
	t.Helper()
	key := testkit.Decode[mfa.ConfirmedKey](
		c.WithKey("").WithT(t).Do("PATCH", codePath(v), map[string]any{"token": token, "challenge": v.Challenge}).Want(200),
	).Key
	if key.Key == "" || key.Name != "Session" {
		t.Fatalf("got %+v, want a session with its value", key)
	}
	return key, c.WithKey(key.Key).WithT(t)
}

// invalidToken is a token that is not right, whatever is.
const invalidToken = "12345x"

// recoveryForm is of 24 characters of base32: 120 bits.
var recoveryForm = regexp.MustCompile(`^([a-z2-7]{4}-){5}[a-z2-7]{4}$`)

// An app is added, verified, and from then on asked for at login; the last one is removed by who has just confirmed a code.
func TestTwoFactorLogin(t *testing.T) {
	t.Parallel()
	s, c := newFixture(t)
	for _, kind := range []string{"admin", "client"} {
		email := "two@" + kind + ".example.com"
		self := path("/%s/%d", kind, s.newPerson(kind, email))
		_, session := signIn(t, c, loginBody(kind, email, password))
		a := newApp(t, s, session)
		session.Do("PATCH", a.path(), `{"verified": true}`).WantErrors("/verified", "unconfirmed")
		signIn(t, c, loginBody(kind, email, password)) // as long as it is not verified
		if text := session.Do("GET", a.path(), nil).Want(200).Text; strings.Contains(text, a.key.Secret()) || strings.Contains(text, "otpauth") {
			t.Errorf("got %s, want the app without its secret", text)
		}
		session.Do("POST", "/auth/verify/recovery", nil).Want(409)
		a.confirm(session)
		_, other := signIn(t, c, loginBody(kind, email, password))
		other.Do("PATCH", a.path(), `{"verified": true}`).WantErrors("/verified", "unconfirmed") // another session's code
		verified := testkit.Decode[mfa.Authenticator](session.Do("PATCH", a.path(), `{"verified": true}`).Want(200))
		if !verified.Verified || len(verified.RecoveryCodes) != 10 || verified.Owner.URL != self {
			t.Errorf("got %+v, want it verified with ten recovery codes and the owner %s", verified, self)
		}
		for _, code := range verified.RecoveryCodes {
			if !recoveryForm.MatchString(code) {
				t.Errorf("got the recovery code %q, want one of at least 112 bits", code)
			}
		}
		session.Do("PATCH", a.path(), `{"verified": true}`).Want(200)
		session.Do("PATCH", a.path(), `{"method": {"id": 2}}`).WantErrors("/method", "read_only")
		session.Do("PATCH", a.path(), `{"value": "x@example.com"}`).WantErrors("/value", "read_only")

		// Now a login takes a code.
		v := beginLogin(t, c, loginBody(kind, email, password))
		if v.Code.Auth.ID != a.id || v.Code.Auth.Method.Name != "totp" || len(v.Auths) != 1 {
			t.Errorf("got %+v, want a totp code of authenticator %d alone", v, a.id)
		}
		anonymous := c.WithKey("")
		anonymous.Do("PATCH", codePath(v), map[string]any{"token": a.code()}).Want(401)
		anonymous.Do("PATCH", codePath(v), map[string]any{"token": a.code(), "challenge": v.Challenge + "x"}).Want(401)
		anonymous.Do("PATCH", codePath(v), map[string]any{"challenge": v.Challenge}).WantErrors("/token", "required")
		anonymous.Do("PATCH", codePath(v), map[string]any{"token": invalidToken, "challenge": v.Challenge}).WantErrors("/token", "wrong")
		session.Do("PATCH", codePath(v), map[string]any{"token": a.code()}).Want(404) // it is no code of this key
		key, signedIn := completeLogin(t, c, v, a.code())
		if key.Owner.URL != self {
			t.Errorf("got a key of %+v, want one of %s", key.Owner, self)
		}
		signedIn.Do("GET", "/auth/key/current", nil).Want(200)
		anonymous.Do("PATCH", codePath(v), map[string]any{"token": a.code(), "challenge": v.Challenge}).WantErrors("/token", "expired")
		v = beginLogin(t, c, loginBody(kind, email, password))
		anonymous.Do("PATCH", path("/auth/verify/auth/%d/code/%s", a.id, v.Challenge), map[string]any{"verify": a.code()}).Want(200)
		v = beginLogin(t, c, loginBody(kind, email, password))
		wrapped := map[string]any{"verify": map[string]any{"token": a.code()}}
		anonymous.Do("PATCH", path("/auth/verify/auth/%d/code/%s", a.id, v.Challenge), wrapped).Want(200)

		// A step counts once.
		v, otherLogin := beginLogin(t, c, loginBody(kind, email, password)), beginLogin(t, c, loginBody(kind, email, password))
		token := a.code()
		completeLogin(t, c, v, token)
		anonymous.Do("PATCH", codePath(otherLogin), map[string]any{"token": token, "challenge": otherLogin.Challenge}).
			WantErrors("/token", "expired")

		// A second one, and removing the last one, take a confirmation: other has none.
		other.Do("POST", "/auth/verify/auth", `{"method": 2, "value": "b@example.com"}`).Want(403)
		other.Do("DELETE", a.path(), nil).Want(403)
		other.Do("PATCH", a.path(), `{"verified": false}`).Want(403)
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
		signedIn.Do("DELETE", a.path(), nil).Want(403)
		a.confirm(signedIn)
		signedIn.Do("DELETE", a.path(), nil).Want(200)
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

// However many send a code, or a recovery code, at once, one of them is let in.
func TestCodeCountsOnce(t *testing.T) {
	t.Parallel()
	s, c := newFixture(t)
	s.newPerson("client", "ben@example.com")
	login := loginBody("client", "ben@example.com", password)
	_, session := signIn(t, c, login)
	a, recovery := verifiedApp(t, s, session)
	count := func(logins []*mfa.LoginVerify, token string) (let int32) {
		var in atomic.Int32
		var all sync.WaitGroup
		for i := range 32 {
			v := logins[i%len(logins)]
			all.Go(func() {
				switch response := c.WithKey("").Do("PATCH", codePath(v), map[string]any{"token": token, "challenge": v.Challenge}); response.Status {
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
	token := a.code()
	if n := count([]*mfa.LoginVerify{beginLogin(t, c, login)}, token); n != 1 {
		t.Errorf("one code: got %d signed in, want 1", n)
	}
	var logins []*mfa.LoginVerify
	for range 16 {
		logins = append(logins, beginLogin(t, c, login))
	}
	if n := count(logins, token); n != 0 {
		t.Errorf("a used code: got %d signed in, want 0", n)
	}
	testkit.Execute(t, s.DB, "DELETE FROM verify_code WHERE confirmed_at IS NULL")
	logins = nil
	for range 16 {
		logins = append(logins, beginLogin(t, c, login))
	}
	if n := count(logins, strings.ToUpper(recovery[0])); n != 1 {
		t.Errorf("one recovery code: got %d signed in, want 1", n)
	}
	if left := testkit.Decode[mfa.RecoveryCodes](session.Do("GET", "/auth/verify/recovery", nil).Want(200)); left.Left != 9 {
		t.Errorf("got %d recovery codes left, want 9", left.Left)
	}
}

// Five wrong codes end a challenge, and twenty an account's quarter of an hour.
func TestGuessingCodes(t *testing.T) {
	t.Parallel()
	s, c := newFixture(t)
	s.newPerson("client", "ben@example.com")
	login := loginBody("client", "ben@example.com", password)
	_, session := signIn(t, c, login)
	a, _ := verifiedApp(t, s, session)
	guess := func(v *mfa.LoginVerify, token string) *testkit.Response {
		return c.WithKey("").Do("PATCH", codePath(v), map[string]any{"token": token, "challenge": v.Challenge})
	}
	wrongs := 0
	for range lockout.OfCodes / 5 {
		v := beginLogin(t, c, login)
		var compared atomic.Int32
		var all sync.WaitGroup
		for range 16 {
			all.Go(func() {
				if response := guess(v, invalidToken); strings.Contains(response.Text, `"wrong"`) {
					compared.Add(1)
				}
			})
		}
		all.Wait()
		if wrongs += int(compared.Load()); compared.Load() > 5 {
			t.Errorf("got %d guesses at one code compared, want at most 5", compared.Load())
		}
		if response := guess(v, a.code()); response.Status != 422 && response.Status != 429 {
			t.Errorf("after five wrong guesses: got %d %s, want 422 or 429", response.Status, response.Text)
		}
	}
	for v := beginLogin(t, c, login); wrongs < lockout.OfCodes; wrongs++ { // what was refused for another that was compared at that moment
		guess(v, invalidToken).WantErrors("/token", "wrong")
	}
	locked := guess(beginLogin(t, c, login), a.code()).Want(429)
	if locked.Header.Get("Retry-After") == "" {
		t.Error("got a 429 without Retry-After, want one with it")
	}
}

// Who may see and write whose second factors.
func TestSecondFactorPermissions(t *testing.T) {
	t.Parallel()
	s, c := newFixture(t)
	anna, annaClient := newAdmin(
		t,
		c,
		"anna",
		`{"users": {"admins": {"read": true, "write": true}, "clients": {"read": true, "write": true}}}`,
	)
	_, anonymous := newAdmin(t, c, "nobody", `{}`)
	_, reader := newAdmin(t, c, "reader", `{"users": {"admins": {"read": true, "write": false}, "clients": {"read": true, "write": false}}}`)
	big, bigClient := newAdmin(t, c, "big", `{"network": {"groups": {"read": true, "write": true}}}`)
	client := s.newPerson("client", "ben@example.com")
	_, benClient := signIn(t, c, loginBody("client", "ben@example.com", password))
	of := map[string]app{}
	for name, caller := range map[string]*testkit.Client{"anna": annaClient, "big": bigClient, "ben": benClient} {
		of[name], _ = verifiedApp(t, s, caller)
	}
	for name, a := range of {
		anonymous.Do("GET", a.path(), nil).Want(404)
		anonymous.Do("DELETE", a.path(), nil).Want(404)
		reader.Do("GET", a.path(), nil).Want(200)
		reader.Do("DELETE", a.path(), nil).Want(403)
		reader.Do("PATCH", a.path(), `{"verified": false}`).Want(403)
		reader.Do("POST", a.path()+"/code", `{}`).Want(403) // a code is its owner's
		if name != "anna" {
			annaClient.Do("POST", a.path()+"/code", `{}`).Want(403)
		}
	}
	for _, kind := range []string{"admin", "client"} {
		reader.Do("DELETE", path("/%s/%d/verify", kind, client), nil).Want(403)
	}
	if n := len(testkit.Decode[[]mfa.Authenticator](anonymous.Do("GET", "/auth/verify/auth", nil).Want(200))); n != 0 {
		t.Errorf("an anonymous caller: got %d authenticators, want 0", n)
	}
	if all := testkit.Decode[[]mfa.Authenticator](
		reader.Do("GET", path("/auth/verify/auth?owner=/client/%d", client), nil).Want(200),
	); len(all) != 1 || all[0].ID != of["ben"].id ||
		all[0].Value != nil {
		t.Errorf("got the client's authenticators %+v, want only %d without its value", all, of["ben"].id)
	}
	// Who holds less than the account writes nothing of it; the own ones take a confirmation, by whichever way.
	annaClient.Do("DELETE", of["big"].path(), nil).Want(403)
	annaClient.Do("DELETE", path("/admin/%d/verify", big), nil).Want(403)
	testkit.Execute(t, s.DB, "DELETE FROM verify_code")
	annaClient.Do("DELETE", path("/admin/%d/verify", anna), nil).Want(403)
	annaClient.Do("DELETE", "/admin/999/verify", nil).Want(404)
	annaClient.Do("DELETE", "/client/999/verify", nil).Want(404)

	// An integration has none. A session that acts for a client writes none.
	s.System.SetIntegration(1, "shop")
	shopClient := c.WithKey(
		testkit.Decode[keys.APIKey](c.Do("POST", "/auth/key", `{"name": "shop", "owner": {"url": "/integration/1"}}`).Want(200)).Key,
	)
	shopClient.Do("POST", "/auth/verify/auth", `{"method": 1}`).Want(403)
	shopClient.Do("DELETE", of["ben"].path(), nil).Want(404)
	shopClient.Do("DELETE", path("/client/%d/verify", client), nil).Want(403)
	acting := c.WithKey(
		testkit.Decode[keys.APIKey](c.Do("POST", "/auth/key", path(`{"owner": {"url": "/client/%d"}}`, client)).Want(200)).Key,
	)
	acting.Do("GET", of["ben"].path(), nil).Want(200)
	for _, refused := range []*testkit.Response{acting.Do("POST", "/auth/verify/auth", `{"method": 1}`), acting.Do("POST", of["ben"].path()+"/code", `{}`), acting.Do("DELETE", of["ben"].path(), nil),
		acting.Do("PATCH", of["ben"].path(), `{"verified": false}`), acting.Do("POST", "/auth/verify/recovery", nil)} {
		refused.Want(403)
	}

	// A key that is bound to less than its owner holds writes none of his.
	bound := c.WithKey(
		testkit.Decode[keys.APIKey](annaClient.Do("POST", "/auth/key", keyBody(newAdminID(t, c, "lifted", `{}`))).Want(200)).Key,
	)
	bound.Do("POST", "/auth/verify/auth", `{"method": 1}`).Want(200)
	c.Do("PATCH", path("/admin/%d/permission", ownerID(t, bound)), `{"network": {"groups": {"read": true}}}`).Want(200)
	bound.Do("POST", "/auth/verify/auth", `{"method": 1}`).WantDetail(403, "The account holds what the key lacks: network.groups read.")

	// 2FA that was lost.
	annaClient.Do("DELETE", path("/client/%d/verify", client), nil).Want(200)
	_, newSession := signIn(t, c, loginBody("client", "ben@example.com", password))
	newSession.Do("GET", of["ben"].path(), nil).Want(404)
	c.Do("DELETE", path("/admin/%d/verify", big), nil).Want(200)
	c.Do("DELETE", path("/admin/%d/verify", big), nil).Want(200)
	s.wantRecords("admin.authenticators.removed", 1)
	// With the account go its authenticators.
	c.Do("DELETE", path("/admin/%d", anna), nil).Want(200)
	c.Do("GET", of["anna"].path(), nil).Want(404)
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

// ownerID is the admin whose key it is.
func ownerID(t *testing.T, c *testkit.Client) (id int64) {
	t.Helper()
	owner := testkit.Decode[keys.APIKey](c.Do("GET", "/auth/key/current", nil).Want(200)).Owner
	if _, err := fmt.Sscanf(owner.URL, "/admin/%d", &id); err != nil {
		t.Fatal(err)
	}
	return id
}

// However many logins come at once, an account has no more than twenty codes that are open.
func TestOpenCodes(t *testing.T) {
	t.Parallel()
	s, c := newFixture(t)
	id := s.newPerson("admin", "often@example.com")
	_, session := signIn(t, c, loginBody("admin", "often@example.com", password))
	a, _ := verifiedApp(t, s, session)
	testkit.Execute(t, s.DB, `INSERT INTO verify_code (owner_type, owner_id, auth_id, challenge, expires_at)
		SELECT 'admin', $1, $2, sha256(n::text::bytea), now() + interval '10 minutes' FROM generate_series(1, 19) n`, id, a.id)
	var asked, refused atomic.Int32
	var all sync.WaitGroup
	for range lockout.OfNameFromAddress {
		all.Go(func() {
			switch response := c.WithKey("").Do("POST", "/auth/key", loginBody("admin", "often@example.com", password)); response.Status {
			case 200:
				asked.Add(1)
			case 429:
				refused.Add(1)
			default:
				t.Errorf("got %d: %s, want 200 or 429", response.Status, response.Text)
			}
		})
	}
	all.Wait()
	if asked.Load() != 1 || refused.Load() != lockout.OfNameFromAddress-1 {
		t.Errorf("got %d logins that ask for a code and %d refused, want 1 and %d",
			asked.Load(), refused.Load(), lockout.OfNameFromAddress-1)
	}
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

// An account that needs a second factor and has none is mailed a code. Another address has to be proved.
func TestCodesByMail(t *testing.T) {
	t.Parallel()
	s, c := newFixture(t)
	id := s.newPerson("client", "ben@example.com")
	s.editClient(id, func(a *credentials.Account) { a.Require = true })
	body := loginBody("client", "ben@example.com", password)
	v := beginLogin(t, c, body)
	if v.Code.Auth.ID != 0 || v.Code.Auth.Method.Name != "email" || len(v.Auths) != 0 {
		t.Errorf("got %+v, want a code by mail", v)
	}
	_, own := completeLogin(t, c, v, s.mailedCode("ben@example.com", 1))

	// A changed password ends what was asked for before.
	v = beginLogin(t, c, body)
	code := s.mailedCode("ben@example.com", 2)
	s.editClient(id, func(a *credentials.Account) { a.Version++ })
	c.WithKey("").Do("PATCH", codePath(v), map[string]any{"token": code, "challenge": v.Challenge}).WantErrors("/token", "expired")
	own.Do("GET", current, nil).Want(401)
	_, own = completeLogin(t, c, beginLogin(t, c, body), s.mailedCode("ben@example.com", 3))

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

	// With an app, too, the login chooses between them.
	a, _ := verifiedApp(t, s, own)
	if v = beginLogin(t, c, body); v.Code.Auth.ID != a.id || len(v.Auths) != 2 {
		t.Errorf("got %+v, want the app's code out of two", v)
	}
	if v = beginLogin(t, c, strings.TrimSuffix(body, "}")+path(`, "auth": %d}`, auth.ID)); v.Code.Auth.ID != auth.ID {
		t.Errorf("got %+v, want a code by mail of authenticator %d", v, auth.ID)
	}
	completeLogin(t, c, v, s.mailedCode("phone@example.com", 2))
	c.WithKey("").Do("POST", "/auth/key", strings.TrimSuffix(body, "}")+`, "auth": 999}`).WantErrors("/auth", "not_found")
}

// Where the setting says so, an admin without a second factor is mailed a code.
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
