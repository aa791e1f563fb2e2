package product_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/deploy/internal/product/producttest"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/pkg/testkit/mailbox"
	"github.com/ironplane/ironplane/services/clients"
	"github.com/ironplane/ironplane/services/system"
	"github.com/ironplane/ironplane/services/system/mail"
)

// A client gets a mail made from a template, and admins that want one get a blind copy. The log has it, and the to-do item
// about mail is completed.
func TestEmailToClient(t *testing.T) {
	t.Parallel()
	box := mailbox.Start(t, mailbox.Options{})
	p, c := producttest.StartWith(t, testkit.Redis(t), service.Settings{SMTP: "smtp+plain://" + box.Addr, MailFrom: "noreply@example.com"})
	choose(t, c, "site_name", "Example Hosting")
	id := c.Do("POST", "/client", `{"first": "Ben", "last": "Miller", "email": "ben@example.org"}`).Want(200).ID()
	at := path("/client/%d/email", id)
	c.Do("POST", at, `{"type": "welcome"}`).WantErrors("/type", "not_found")
	c.Do("POST", "/email/template", `{"name": "Welcome", "subject": "Hi {{.To.First}}", "body": "{{.Site.Name}} for {{.To.Name}}"}`).Want(200)
	for _, name := range []string{"ann", "bob", "eve"} {
		admin := c.Do("POST", "/admin", map[string]any{"email": name + "@example.com", "password": "", "receive_copies": name != "bob"}).
			Want(200).
			ID()
		if name == "eve" {
			c.Do("PATCH", path("/admin/%d", admin), `{"disabled": true}`).Want(200)
		}
	}
	for _, template := range []string{"password-reset", "x"} {
		if text := c.Do("POST", at, map[string]any{"type": template}).Want(422).Text; !strings.Contains(text, "the templates are Welcome") {
			t.Errorf(`got %s, want "the templates are Welcome" in it`, text)
		}
	}
	c.Do("POST", at, `{}`).WantErrors("/type", "required")
	c.Do("POST", "/client/999/email", `{"type": "welcome"}`).Want(404)

	sent := testkit.Decode[[]clients.EmailResult](c.Do("POST", at, `{"type": "welcome.tpl"}`).Want(200))
	if len(sent) != 1 || sent[0].Type != "success" || !strings.Contains(sent[0].Text, "ben@example.org") {
		t.Errorf("got %+v, want one success for ben@example.org", sent)
	}
	testkit.Eventually(t, "mail and copy have come, and it is known", func() bool {
		sent := testkit.Decode[[]mail.EmailMessage](c.Do("GET", "/email/message?status=sent", nil).Want(200))
		return box.Accepted() == 2 && len(sent) == 1
	})
	to := map[string]bool{}
	for _, m := range box.Mails() {
		to[m.To[0]] = true
		if !bytes.Contains(m.Data, []byte("Example Hosting for Ben Miller")) || !bytes.Contains(m.Data, []byte("Subject: Hi Ben")) ||
			!bytes.Contains(m.Data, []byte("<ben@example.org>")) ||
			bytes.Contains(m.Data, []byte("ann@")) {
			t.Errorf("got %s, want a mail for Ben Miller <ben@example.org> without ann@", m.Data)
		}
	}
	if !to["ben@example.org"] || !to["ann@example.com"] {
		t.Errorf("got mails to %v, want ben@example.org and ann@example.com", to)
	}
	all := testkit.Decode[[]mail.EmailMessage](c.Do("GET", "/email/message?status=sent", nil).Want(200))
	if len(all) != 1 || all[0].Account != path("/client/%d", id) || all[0].Subject != "Hi Ben" {
		t.Errorf("got %+v, want one mail Hi Ben to client %d", all, id)
	}
	if n := testkit.Decode[[]struct{}](c.Do("GET", "/email/message", nil).Want(200)); len(n) != 1 {
		t.Errorf("got %d mails, want 1: a refused one is not sent", len(n))
	}
	producttest.AwaitLog(t, p)
	for _, kind := range []string{"client.emailed", "email.message.sent"} {
		if items := testkit.Decode[[]system.LogItem](c.Do("GET", "/log?type="+kind, nil).Want(200)); len(items) != 1 {
			t.Errorf("got %d log items of %s, want 1", len(items), kind)
		}
	}
	if todo := c.Do("GET", "/todo?slug=system.email.configure", nil).Want(200).Text; !strings.Contains(todo, "completed_at") {
		t.Errorf("got %s, want the to-do completed", todo)
	}
}

// A mail to a client is in its language, if a template is, and knows its addresses and servers. A preview shows what it will say.
func TestMailInTheClientsLanguage(t *testing.T) {
	t.Parallel()
	_, c := producttest.Start(t)
	id := c.Do("POST", "/client", `{"first": "Ben", "last": "Miller", "email": "ben@example.org", "language": "pt-BR"}`).Want(200).ID()
	c.Do("PATCH", path("/client/%d", id), `{"language": "German"}`).WantErrors("/language", "invalid")
	group := c.Do("POST", "/group", `{"name": "Berlin"}`).Want(200).ID()
	c.Do("POST", path("/group/%d/entity/bulk", group), `{"prefix": "192.0.2.8/30"}`).Want(200)
	allocation := path(`{"count": 2, "owner": {"id": %d, "server": {"id": 7, "name": "fra1-s7"}}}`, id)
	c.Do("POST", path("/group/%d/allocate", group), allocation).Want(200)
	template := func(name, kind, greeting string) int64 {
		return c.Do("POST", "/email/template", map[string]any{"name": name, "type": kind, "subject": "Servers",
			"body": greeting + " {{.To.First}}:{{range .Addresses}} {{.}}{{end}} on{{range .Servers}} {{.}}{{end}}"}).Want(200).ID()
	}
	template("welcome", "client", "Hello")
	template("welcome.de", "client", "Hallo")
	portuguese := template("welcome.pt", "client", "Olá")
	last := func(want string) {
		t.Helper()
		var mails []mail.EmailMessage
		testkit.Eventually(t, "the last mail says "+want, func() bool {
			mails = testkit.Decode[[]mail.EmailMessage](c.Do("GET", "/email/message?sort=-id&per_page=1", nil).Want(200))
			return len(mails) == 1 && mails[0].Text == want
		}, func() string { return testkit.JSON(mails) })
	}
	send := func() { c.Do("POST", path("/client/%d/email", id), `{"type": "welcome"}`).Want(200) }
	send()
	last("Olá Ben: 192.0.2.9 192.0.2.10 on fra1-s7")
	c.Do("PATCH", path("/client/%d", id), `{"language": "de"}`).Want(200)
	send()
	last("Hallo Ben: 192.0.2.9 192.0.2.10 on fra1-s7")
	c.Do("PATCH", path("/client/%d", id), `{"language": "fr"}`).Want(200)
	send()
	last("Hello Ben: 192.0.2.9 192.0.2.10 on fra1-s7")

	// Another type has other variables, so that a template of it is no translation.
	c.Do("PATCH", path("/client/%d", id), `{"language": "de"}`).Want(200)
	c.Do("POST", "/email/template", `{"name": "client-linked.de", "subject": "x", "body": "not this one"}`).Want(200)
	preview := path("/email/template/%d/preview", portuguese)
	got := c.Do("POST", preview, path(`{"client": %d}`, id)).Want(200).Text
	if !strings.Contains(got, "Olá Ben: 192.0.2.9 192.0.2.10 on fra1-s7") {
		t.Errorf("got the preview %s, want the addresses of Ben", got)
	}
	c.Do("POST", preview, `{"client": 999}`).WantErrors("/client", "not_found")
	c.Do("POST", preview, `{"install": 1}`).WantErrors("/install", "conflict")
	keyOf := func(body string) *testkit.Client {
		return c.WithKey(testkit.Decode[struct{ Key string }](c.Do("POST", "/auth/key", body).Want(200)).Key)
	}
	reseller := keyOf(path(`{"owner": {"url": "/client/%d"}}`, id))
	sub := reseller.Do("POST", "/client", `{"first": "Jo", "last": "Doe", "email": "jo@example.org"}`).Want(200).ID()
	c.Do("PATCH", path("/client/%d", sub), `{"language": "de"}`).Want(200)
	reseller.Do("PATCH", path("/client/%d", id), `{"language": null}`).Want(200)

	limited := c.Do("POST", "/integration", `{"name": "Mailer"}`).Want(200).ID()
	c.Do("PATCH", path("/integration/%d/permission", limited), `{"system": {"emails": {"read": true, "write": true}}}`).Want(200)
	mailer := keyOf(path(`{"name": "mail", "owner": {"url": "/integration/%d"}}`, limited))
	mailer.Do("POST", preview, `{}`).Want(200)
	mailer.Do("POST", preview, path(`{"client": %d}`, id)).WantDetail(403, "The key lacks users.clients read.")
	finished := testkit.Decode[[]system.EmailTemplate](c.Do("GET", "/email/template?name=install-finished", nil).Want(200))[0].ID
	mailer.Do("POST", path("/email/template/%d/preview", finished), `{"install": 1}`).WantDetail(403, "The key lacks pxe.installs read.")
	c.Do("POST", path("/email/template/%d/preview", finished), `{"install": 1}`).WantErrors("/install", "not_found")
}
