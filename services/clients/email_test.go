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

// A client is written to by a template that there is.
func TestEmailToClient(t *testing.T) {
	t.Parallel()
	c := newStand(t)
	id, at := c.make("ben@example.org")
	if text := c.Do("POST", at+"/email", `{"type": "welcome"}`).Want(422).Text; !strings.Contains(text, "there is none yet") {
		t.Errorf("without a template: got %s, want that there is none yet", text)
	}
	c.System.SetTemplates("Welcome")
	for _, wrong := range []string{"password-reset", "x"} {
		if text := c.Do("POST", at+"/email", map[string]any{"type": wrong}).Want(422).Text; !strings.Contains(text, "there are Welcome") {
			t.Errorf("%s: got %s, want that there are Welcome", wrong, text)
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
	if _, afters := c.records("client", "emailed"); len(afters) != 1 || afters[0]["email_template"] != "Welcome" {
		t.Errorf("got the records %v, want one with the template", afters)
	}

	// The first link to choose a password by is identity's, and needs a place to lead to.
	c.Do("POST", at+"/email", `{"type": "client-account-created"}`).WantErrors("/type", "unavailable")
	c.System.SetSetting(settings.APIURL.Slug, "https://api.example.com")
	testkit.Eventually(t, "it is known where the API is", func() bool {
		return c.Do("POST", at+"/email", `{"type": "client-account-created"}`).Status == http.StatusOK
	})
	told := c.Identity.Received()
	if len(told) != 1 || told[0].Kind != credentials.WelcomeKind || string(told[0].Content) != testkit.JSON(credentials.Welcome{Client: id}) {
		t.Errorf("got the notifications %s, want one to welcome client %d", testkit.JSON(told), id)
	}
	c.Identity.Changed(credentials.Change{Client: id, Version: c.account(id).Version, What: credentials.SignedIn}, "")
	testkit.Eventually(t, "it has signed in", func() bool { return c.account(id).SignedIn })
	c.Do("POST", at+"/email", `{"type": "client-account-created"}`).WantErrors("/type", "unavailable")
}

// account is what identity is told of a client.
func (s *stand) account(id int64) (is credentials.Account) {
	s.t.Helper()
	testkit.Must(s.t, s.Peers("identity").Ask(s.t.Context(), clients.Name, path("%s?id=%d", credentials.Path, id), &is))
	return is
}

// What neighbours say that happened to an account, or how an installation has ended, it is mailed.
func TestTold(t *testing.T) {
	t.Parallel()
	c := newStand(t)
	id, _ := c.make("ben@example.com")
	c.Identity.Tell(mail.ClientChanged{Client: id, Content: mail.AccountChanged{Changes: []string{"An API key was made."}}})
	c.Identity.Tell(mail.ClientChanged{Client: 999})
	c.PXE.Tell(mail.ClientInstalled{Client: 999, Template: "Installed"})
	c.PXE.Tell(mail.ClientInstalled{Client: id, Template: "Installed", Content: mail.InstallFinished{}})
	testkit.Eventually(t, "both mails are sent", func() bool { return len(c.System.Mails("ben@example.com")) == 2 })
	by := map[string]string{}
	for _, m := range c.System.Mails("ben@example.com") {
		by[m.Template] = testkit.JSON(m.What)
	}
	if !strings.Contains(by["account-changed"], "An API key was made.") || by["Installed"] == "" {
		t.Errorf("got %v, want one by account-changed, one by Installed", by)
	}
}

// An account that shows that it is its own ends the links by which others read it, but for those that an admin has made.
func TestClaimEndsSuperLinks(t *testing.T) {
	t.Parallel()
	c := newStand(t)
	ids, as := c.clients("owner", "friend", "auditor")
	own := path("/client/%d", ids["owner"])
	c.Do("POST", own+"/sub", map[string]any{"client_id": ids["friend"]}).Want(200)
	as["owner"].Do("POST", own+"/super", map[string]any{"client_id": ids["friend"]}).Want(200)
	c.Do("POST", own+"/super", map[string]any{"client_id": ids["auditor"]}).Want(200)
	as["friend"].Do("GET", own, nil).Want(200)
	before := c.account(ids["owner"])
	c.Identity.Changed(credentials.Change{Client: ids["owner"], Version: before.Version, What: credentials.Password, Proven: true}, "a hash")
	testkit.Eventually(t, "the account is claimed", func() bool { return c.account(ids["owner"]).Claimed })
	as["friend"].Do("GET", own, nil).Want(404)
	as["auditor"].Do("GET", own, nil).Want(200)
	is := c.account(ids["owner"])
	if is.Version <= before.Version || is.Hash != "a hash" || !is.SignedIn {
		t.Errorf("got %+v, want the new password with a higher version than %d", is, before.Version)
	}
	befores, afters := c.records("client", "edited")
	if len(afters) == 0 || befores[0]["claimed_at"] != nil || afters[0]["claimed_at"] == nil ||
		strings.Contains(testkit.JSON(afters), "a hash") {
		t.Errorf("got the records %v, %v, want when it was claimed, and no hash", befores, afters)
	}
	if befores, _ := c.records("client.super", "deleted"); len(befores) != 1 {
		t.Errorf("got the records %v of links that ended, want one", befores)
	}
}

// What a client can find out about addresses by, it does so often an hour, with all that it has created.
func TestEmailLimit(t *testing.T) {
	t.Parallel()
	c := newStand(t)
	ids, as := c.clients("reseller", "stranger")
	const limit = 5
	c.System.SetSetting(settings.ClientEmails.Slug, fmt.Sprint(limit))
	testkit.Eventually(t, "the limit is known", func() bool {
		answer := as["stranger"].Do("POST", "/client", order("x"))
		return answer.Status == 429 && answer.Header.Get("RateLimit-Policy") == `"emails";q=5;w=3600`
	})
	own := path("/client/%d", ids["reseller"])
	made := as["reseller"].Do("POST", "/client", order("made@example.com")).Want(200).ID()
	below := c.asClient(made)
	below.Do("POST", "/client", order("below@example.com")).Want(200)
	as["reseller"].Do("PATCH", own, as["reseller"].Do("GET", own, nil).Want(200).Text).Want(200) // which counts for nothing
	as["reseller"].Do("PATCH", path("/client/%d", made), `{"email": "other@example.com"}`).Want(200)
	as["reseller"].Do("POST", "/client", order("not an address")).Want(422)
	as["reseller"].Do("POST", own+"/email", `{"type": "client-account-created"}`).Want(403)
	refused := below.Do("POST", "/client", order("more@example.com")).Want(429)
	if got := refused.Header.Get("RateLimit"); !strings.HasPrefix(got, `"emails";r=0;t=3`) {
		t.Errorf("got the RateLimit %q, want none left for most of an hour", got)
	}
	as["reseller"].Do("PATCH", own, `{"first": "Bob"}`).Want(200)
	c.Do("POST", "/client", order("by-an-admin@example.com")).Want(200)
}
