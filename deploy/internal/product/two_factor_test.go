package product_test

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/pquerna/otp"
	"github.com/pquerna/otp/totp"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/deploy/internal/product/producttest"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/pkg/testkit/mailbox"
	"github.com/ironplane/ironplane/services/identity"
	"github.com/ironplane/ironplane/services/identity/keys"
	"github.com/ironplane/ironplane/services/identity/login"
	"github.com/ironplane/ironplane/services/identity/mfa"
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
		t.Fatalf("got %+v, want an unverified app without recovery codes", made)
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
		t.Fatalf("got %+v, want a challenge and no key", answer)
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
		t.Fatalf("got %+v, want the key of a session", key)
	}
	return key, c.With(key.Key).For(t)
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
		t.Errorf("got %+v, want a code by email and no other authenticators", v)
	}
	to, code := mailed(t, box, 1)
	if to != "ben@example.com" {
		t.Errorf("got a mail to %s, want one to ben@example.com", to)
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
		t.Errorf("got %+v, want ben@example.com", auth)
	}
	at := path("/auth/verify/auth/%d", auth.ID)
	again.Do("PATCH", at, `{"value": "nowhere"}`).WantErrors("/value", "invalid")
	again.Do("PATCH", at, `{"value": "phone@example.com"}`).Want(200)
	asked := again.Do("POST", at+"/code", `{"isWrapped": true}`).Want(200)
	if to, code = mailed(t, box, 4); to != "phone@example.com" || strings.Contains(asked.Text, code) {
		t.Errorf("got a mail to %s and the answer %s, want phone@example.com and no code in the answer", to, asked.Text)
	}
	of := path("%s/code/%d", at, asked.ID())
	if text := again.Do("GET", of, nil).Want(200).Text; strings.Contains(text, code) {
		t.Errorf("got %s, want no code in it", text)
	}
	c.With(lasting).Do("PATCH", of, map[string]any{"token": code}).Want(404)
	again.Do("PATCH", of, map[string]any{"token": code}, "If-Match", `"7"`).Want(412)
	if key := testkit.Decode[mfa.ConfirmedKey](
		again.Do("PATCH", of, map[string]any{"token": " " + code[:3] + " " + code[3:]}).Want(200),
	); key.Key.Key != "" ||
		key.Key.Name != "Session" {
		t.Errorf("got %+v, want the session without its key", key)
	}
	again.Do("PATCH", at, `{"verified": true, "value": "other@example.com"}`).WantErrors("/verified", "unconfirmed")
	again.Do("PATCH", at, `{"verified": true}`).Want(200)

	// Who has an app, too, may choose.
	a, _ := verifiedApp(t, p, again)
	login = loginOf("client", "ben@example.com", "another long walk home")
	if v = begun(t, c, login); v.Code.Auth.ID != a.id || len(v.Auths) != 2 {
		t.Errorf("got %+v, want authenticator %d of 2", v, a.id)
	}
	byMail := strings.TrimSuffix(login, "}") + path(`, "auth": %d}`, auth.ID)
	if v = begun(t, c, byMail); v.Code.Auth.ID != auth.ID {
		t.Errorf("got %+v, want authenticator %d", v, auth.ID)
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
