package product_test

import (
	"bytes"
	"regexp"
	"testing"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/deploy/internal/product/producttest"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/pkg/testkit/mailbox"
	"github.com/ironplane/ironplane/pkg/testkit/secondfactor"
	"github.com/ironplane/ironplane/services/identity"
	"github.com/ironplane/ironplane/services/identity/keys"
	"github.com/ironplane/ironplane/services/identity/login"
)

var sixDigits = regexp.MustCompile(`(?m)^ *([0-9]{6})\r?$`)

// mailed waits until n codes were mailed, and returns the newest code and its recipient.
func mailed(t *testing.T, box *mailbox.Server, n int) (to, code string) {
	t.Helper()
	testkit.Eventually(t, "the code is mailed", func() bool {
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

// A client that needs a second factor and has none gets a code by mail. The code that completed a sign-in also counts as a
// confirmation for changes that need one.
func TestRequiredSecondFactor(t *testing.T) {
	t.Parallel()
	box := mailbox.Start(t, mailbox.Options{})
	p, c := producttest.StartWith(t, testkit.Redis(t), service.Settings{SMTP: "smtp+plain://" + box.Addr, MailFrom: "noreply@example.com"})
	self := path("/client/%d", newPerson(t, c, "client", "ben@example.com"))
	body := loginOf("client", "ben@example.com", password)
	c.Do("PATCH", self, `{"verify": {"require": true}}`).Want(200)
	lasting := testkit.Decode[keys.APIKey](
		c.Do("POST", "/auth/key", map[string]any{"name": "x", "owner": map[string]any{"url": self}}).Want(200),
	).Key
	login := secondfactor.BeginLogin(t, c, body)
	to, code := mailed(t, box, 1)
	if to != "ben@example.com" {
		t.Errorf("got a mail to %s, want one to ben@example.com", to)
	}
	_, session := login.Complete(t, c, code)
	c.WithKey(lasting).Do("PATCH", self, `{"verify": {"require": false}}`).Want(403) // this key has confirmed no code
	session.Do("PATCH", self, `{"verify": {"require": false}}`).Want(200)
	session.Do("PATCH", self, `{"verify": {"require": true}}`).Want(200)
	testkit.Execute(t, p.Databases[identity.Name], "UPDATE verify_code SET confirmed_at = confirmed_at - interval '11 minutes'")
	session.Do("PATCH", self, `{"verify": {"require": false}}`).Want(403)
	session.Do("PATCH", self, `{"verify": {"require": true}, "first": "Bert"}`).Want(200)

	// A changed password ends the codes that were sent before.
	login = secondfactor.BeginLogin(t, c, body)
	_, code = mailed(t, box, 2)
	c.Do("PATCH", self, `{"password": "another long walk home"}`).Want(200)
	c.WithKey("").Do("PATCH", login.Path(), login.Answer(code)).WantErrors("/token", "expired")
}

// If the setting says so, admins need a second factor. The setting is refused while an admin could not sign in with it.
func TestTwoFactorOfAdmins(t *testing.T) { producttest.InOneProcess(t, testTwoFactorOfAdmins) }

func testTwoFactorOfAdmins(t *testing.T, p *product.Product, c *testkit.Client) {
	set := settingOf(t, c, "security.verify_admins")
	c.Do("PATCH", path("/system/setting/%d", set.ID), `{"value": 1}`).WantErrors("/value", "unavailable")
	c.Do("PATCH", "/setting-group/2", `{"settings": [{"slug": "security.verify_admins", "value": 1}]}`).
		WantErrors("/settings/0/value", "unavailable")
	app, _ := secondfactor.NewVerifiedApp(t, p.Databases[identity.Name], c)
	choose(t, c, "security.verify_admins", 1)
	newPerson(t, c, "admin", "anna@example.com")
	testkit.Eventually(t, "a login takes a code", func() bool {
		answer := testkit.Decode[login.GivenKey](c.WithKey("").Do("POST", "/auth/key", loginOf("admin", "anna@example.com", password)).Want(200))
		return answer.Verify != nil && answer.Verify.Code.Auth.ID == 0
	})
	choose(t, c, "security.verify_admins", 0)
	app.Confirm(c)
}
