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
