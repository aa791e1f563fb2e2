package clients_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/pkg/auth/credentials"
	"github.com/ironplane/ironplane/pkg/mail"
	"github.com/ironplane/ironplane/pkg/settings"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/clients"
)

// Clients get mails by templates that exist.
func TestEmailToClient(t *testing.T) {
	t.Parallel()
	c := newTestService(t)
	id, at := c.createClient("ben@example.org")
	if text := c.Do("POST", at+"/email", `{"type": "welcome"}`).Want(422).Text; !strings.Contains(text, "there are no templates yet") {
		t.Errorf("without a template: got %s, want that there are no templates yet", text)
	}
	c.System.SetTemplates("Welcome")
	for _, name := range []string{"password-reset", "x"} {
		if text := c.Do("POST", at+"/email", map[string]any{"type": name}).Want(422).Text; !strings.Contains(text, "the templates are Welcome") {
			t.Errorf("%s: got %s, want that the templates are Welcome", name, text)
		}
	}
	c.Do("POST", at+"/email", `{}`).WantErrors("/type", "required")
	c.Do("POST", "/client/999/email", `{"type": "welcome"}`).Want(404)
	c.System.SetAway(true)
	c.Do("POST", at+"/email", `{"type": "welcome"}`).Want(503)
	c.System.SetAway(false)

	sent := testkit.Decode[[]clients.EmailResult](c.Do("POST", at+"/email", `{"type": "welcome.tpl"}`).Want(200))
	if len(sent) != 1 || sent[0].Type != "success" || !strings.Contains(sent[0].Text, "ben@example.org") {
		t.Errorf("got %+v, want that it is on its way to ben@example.org", sent)
	}
	mails := c.System.Mails("ben@example.org")
	if len(mails) != 1 || mails[0].Template != "Welcome" || mails[0].Account != at || mails[0].To.To.Name != "Ben Miller" {
		t.Errorf("got %s, want one mail by Welcome", testkit.JSON(mails))
	}
	if _, after := c.records("client", "emailed"); len(after) != 1 || after[0]["email_template"] != "Welcome" {
		t.Errorf("got the records %v, want one with the template", after)
	}

	// Identity sends the first link for choosing a password. The link needs an address to lead to.
	c.Do("POST", at+"/email", `{"type": "client-account-created"}`).WantErrors("/type", "unavailable")
	c.System.SetSetting(settings.APIURL.Slug, "https://api.example.com")
	testkit.Eventually(t, "the address of the API is known", func() bool {
		return c.Do("POST", at+"/email", `{"type": "client-account-created"}`).Status == http.StatusOK
	})
	notifications := c.Identity.Received()
	if len(notifications) != 1 || notifications[0].Kind != credentials.WelcomeKind ||
		string(notifications[0].Content) != testkit.JSON(credentials.Welcome{Client: id}) {
		t.Errorf("got the notifications %s, want one to welcome client %d", testkit.JSON(notifications), id)
	}
	c.Identity.Changed(credentials.Change{Client: id, Version: c.account(id).Version, Action: credentials.SignedIn}, "")
	testkit.Eventually(t, "it has signed in", func() bool { return c.account(id).SignedIn })
	c.Do("POST", at+"/email", `{"type": "client-account-created"}`).WantErrors("/type", "unavailable")
}

// account returns what identity reads of a client.
func (s *testService) account(id int64) (account credentials.Account) {
	s.t.Helper()
	testkit.Must(s.t, s.Peers("identity").Ask(s.t.Context(), clients.Name, path("%s?id=%d", credentials.Path, id), &account))
	return account
}

// Neighbours announce changes of accounts and results of installations, and the clients get mails about them.
func TestForwardedMails(t *testing.T) {
	t.Parallel()
	c := newTestService(t)
	id, _ := c.createClient("ben@example.com")
	c.Identity.SendChanged(mail.ClientChanged{Client: id, Content: mail.AccountChanged{Changes: []string{"An API key was made."}}})
	c.Identity.SendChanged(mail.ClientChanged{Client: 999})
	c.PXE.SendInstalled(mail.ClientInstalled{Client: 999, Template: "Installed"})
	c.PXE.SendInstalled(mail.ClientInstalled{Client: id, Template: "Installed", Content: mail.InstallFinished{}})
	testkit.Eventually(t, "both mails are sent", func() bool { return len(c.System.Mails("ben@example.com")) == 2 })
	by := map[string]string{}
	for _, m := range c.System.Mails("ben@example.com") {
		by[m.Template] = testkit.JSON(m.Opened)
	}
	if !strings.Contains(by["account-changed"], "An API key was made.") || by["Installed"] == "" {
		t.Errorf("got %v, want one by account-changed, one by Installed", by)
	}
}

// When an owner claims an account, the links by which others read it end, except those that an admin has made.
func TestClaimEndsSuperLinks(t *testing.T) {
	t.Parallel()
	c := newTestService(t)
	ids, as := c.createClients("owner", "friend", "auditor")
	own := path("/client/%d", ids["owner"])
	c.Do("POST", own+"/sub", map[string]any{"client_id": ids["friend"]}).Want(200)
	as["owner"].Do("POST", own+"/super", map[string]any{"client_id": ids["friend"]}).Want(200)
	c.Do("POST", own+"/super", map[string]any{"client_id": ids["auditor"]}).Want(200)
	as["friend"].Do("GET", own, nil).Want(200)
	before := c.account(ids["owner"])
	c.Identity.Changed(credentials.Change{Client: ids["owner"], Version: before.Version, Action: credentials.Password, Proven: true}, "a hash")
	testkit.Eventually(t, "the account is claimed", func() bool { return c.account(ids["owner"]).Claimed })
	as["friend"].Do("GET", own, nil).Want(404)
	as["auditor"].Do("GET", own, nil).Want(200)
	account := c.account(ids["owner"])
	if account.Version <= before.Version || account.Hash != "a hash" || !account.SignedIn {
		t.Errorf("got %+v, want the new password with a higher version than %d", account, before.Version)
	}
	earlier, after := c.records("client", "edited")
	if len(after) == 0 || earlier[0]["claimed_at"] != nil || after[0]["claimed_at"] == nil ||
		strings.Contains(testkit.JSON(after), "a hash") {
		t.Errorf("got the records %v, %v, want when it was claimed, and no hash", earlier, after)
	}
	if earlier, _ := c.records("client.super", "deleted"); len(earlier) != 1 {
		t.Errorf("got the records %v of links that ended, want one", earlier)
	}
}

// Actions by which a client could find out addresses are limited, for the client and all accounts that it has created together.
func TestEmailLimit(t *testing.T) {
	t.Parallel()
	c := newTestService(t)
	ids, as := c.createClients("reseller", "unlinked")
	const limit = 5
	c.System.SetSetting(settings.ClientEmails.Slug, fmt.Sprint(limit))
	testkit.Eventually(t, "the limit is known", func() bool {
		response := as["unlinked"].Do("POST", "/client", orderBody("x"))
		return response.Status == 429 && response.Header.Get("RateLimit-Policy") == `"emails";q=5;w=3600`
	})
	own := path("/client/%d", ids["reseller"])
	created := as["reseller"].Do("POST", "/client", orderBody("made@example.com")).Want(200).ID()
	below := c.asClient(created)
	below.Do("POST", "/client", orderBody("below@example.com")).Want(200)
	as["reseller"].Do("PATCH", own, as["reseller"].Do("GET", own, nil).Want(200).Text).
		Want(200)
		// an address that the client can read does not count
	as["reseller"].Do("PATCH", path("/client/%d", created), `{"email": "other@example.com"}`).Want(200)
	as["reseller"].Do("POST", "/client", orderBody("not an address")).Want(422)
	as["reseller"].Do("POST", own+"/email", `{"type": "client-account-created"}`).Want(403)
	refused := below.Do("POST", "/client", orderBody("more@example.com")).Want(429)
	if got := refused.Header.Get("RateLimit"); !strings.HasPrefix(got, `"emails";r=0;t=3`) {
		t.Errorf("got the RateLimit %q, want none left for most of an hour", got)
	}
	as["reseller"].Do("PATCH", own, `{"first": "Bob"}`).Want(200)
	c.Do("POST", "/client", orderBody("by-an-admin@example.com")).Want(200)
}
