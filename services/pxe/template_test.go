package pxe_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/pxe"
	"github.com/ironplane/ironplane/services/pxe/templates"
)

func TestTemplates(t *testing.T) {
	t.Parallel()
	c, _, _ := newClient(t)
	for _, path := range []string{"/pxe/preseed", "/pxe/boot-script", "/pxe/shell"} {
		created := c.Do("POST", path, `{"name": "one", "description": "for \"x\"", "body": "# {{.Host.Hostname}}\n"}`).Want(200)
		if !strings.Contains(created.Text, `"body":"# {{.Host.Hostname}}\n"`) {
			t.Errorf("got %s, want it with its body", created.Text)
		}
		at := fmt.Sprintf("%s/%d", path, created.ID())
		if got := c.Do("GET", at, nil).Want(200).Text; got != created.Text {
			t.Errorf("%s: got %s, want %s", at, got, created.Text)
		}
		if body := strings.Contains(c.Do("GET", path+"?name=one", nil).Want(200).Text, `"body"`); body != (path == "/pxe/shell") {
			t.Errorf("got bodies in the list of %s: %v, want %v", path, body, path == "/pxe/shell")
		}
		c.Do("POST", path, `{}`).WantErrors("/name", "required")
		c.Do("POST", path, `{"name": "one"}`).WantErrors("/name", "taken")
		c.Do("POST", path, `{"name": "bare"}`).Want(200)
		refused := testkit.Decode[problem.Problem](c.Do("PATCH", at, `{"body": "x\n{{.Host.Mac}}\n{{if}}"}`).Want(422))
		if len(refused.Errors) != 1 || refused.Errors[0].Pointer != "/body" ||
			!strings.HasPrefix(refused.Errors[0].Message, "line 3, column 1: missing value for if") {
			t.Errorf("got the errors %+v, want the missing value for if in line 3", refused.Errors)
		}
		refused = testkit.Decode[problem.Problem](c.Do("POST", path, `{"name": "two", "body": "{{.Host.Mac}}\n {{quote 3}}"}`).Want(422))
		if len(refused.Errors) != 1 || !strings.HasPrefix(refused.Errors[0].Message, "line 1, column 8: there is no .Host.Mac: there are ") ||
			!strings.HasSuffix(refused.Errors[0].Message, "; line 2, column 4: quote takes a text") {
			t.Errorf("got the errors %+v, want one with .Host.Mac in line 1 and quote in line 2", refused.Errors)
		}
		c.Do("PATCH", at, `{"description": null, "body": ""}`).Want(200)
		if found := testkit.Decode[[]templates.ListedTemplate](
			c.Do("GET", path+"?q=BAR", nil).Want(200),
		); len(found) != 1 ||
			found[0].Name != "bare" {
			t.Errorf("%s: got %+v, want bare", path, found)
		}
		c.Do("DELETE", at, nil).Want(200)
	}
	c.Do("POST", "/pxe/boot-script", `{"name": "secret", "body": "{{.Password}}"}`).WantErrors("/body", "template")
	c.Do("POST", "/pxe/preseed", `{"name": "secret", "body": "{{.Password}}", "is_installable": true}`).Want(200)
	if found := testkit.Decode[[]templates.ListedPreseed](
		c.Do("GET", "/pxe/preseed?is_installable=true&q=secret", nil).Want(200),
	); len(
		found,
	) != 1 {
		t.Errorf("got the installable preseeds %+v, want 1", found)
	}
}

// A template with variables of another version is flagged when the service starts, until an edit corrects it.
func TestTemplateOfAnotherVersion(t *testing.T) {
	t.Parallel()
	c, db, box := newClient(t)
	id := c.Do("POST", "/pxe/preseed", `{"name": "old", "body": "x"}`).Want(200).ID()
	at := fmt.Sprintf("/pxe/preseed/%d", id)
	testkit.Execute(t, db, "UPDATE preseed SET body = '{{.Machine.Name}}' WHERE id = $1", id)
	check := func() templates.OSPreseed {
		t.Helper()
		if err := pxe.Definition.Begin(context.Background(), service.Deps{DB: db, Box: box}); err != nil {
			t.Fatal(err)
		}
		return testkit.Decode[templates.OSPreseed](c.Do("GET", at, nil).Want(200))
	}
	flagged := check()
	if flagged.Problem == nil || !strings.Contains(*flagged.Problem, "there is no .Machine") {
		t.Errorf("got %+v, want the problem that there is no .Machine", flagged)
	}
	tag := c.Do("GET", at, nil).Header.Get("ETag")
	check()
	if unchanged := c.Do("GET", at, nil).Header.Get("ETag"); unchanged != tag {
		t.Errorf("got the ETag %s after another check, want %s", unchanged, tag)
	}
	c.Do("PATCH", at, `{"name": "still old"}`).WantErrors("/body", "template")
	if mended := testkit.Decode[templates.OSPreseed](c.Do("PATCH", at, `{"body": "{{.Host.Name}}"}`).Want(200)); mended.Problem != nil {
		t.Errorf("got the problem %s after the edit, want none", *mended.Problem)
	}
	testkit.Execute(t, db, "UPDATE preseed SET problem = 'x' WHERE id = $1", id)
	if right := check(); right.Problem != nil {
		t.Errorf("got the problem %s of a valid template, want none", *right.Problem)
	}
	var records int
	if err := db.QueryRow(t.Context(), `SELECT count(*) FROM change WHERE type = 'pxe.preseed.edited' AND actor_url IS NULL AND (before ? 'problem') <> (after ? 'problem')`).
		Scan(&records); err != nil ||
		records != 2 {
		t.Errorf("got %d records (%v), want 2", records, err)
	}
}
