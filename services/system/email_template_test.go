package system_test

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/system"
	"github.com/ironplane/ironplane/services/system/mail"
)

func TestEmailTemplates(t *testing.T) {
	t.Parallel()
	c := newFixture(t)
	created := testkit.Decode[system.EmailTemplate](
		c.Do(
			"POST", "/email/template",
			map[string]any{"name": "welcome", "subject": "Hi {{.To.First}}", "body": "Hi,\n\n{{.To.Name}}  \n", "html": "<p>{{.Site.Name}}</p>\n"},
		).
			Want(200),
	)
	if created.Name != "welcome" || created.Type != "client" || created.Body != "Hi,\n\n{{.To.Name}}  \n" ||
		*created.HTML != "<p>{{.Site.Name}}</p>\n" {
		t.Errorf("got %+v, want the template welcome for clients", created)
	}
	at := fmt.Sprintf("/email/template/%d", created.ID)
	c.Do("POST", "/email/template", `{"name": "WELCOME", "subject": "x", "body": "x"}`).WantErrors("/name", "taken")
	c.Do("POST", "/email/template", `{}`).WantErrors("/body", "required", "/name", "required", "/subject", "required")
	c.Do("PATCH", at, `{"name": "welcome", "subject": "x"}`).WantErrors("/body", "required")
	c.Do("POST", "/email/template", `{"name": "x", "subject": "x", "body": "x", "type": "spam"}`).WantErrors("/type", "invalid")

	// Errors of each part name line and column.
	answer := c.Do(
		"POST",
		"/email/template",
		map[string]any{
			"name":    "x",
			"subject": "{{.Link}}\n",
			"body":    "a\n{{.To.Frist}} {{.Nobody}}",
			"html":    "<p>{{if}}",
			"type":    "password-reset",
		},
	)
	answer.WantErrors("/body", "template", "/html", "template", "/subject", "template")
	for _, says := range []string{"line 2, column 6: there is no .To.Frist: there are .To.Email, .To.First", "; line 2, column 17: there " +
		"is no .Nobody: there are .Expires, .IP, .Link, .Site, .To", "line 1, column 4: missing value for if",
		"line 1, column 3: a secret cannot stand here"} {
		if !strings.Contains(answer.Text, says) {
			t.Errorf("got %s, want %q in it", answer.Text, says)
		}
	}
	// Another type has other variables, which are checked when it changes.
	c.Do("PATCH", at, `{"name": "welcome", "subject": "x", "body": "{{.Hostname}}"}`).WantErrors("/body", "template")
	c.Do("PATCH", at, `{"name": "welcome", "subject": "x", "body": "{{.Hostname}}", "type": "install-finished"}`).Want(200)
	c.Do("PATCH", at, `{"name": "welcome", "subject": "x", "body": "{{.Hostname}}", "type": "client"}`).WantErrors("/body", "template")
	c.Do("DELETE", at, nil).Want(200)
}

// Built-in templates can be edited, but not renamed or deleted.
func TestBuiltInTemplates(t *testing.T) {
	t.Parallel()
	c := newFixture(t)
	seeded := testkit.Decode[[]system.EmailTemplate](c.Do("GET", "/email/template?sort=name", nil).Want(200))
	all := slices.DeleteFunc(slices.Clone(seeded), func(t system.EmailTemplate) bool { return t.Name == "install-failed" })
	if len(all) != len(seeded)-1 || len(all) != len(mail.Kinds())-1 {
		t.Fatalf("got %d templates, want %d", len(all), len(mail.Kinds())-1)
	}
	for _, built := range all {
		at := fmt.Sprintf("/email/template/%d", built.ID)
		same := map[string]any{"name": built.Name, "subject": built.Subject, "body": built.Body, "html": built.HTML, "type": built.Type}
		if !mail.IsBuiltIn(built.Name) || built.Type != built.Name || built.HTML == nil {
			t.Errorf("got %+v, want a built-in template of its own type with HTML", built)
		}
		c.Do("PATCH", at, same).Want(200) // the seeded template is valid for its type
		c.Do("PATCH", at, map[string]any{"name": "other", "subject": "x", "body": "x"}).WantErrors("/name", "read_only")
		c.Do("PATCH", at, map[string]any{"name": built.Name, "subject": "x", "body": "x", "html": nil, "type": "client"}).
			WantErrors("/type", "read_only")
		c.Do("DELETE", at, nil).Want(409)
		shown := testkit.Decode[mail.RenderedEmail](c.Do("POST", at+"/preview", `{}`).Want(200))
		for _, part := range []string{shown.Subject, shown.Text, shown.HTML} {
			if part == "" || strings.Contains(part, "{{") || strings.Contains(part, "no value") {
				t.Errorf("%s: got the preview %+v, want all parts filled in", built.Name, shown)
			}
		}
		if !strings.Contains(shown.Text, "Hello Ben") || !strings.Contains(shown.HTML, "<p>Hello Ben,</p>") {
			t.Errorf("%s: got the preview %+v, want a greeting of Ben", built.Name, shown)
		}
		c.Do("PATCH", at, map[string]any{"name": built.Name, "subject": "New", "body": "New", "html": nil}).Want(200)
	}
}

// The seeded template about failed installs has the type of the one about all installs, shows the reason, and can be deleted.
func TestInstallFailedTemplate(t *testing.T) {
	t.Parallel()
	c := newFixture(t)
	found := testkit.Decode[[]system.EmailTemplate](c.Do("GET", "/email/template?name=install-failed", nil).Want(200))
	if len(found) != 1 || found[0].Type != "install-finished" {
		t.Fatalf("got %+v, want a template of the type install-finished", found)
	}
	at := fmt.Sprintf("/email/template/%d", found[0].ID)
	shown := testkit.Decode[mail.RenderedEmail](c.Do("POST", at+"/preview", `{}`).Want(200))
	for _, part := range []string{shown.Text, shown.HTML} {
		if !strings.Contains(part, "The reason: The installer reported that the disk is full.") {
			t.Errorf("got the preview %q, want the reason in it", part)
		}
	}
	c.Do("DELETE", at, nil).Want(200)
}

// A preview renders the stored texts, or those in the body, with sample data. It saves nothing.
func TestPreview(t *testing.T) {
	t.Parallel()
	c := newFixture(t)
	at := fmt.Sprintf(
		"/email/template/%d",
		c.Do(
			"POST", "/email/template",
			map[string]any{"name": "x", "type": "account-changed", "subject": "{{.Site.Name}}: {{.By}}", "body": "{{range .Changes}}{{.}}" +
				"{{end}} {{.At}}"},
		).
			Want(200).
			ID(),
	)
	for body, want := range map[string]mail.RenderedEmail{
		`{}`:                                     {Subject: "Ironplane: ann", Text: "The password was changed. 2027-01-02 15:04 UTC"},
		`{"body": "{{.IP}}"}`:                    {Subject: "Ironplane: ann", Text: "192.0.2.7"},
		`{"subject": "a", "html": "<b>{{.By}}"}`: {Subject: "a", Text: "The password was changed. 2027-01-02 15:04 UTC", HTML: "<b>ann"},
	} {
		if got := testkit.Decode[mail.RenderedEmail](c.Do("POST", at+"/preview", body).Want(200)); got != want {
			t.Errorf("%s: got %+v, want %+v", body, got, want)
		}
	}
	c.Do("POST", at+"/preview", `{"body": "{{.Nothing}}"}`).WantErrors("/body", "template")
	c.Do("POST", "/email/template/999/preview", `{}`).Want(404)
	if got := testkit.Decode[system.EmailTemplate](c.Do("GET", at, nil).Want(200)); got.Body != "{{range .Changes}}{{.}}{{end}} {{.At}}" {
		t.Errorf("got %+v, want the body unchanged", got)
	}
}

// The migration that rewrites the built-in templates leaves alone those that operators edited.
func TestRewrittenTemplates(t *testing.T) {
	t.Parallel()
	c := newFixture(t)
	all := testkit.Decode[[]system.EmailTemplate](c.Do("GET", "/email/template?sort=name", nil).Want(200))
	edited, fresh := all[0], all[1]
	c.execute("UPDATE email_template SET version = 1, body = 'as seeded'")
	c.Do("PATCH", path("/email/template/%d", edited.ID), map[string]any{"name": edited.Name, "subject": "Ours", "body": "Ours"}).Want(200)
	migration, err := fs.ReadFile(system.Definition.Migrations, "migrations/0030_plain_texts.sql")
	if err != nil {
		t.Fatal(err)
	}
	c.execute(string(migration))
	for id, want := range map[int64]string{edited.ID: "Ours", fresh.ID: fresh.Body} {
		if got := testkit.Decode[system.EmailTemplate](c.Do("GET", path("/email/template/%d", id), nil).Want(200)); got.Body != want {
			t.Errorf("%s: got the body %q, want %q", got.Name, got.Body, want)
		}
	}
}
