package product_test

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pquerna/otp"
	"github.com/pquerna/otp/totp"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/deploy/internal/product/producttest"
	"github.com/ironplane/ironplane/pkg/auth/lockout"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/pkg/testkit/mailbox"
	"github.com/ironplane/ironplane/services/identity"
	"github.com/ironplane/ironplane/services/identity/keys"
	"github.com/ironplane/ironplane/services/identity/login"
	"github.com/ironplane/ironplane/services/identity/mfa"
	"github.com/ironplane/ironplane/services/system"
)

// app is what shows somebody codes.
type app struct {
	t   *testing.T
	p   *product.Product
	id  int64
	key *otp.Key
}

// newApp makes an authenticator of the caller, which is not verified yet.
func newApp(t *testing.T, p *product.Product, c *testkit.Client) app {
	t.Helper()
	made := testkit.Decode[mfa.Authenticator](c.Do("POST", "/auth/verify/auth", `{"method": {"id": 1}}`).Want(200))
	if made.Value == nil || made.Verified || len(made.RecoveryCodes) > 0 {
		t.Fatalf("made %+v", made)
	}
	key, err := otp.NewKeyFromURL(*made.Value)
	if err != nil {
		t.Fatal(err)
	}
	return app{t, p, made.ID, key}
}

// code is what the app shows now, also where the service has taken it before: a test does not wait for the next one.
func (a app) code() string {
	a.t.Helper()
	testkit.Execute(a.t, a.p.Databases[identity.Name], "UPDATE authenticator SET step = 0")
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
func verifiedApp(t *testing.T, p *product.Product, c *testkit.Client) (app, []string) {
	t.Helper()
	a := newApp(t, p, c)
	a.confirm(c)
	return a, testkit.Decode[mfa.Authenticator](c.Do("PATCH", a.path(), `{"verified": true}`).Want(200)).RecoveryCodes
}

// begun is a login that takes a code.
func begun(t *testing.T, c *testkit.Client, body string) *mfa.LoginVerify {
	t.Helper()
	answer := testkit.Decode[login.GivenKey](c.With("").For(t).Do("POST", "/auth/key", body).Want(200))
	if answer.Key != "" || answer.ID != 0 || answer.Verify == nil || answer.Verify.Challenge == "" {
		t.Fatalf("a login answers %+v", answer)
	}
	return answer.Verify
}

func pathOf(v *mfa.LoginVerify) string {
	return path("/auth/verify/auth/%d/code/%d", v.Code.Auth.ID, v.Code.ID)
}

// complete completes a login with a token.
func complete(t *testing.T, c *testkit.Client, v *mfa.LoginVerify, token string) (keys.APIKey, *testkit.Client) {
	t.Helper()
	key := testkit.Decode[mfa.ConfirmedKey](
		c.With("").For(t).Do("PATCH", pathOf(v), map[string]any{"token": token, "challenge": v.Challenge}).Want(200),
	).Key
	if key.Key == "" || key.Name != "Session" {
		t.Fatalf("signed in with %+v", key)
	}
	return key, c.With(key.Key).For(t)
}

// wrong is a token that is not right, whatever is.
const wrong = "12345x"

// recoveryForm is of 24 characters of base32: 120 bits.
var recoveryForm = regexp.MustCompile(`^([a-z2-7]{4}-){5}[a-z2-7]{4}$`)

// An app is added, verified, and from then on asked for at login; the last one is removed by who has just confirmed a code.
func TestTwoFactorLogin(t *testing.T) { both(t, testTwoFactorLogin) }

func testTwoFactorLogin(t *testing.T, p *product.Product, c *testkit.Client) {
	for _, kind := range []string{"admin", "client"} {
		email := "two@" + kind + ".example.com"
		self := path("/%s/%d", kind, newPerson(t, c, kind, email))
		_, session := signIn(t, c, loginOf(kind, email, password))
		a := newApp(t, p, session)
		session.Do("PATCH", a.path(), `{"verified": true}`).WantErrors("/verified", "unconfirmed")
		signIn(t, c, loginOf(kind, email, password)) // as long as it is not verified
		if text := session.Do("GET", a.path(), nil).Want(200).Text; strings.Contains(text, a.key.Secret()) || strings.Contains(text, "otpauth") {
			t.Errorf("shown again: %s", text)
		}
		session.Do("POST", "/auth/verify/recovery", nil).Want(409)
		a.confirm(session)
		_, other := signIn(t, c, loginOf(kind, email, password))
		other.Do("PATCH", a.path(), `{"verified": true}`).WantErrors("/verified", "unconfirmed") // another session's code
		verified := testkit.Decode[mfa.Authenticator](session.Do("PATCH", a.path(), `{"verified": true}`).Want(200))
		if !verified.Verified || len(verified.RecoveryCodes) != 10 || verified.Owner.URL != self {
			t.Errorf("verified %+v", verified)
		}
		for _, code := range verified.RecoveryCodes {
			if !recoveryForm.MatchString(code) {
				t.Errorf("a recovery code is %q, of less than 112 bits", code)
			}
		}
		session.Do("PATCH", a.path(), `{"verified": true}`).Want(200)
		session.Do("PATCH", a.path(), `{"method": {"id": 2}}`).WantErrors("/method", "read_only")
		session.Do("PATCH", a.path(), `{"value": "x@example.com"}`).WantErrors("/value", "read_only")

		// Now a login takes a code.
		v := begun(t, c, loginOf(kind, email, password))
		if v.Code.Auth.ID != a.id || v.Code.Auth.Method.Name != "totp" || len(v.Auths) != 1 {
			t.Errorf("asked for %+v", v)
		}
		nobody := c.With("")
		nobody.Do("PATCH", pathOf(v), map[string]any{"token": a.code()}).Want(401)
		nobody.Do("PATCH", pathOf(v), map[string]any{"token": a.code(), "challenge": v.Challenge + "x"}).Want(401)
		nobody.Do("PATCH", pathOf(v), map[string]any{"challenge": v.Challenge}).WantErrors("/token", "required")
		nobody.Do("PATCH", pathOf(v), map[string]any{"token": wrong, "challenge": v.Challenge}).WantErrors("/token", "wrong")
		session.Do("PATCH", pathOf(v), map[string]any{"token": a.code()}).Want(404) // it is no code of this key
		key, signedIn := complete(t, c, v, a.code())
		if key.Owner.URL != self {
			t.Errorf("signed in as %+v", key.Owner)
		}
		signedIn.Do("GET", self, nil).Want(200)
		nobody.Do("PATCH", pathOf(v), map[string]any{"token": a.code(), "challenge": v.Challenge}).WantErrors("/token", "expired")
		v = begun(t, c, loginOf(kind, email, password))
		nobody.Do("PATCH", path("/auth/verify/auth/%d/code/%s", a.id, v.Challenge), map[string]any{"verify": a.code()}).Want(200)
		v = begun(t, c, loginOf(kind, email, password))
		nobody.Do("PATCH", path("/auth/verify/auth/%d/code/%s", a.id, v.Challenge), map[string]any{"verify": map[string]any{"token": a.code()}}).
			Want(200)

		// A step counts once.
		v, again := begun(t, c, loginOf(kind, email, password)), begun(t, c, loginOf(kind, email, password))
		token := a.code()
		complete(t, c, v, token)
		nobody.Do("PATCH", pathOf(again), map[string]any{"token": token, "challenge": again.Challenge}).WantErrors("/token", "expired")

		// A second one, and removing the last one, take a confirmation: other has none.
		other.Do("POST", "/auth/verify/auth", `{"method": 2, "value": "b@example.com"}`).Want(403)
		other.Do("DELETE", a.path(), nil).Want(403)
		other.Do("PATCH", a.path(), `{"verified": false}`).Want(403)
		other.Do("POST", "/auth/verify/recovery", nil).Want(403)
		if made := testkit.Decode[mfa.RecoveryCodes](
			signedIn.Do("POST", "/auth/verify/recovery", nil).Want(200),
		); made.Left != 10 ||
			made.Codes[0] == verified.RecoveryCodes[0] {
			t.Errorf("renewed as %+v", made)
		}
		second := signedIn.Do("POST", "/auth/verify/auth", `{"method": 2, "value": "b@example.com"}`).Want(200).ID()
		signedIn.Do("DELETE", path("/auth/verify/auth/%d", second), nil).Want(200)
		testkit.Execute(t, p.Databases[identity.Name], "UPDATE verify_code SET confirmed_at = confirmed_at - interval '11 minutes'")
		signedIn.Do("DELETE", a.path(), nil).Want(403)
		a.confirm(signedIn)
		signedIn.Do("DELETE", a.path(), nil).Want(200)
		if left := testkit.Decode[mfa.RecoveryCodes](signedIn.Do("GET", "/auth/verify/recovery", nil).Want(200)); left.Left != 0 {
			t.Errorf("recovery codes of no authenticator: %+v", left)
		}
		signIn(t, c, loginOf(kind, email, password))
	}
	producttest.Drain(t, p)
	for kind, want := range map[string]int{"admin.verify_code.refused": 1, "client.verify_code.refused": 1, "auth.verify.auth.verified": 2, "auth.verify.auth.deleted": 4, "admin.recovery_codes.renewed": 1} {
		if items := testkit.Decode[[]system.LogItem](c.Do("GET", "/log?type="+kind, nil).Want(200)); len(items) != want {
			t.Errorf("the log has %d of %s", len(items), kind)
		}
	}
	if todo := c.Do("GET", "/todo?slug=auth.verify.add", nil).Want(200).Text; !strings.Contains(todo, "completed_at") {
		t.Error(todo)
	}
}

var sixDigits = regexp.MustCompile(`(?m)^ *([0-9]{6})\r?$`)

// mailed is the code of the newest mail that has one.
func mailed(t *testing.T, box *mailbox.Server, n int) (to, code string) {
	t.Helper()
	testkit.Eventually(t, "the code has come", func() bool {
		all := box.Mails()
		found := 0
		for _, m := range all {
			if parts := sixDigits.FindSubmatch(m.Data); parts != nil && bytes.Contains(m.Data, []byte("Your code for")) {
				found++
				to, code = m.To[0], string(parts[1])
			}
		}
		return found == n
	})
	return to, code
}

// Who must sign in with a second factor, and has none, is mailed a code.
func TestTwoFactorByMail(t *testing.T) {
	t.Parallel()
	box := mailbox.Start(t, mailbox.Options{})
	p, c := producttest.StartWith(t, testkit.Redis(t), service.Settings{SMTP: "smtp+plain://" + box.Addr, MailFrom: "noreply@example.com"})
	id := newPerson(t, c, "client", "ben@example.com")
	self, login := path("/client/%d", id), loginOf("client", "ben@example.com", password)
	c.Do("PATCH", self, `{"verify": {"require": true}}`).Want(200)
	lasting := testkit.Decode[keys.APIKey](
		c.Do("POST", "/auth/key", map[string]any{"name": "x", "owner": map[string]any{"url": self}}).Want(200),
	).Key
	v := begun(t, c, login)
	if v.Code.Auth.ID != 0 || v.Code.Auth.Method.Name != "email" || len(v.Auths) != 0 {
		t.Errorf("asked for %+v", v)
	}
	to, code := mailed(t, box, 1)
	if to != "ben@example.com" {
		t.Errorf("mailed to %s", to)
	}
	_, session := complete(t, c, v, code)
	// The code that completed the login counts for what takes one; a key that confirmed none takes nothing off.
	c.With(lasting).Do("PATCH", self, `{"verify": {"require": false}}`).Want(403)
	session.Do("PATCH", self, `{"verify": {"require": false}}`).Want(200)
	session.Do("PATCH", self, `{"verify": {"require": true}}`).Want(200)
	testkit.Execute(t, p.Databases[identity.Name], "UPDATE verify_code SET confirmed_at = confirmed_at - interval '11 minutes'")
	session.Do("PATCH", self, `{"verify": {"require": false}}`).Want(403)
	session.Do("PATCH", self, `{"verify": {"require": true}, "first": "Bert"}`).Want(200)

	// A changed password ends what was asked for before.
	v = begun(t, c, login)
	_, code = mailed(t, box, 2)
	c.Do("PATCH", self, `{"password": "another long walk home"}`).Want(200)
	c.With("").Do("PATCH", pathOf(v), map[string]any{"token": code, "challenge": v.Challenge}).WantErrors("/token", "expired")

	// Another address, which is proved.
	_, again := complete(t, c, begun(t, c, loginOf("client", "ben@example.com", "another long walk home")), third(mailed(t, box, 3)))
	auth := testkit.Decode[mfa.Authenticator](again.Do("POST", "/auth/verify/auth", `{"method": {"id": 2}}`).Want(200))
	if *auth.Value != "ben@example.com" {
		t.Errorf("made %+v", auth)
	}
	at := path("/auth/verify/auth/%d", auth.ID)
	again.Do("PATCH", at, `{"value": "nowhere"}`).WantErrors("/value", "invalid")
	again.Do("PATCH", at, `{"value": "phone@example.com"}`).Want(200)
	asked := again.Do("POST", at+"/code", `{"isWrapped": true}`).Want(200)
	if to, code = mailed(t, box, 4); to != "phone@example.com" || strings.Contains(asked.Text, code) {
		t.Errorf("mailed to %s, answered %s", to, asked.Text)
	}
	of := path("%s/code/%d", at, asked.ID())
	if text := again.Do("GET", of, nil).Want(200).Text; strings.Contains(text, code) {
		t.Errorf("shown: %s", text)
	}
	c.With(lasting).Do("PATCH", of, map[string]any{"token": code}).Want(404)
	again.Do("PATCH", of, map[string]any{"token": code}, "If-Match", `"7"`).Want(412)
	if key := testkit.Decode[mfa.ConfirmedKey](
		again.Do("PATCH", of, map[string]any{"token": " " + code[:3] + " " + code[3:]}).Want(200),
	); key.Key.Key != "" ||
		key.Key.Name != "Session" {
		t.Errorf("confirmed with %+v", key)
	}
	again.Do("PATCH", at, `{"verified": true, "value": "other@example.com"}`).WantErrors("/verified", "unconfirmed")
	again.Do("PATCH", at, `{"verified": true}`).Want(200)

	// Who has an app, too, may choose.
	a, _ := verifiedApp(t, p, again)
	login = loginOf("client", "ben@example.com", "another long walk home")
	if v = begun(t, c, login); v.Code.Auth.ID != a.id || len(v.Auths) != 2 {
		t.Errorf("asked for %+v", v)
	}
	byMail := strings.TrimSuffix(login, "}") + path(`, "auth": %d}`, auth.ID)
	if v = begun(t, c, byMail); v.Code.Auth.ID != auth.ID {
		t.Errorf("asked for %+v", v)
	}
	_, code = mailed(t, box, 5)
	complete(t, c, v, code)
	c.With("").Do("POST", "/auth/key", strings.TrimSuffix(login, "}")+`, "auth": 999}`).WantErrors("/auth", "not_found")
	testkit.Eventually(t, "the account is told", func() bool {
		for _, m := range box.Mails() {
			if bytes.Contains(m.Data, []byte("An authenticator was added")) && m.To[0] == "ben@example.com" {
				return true
			}
		}
		return false
	})
}

func third(_, code string) string { return code }

// Admins must have a second factor where the setting says so, which cannot be set while one of them could not sign in.
func TestTwoFactorOfAdmins(t *testing.T) { producttest.Together(t, testTwoFactorOfAdmins) }

func testTwoFactorOfAdmins(t *testing.T, p *product.Product, c *testkit.Client) {
	set := settingOf(t, c, "security.verify_admins")
	c.Do("PATCH", path("/system/setting/%d", set.ID), `{"value": 1}`).WantErrors("/value", "unavailable")
	c.Do("PATCH", "/setting-group/2", `{"settings": [{"slug": "security.verify_admins", "value": 1}]}`).
		WantErrors("/settings/0/value", "unavailable")
	a, _ := verifiedApp(t, p, c)
	choose(t, c, "security.verify_admins", 1)
	id := newPerson(t, c, "admin", "anna@example.com")
	testkit.Eventually(t, "a login takes a code", func() bool {
		answer := testkit.Decode[login.GivenKey](c.With("").Do("POST", "/auth/key", loginOf("admin", "anna@example.com", password)).Want(200))
		return answer.Verify != nil && answer.Verify.Code.Auth.ID == 0
	})
	choose(t, c, "security.verify_admins", 0)
	_ = id
	a.confirm(c)
}

// However many send a code, or a recovery code, at once, one of them is let in.
func TestCodeCountsOnce(t *testing.T) { both(t, testCodeCountsOnce) }

func testCodeCountsOnce(t *testing.T, p *product.Product, c *testkit.Client) {
	newPerson(t, c, "client", "ben@example.com")
	login := loginOf("client", "ben@example.com", password)
	_, session := signIn(t, c, login)
	a, recovery := verifiedApp(t, p, session)
	count := func(logins []*mfa.LoginVerify, token string) (let int32) {
		var in atomic.Int32
		var all sync.WaitGroup
		for i := range 32 {
			v := logins[i%len(logins)]
			all.Go(func() {
				switch answer := c.With("").Do("PATCH", pathOf(v), map[string]any{"token": token, "challenge": v.Challenge}); answer.Status {
				case 200:
					in.Add(1)
				case 422, 429:
				default:
					t.Errorf("answered %d: %s", answer.Status, answer.Text)
				}
			})
		}
		all.Wait()
		return in.Load()
	}
	token := a.code()
	if n := count([]*mfa.LoginVerify{begun(t, c, login)}, token); n != 1 {
		t.Errorf("one code let %d in", n)
	}
	var logins []*mfa.LoginVerify
	for range 16 {
		logins = append(logins, begun(t, c, login))
	}
	if n := count(logins, token); n != 0 {
		t.Errorf("a code that was used let %d in", n)
	}
	testkit.Execute(t, p.Databases[identity.Name], "DELETE FROM verify_code WHERE confirmed_at IS NULL")
	logins = nil
	for range 16 {
		logins = append(logins, begun(t, c, login))
	}
	if n := count(logins, strings.ToUpper(recovery[0])); n != 1 {
		t.Errorf("one recovery code let %d in", n)
	}
	if left := testkit.Decode[mfa.RecoveryCodes](session.Do("GET", "/auth/verify/recovery", nil).Want(200)); left.Left != 9 {
		t.Errorf("%d recovery codes are left", left.Left)
	}
}

// Five wrong codes end a challenge, and twenty an account's quarter of an hour.
func TestGuessingCodes(t *testing.T) { producttest.Together(t, testGuessingCodes) }

func testGuessingCodes(t *testing.T, p *product.Product, c *testkit.Client) {
	newPerson(t, c, "client", "ben@example.com")
	login := loginOf("client", "ben@example.com", password)
	_, session := signIn(t, c, login)
	a, _ := verifiedApp(t, p, session)
	guess := func(v *mfa.LoginVerify, token string) *testkit.Answer {
		return c.With("").Do("PATCH", pathOf(v), map[string]any{"token": token, "challenge": v.Challenge})
	}
	wrongs := 0
	for range lockout.OfCodes / 5 {
		v := begun(t, c, login)
		var compared atomic.Int32
		var all sync.WaitGroup
		for range 16 {
			all.Go(func() {
				if answer := guess(v, wrong); strings.Contains(answer.Text, `"wrong"`) {
					compared.Add(1)
				}
			})
		}
		all.Wait()
		if wrongs += int(compared.Load()); compared.Load() > 5 {
			t.Errorf("%d guesses at one code were compared", compared.Load())
		}
		if answer := guess(v, a.code()); answer.Status != 422 && answer.Status != 429 {
			t.Errorf("after five wrong ones: %d %s", answer.Status, answer.Text)
		}
	}
	for v := begun(t, c, login); wrongs < lockout.OfCodes; wrongs++ { // what was refused for another that was compared at that moment
		guess(v, wrong).WantErrors("/token", "wrong")
	}
	locked := guess(begun(t, c, login), a.code()).Want(429)
	if locked.Header.Get("Retry-After") == "" {
		t.Error("429 without Retry-After")
	}
}

// Who may see and write whose second factors.
func TestWhoseSecondFactors(t *testing.T) { both(t, testWhoseSecondFactors) }

func testWhoseSecondFactors(t *testing.T, p *product.Product, c *testkit.Client) {
	anna, annas := newAdmin(t, c, "anna", `{"users": {"admins": {"read": true, "write": true}, "clients": {"read": true, "write": true}}}`)
	_, nobody := newAdmin(t, c, "nobody", `{}`)
	_, reader := newAdmin(t, c, "reader", `{"users": {"admins": {"read": true, "write": false}, "clients": {"read": true, "write": false}}}`)
	big, bigs := newAdmin(t, c, "big", `{"network": {"groups": {"read": true, "write": true}}}`)
	client := newPerson(t, c, "client", "ben@example.com")
	_, bens := signIn(t, c, loginOf("client", "ben@example.com", password))
	of := map[string]app{}
	for name, caller := range map[string]*testkit.Client{"anna": annas, "big": bigs, "ben": bens} {
		of[name], _ = verifiedApp(t, p, caller)
	}
	for name, a := range of {
		nobody.Do("GET", a.path(), nil).Want(404)
		nobody.Do("DELETE", a.path(), nil).Want(404)
		reader.Do("GET", a.path(), nil).Want(200)
		reader.Do("DELETE", a.path(), nil).Want(403)
		reader.Do("PATCH", a.path(), `{"verified": false}`).Want(403)
		reader.Do("POST", a.path()+"/code", `{}`).Want(403) // a code is its owner's
		if name != "anna" {
			annas.Do("POST", a.path()+"/code", `{}`).Want(403)
		}
	}
	for _, kind := range []string{"admin", "client"} {
		reader.Do("DELETE", path("/%s/%d/verify", kind, client), nil).Want(403)
	}
	if n := len(testkit.Decode[[]mfa.Authenticator](nobody.Do("GET", "/auth/verify/auth", nil).Want(200))); n != 0 {
		t.Errorf("nobody has %d", n)
	}
	if all := testkit.Decode[[]mfa.Authenticator](
		reader.Do("GET", path("/auth/verify/auth?owner=/client/%d", client), nil).Want(200),
	); len(all) != 1 || all[0].ID != of["ben"].id ||
		all[0].Value != nil {
		t.Errorf("the client has %+v", all)
	}
	// Who holds less than the account writes nothing of it; the own ones take a confirmation, by whichever way.
	annas.Do("DELETE", of["big"].path(), nil).Want(403)
	annas.Do("DELETE", path("/admin/%d/verify", big), nil).Want(403)
	testkit.Execute(t, p.Databases[identity.Name], "DELETE FROM verify_code")
	annas.Do("DELETE", path("/admin/%d/verify", anna), nil).Want(403)
	annas.Do("DELETE", "/admin/999/verify", nil).Want(404)
	annas.Do("DELETE", "/client/999/verify", nil).Want(404)

	// An integration writes of its own clients alone, and has none itself. Who acts for a client writes none.
	shop := c.Do("POST", "/integration", `{"name": "shop"}`).Want(200).ID()
	c.Do("PATCH", path("/integration/%d/permission", shop), `{"users": {"clients": {"read": true, "write": true}}}`).Want(200)
	shops := c.With(
		testkit.Decode[keys.APIKey](
			c.Do("POST", "/auth/key", path(`{"name": "shop", "owner": {"url": "/integration/%d"}}`, shop)).Want(200),
		).Key,
	)
	shops.Do("POST", "/auth/verify/auth", `{"method": 1}`).Want(403)
	shops.Do("DELETE", of["ben"].path(), nil).Want(403)
	shops.Do("DELETE", path("/client/%d/verify", client), nil).Want(403)
	acting := c.With(
		testkit.Decode[keys.APIKey](c.Do("POST", "/auth/key", path(`{"owner": {"url": "/client/%d"}}`, client)).Want(200)).Key,
	)
	acting.Do("GET", of["ben"].path(), nil).Want(200)
	for _, refused := range []*testkit.Answer{acting.Do("POST", "/auth/verify/auth", `{"method": 1}`), acting.Do("POST", of["ben"].path()+"/code", `{}`), acting.Do("DELETE", of["ben"].path(), nil),
		acting.Do("PATCH", of["ben"].path(), `{"verified": false}`), acting.Do("POST", "/auth/verify/recovery", nil)} {
		refused.Want(403)
	}

	// A key that is bound to less than its owner holds writes none of his.
	bound := c.With(testkit.Decode[keys.APIKey](annas.Do("POST", "/auth/key", ownedBy(newAdminOf(t, c, "lifted", `{}`))).Want(200)).Key)
	bound.Do("POST", "/auth/verify/auth", `{"method": 1}`).Want(200)
	c.Do("PATCH", path("/admin/%d/permission", lifted(t, bound)), `{"network": {"groups": {"read": true}}}`).Want(200)
	forgotten()
	bound.Do("POST", "/auth/verify/auth", `{"method": 1}`).WantDetail(403, "The account holds what the key lacks: network.groups read.")

	// 2FA that was lost.
	annas.Do("DELETE", path("/client/%d/verify", client), nil).Want(200)
	_, again := signIn(t, c, loginOf("client", "ben@example.com", password))
	again.Do("GET", of["ben"].path(), nil).Want(404)
	c.Do("DELETE", path("/admin/%d/verify", big), nil).Want(200)
	c.Do("DELETE", path("/admin/%d/verify", big), nil).Want(200)
	producttest.Drain(t, p)
	if items := testkit.Decode[[]system.LogItem](
		c.Do("GET", path("/log?type=admin.authenticators.removed&target_type=admin&target_id=%d", big), nil).Want(200),
	); len(items) != 1 ||
		items[0].User.Name != "admin" {
		t.Errorf("logged as %+v", items)
	}
	// With the account go its authenticators.
	c.Do("DELETE", path("/admin/%d", anna), nil).Want(200)
	c.Do("GET", of["anna"].path(), nil).Want(404)
	var left int
	if err := p.Databases[identity.Name].QueryRow(t.Context(), "SELECT count(*) FROM recovery_code").Scan(&left); err != nil || left != 0 {
		t.Errorf("%d recovery codes of accounts that are gone: %v", left, err)
	}
}

func newAdminOf(t *testing.T, c *testkit.Client, name, permissions string) int64 {
	t.Helper()
	id, _ := newAdmin(t, c, name, permissions)
	return id
}

// lifted is the admin whose key it is.
func lifted(t *testing.T, c *testkit.Client) (id int64) {
	t.Helper()
	owner := testkit.Decode[keys.APIKey](c.Do("GET", "/auth/key/current", nil).Want(200)).Owner
	if _, err := fmt.Sscanf(owner.URL, "/admin/%d", &id); err != nil {
		t.Fatal(err)
	}
	return id
}

// However many logins come at once, an account has no more than twenty codes that are open.
func TestOpenCodes(t *testing.T) { both(t, testOpenCodes) }

func testOpenCodes(t *testing.T, p *product.Product, c *testkit.Client) {
	id := newPerson(t, c, "admin", "often@example.com")
	_, session := signIn(t, c, loginOf("admin", "often@example.com", password))
	a, _ := verifiedApp(t, p, session)
	testkit.Execute(t, p.Databases[identity.Name], `INSERT INTO verify_code (owner_type, owner_id, auth_id, challenge, expires_at)
		SELECT 'admin', $1, $2, sha256(n::text::bytea), now() + interval '10 minutes' FROM generate_series(1, 19) n`, id, a.id)
	var asked, refused atomic.Int32
	var all sync.WaitGroup
	for range lockout.OfNameFromAddress {
		all.Go(func() {
			switch answer := c.With("").Do("POST", "/auth/key", loginOf("admin", "often@example.com", password)); answer.Status {
			case 200:
				asked.Add(1)
			case 429:
				refused.Add(1)
			default:
				t.Errorf("answered %d: %s", answer.Status, answer.Text)
			}
		})
	}
	all.Wait()
	if asked.Load() != 1 || refused.Load() != lockout.OfNameFromAddress-1 {
		t.Errorf("%d codes were opened beside 19", asked.Load())
	}
}
