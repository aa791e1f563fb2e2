package browser

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/pxe/templates"
	"github.com/ironplane/ironplane/services/system"
)

// replaceText replaces the text of the field with this label.
func (c *consoleWindow) replaceText(label, text string) {
	c.t.Helper()
	c.write(label, "x")
	replace := `text => { document.activeElement.select(); return document.execCommand("insertText", false, text); }`
	if done, failed := run[bool](c.window, replace, text); !done || failed != "" {
		c.t.Fatalf("%s: got no new text: %s", label, failed)
	}
}

// preview is an expression for what the page previews.
const preview = `[...document.querySelectorAll("section[aria-label=Preview] pre")].map(e => e.textContent).join("\n")`

// TestEmailTemplateEditor edits an email template: the API previews what is typed, errors stand at their lines, and the difference to
// the stored text is shown before it is saved.
func TestEmailTemplateEditor(t *testing.T) {
	t.Parallel()
	c := openConsole(t)
	id := c.site.admin.Do("POST", "/email/template", map[string]any{
		"name": "hello", "subject": "Hello", "body": "Dear {{.To.First}},\n\nwelcome.\n",
	}).Want(200).ID()
	at := fmt.Sprintf("/email/template/%d", id)
	stored := func() system.EmailTemplate {
		return testkit.Decode[system.EmailTemplate](c.site.admin.Do("GET", at, nil).Want(200))
	}
	c.site.admin.Do("POST", "/client", map[string]any{"email": "ida@example.com", "first": "Ida", "last": "Novak"}).Want(200)
	c.signInWithKey(c.site.admin.Key, at)
	c.await("sample data are previewed", preview+`.includes("welcome.")`)

	// A variable is inserted where the cursor is, and previewed before it is saved.
	c.replaceText("Text", "Dear {{.To.First}},\n\nwelcome to ")
	c.press(".Site.Name")
	c.await("the variable is inserted", `document.querySelector("textarea").value.endsWith("welcome to {{.Site.Name}}")`)
	c.await("the new text is previewed", preview+`.includes("welcome to Ironplane")`)
	c.write("To the client", "Ida")
	c.press("Ida Novak #1")
	c.await("the client is previewed", preview+`.includes("Dear Ida,")`)
	if body := stored().Body; body != "Dear {{.To.First}},\n\nwelcome.\n" {
		t.Errorf("got the stored text %q before it was saved, want the old one", body)
	}

	// Errors lead to their lines.
	faulty := "Dear {{.To.First}},\n\nwelcome to {{.Nowhere}}"
	c.replaceText("Text", faulty)
	c.await("the error stands at its line", `document.querySelector(".mark")?.style.getPropertyValue("--line") === "2"`)
	c.awaitText("Line 3, column 14:")
	c.press("Line 3, column 14:")
	cursor, failed := run[int](c.window, `() => document.activeElement.selectionStart`)
	if want := strings.Index(faulty, ".Nowhere"); failed != "" || cursor != want {
		t.Errorf("got the cursor at %d %s, want %d, the unknown variable", cursor, failed, want)
	}
	c.press("Save")
	c.await("the API refuses the template", `document.querySelector("textarea").getAttribute("aria-invalid") === "true"`)

	// The difference is shown, and a change of somebody else is not overwritten unseen.
	c.replaceText("Text", "Dear {{.To.First}},\n\nwelcome to us.\n")
	c.await("the difference is shown", `document.querySelector(".difference del")?.textContent === "welcome.\n" &&
		document.querySelector(".difference ins")?.textContent === "welcome to us.\n"`)
	other := map[string]any{"name": "hello", "subject": "Good morning", "body": stored().Body}
	c.site.admin.Do("PATCH", at, other).Want(200)
	c.press("Save")
	c.awaitText("Somebody else changed this item since you opened it.")
	c.await("the change of somebody else is shown", `document.querySelector(".conflict ins")?.textContent === "Good morning\n"`)
	c.press("Save over it")
	c.awaitText("Saved.")
	if saved := stored(); saved.Subject != "Good morning" || saved.Body != "Dear {{.To.First}},\n\nwelcome to us.\n" {
		t.Errorf("got the template %+v after both edits, want both", saved)
	}

	// The form of all members saves, too.
	c.press("Edit")
	c.write("Name", "greeting")
	c.do(chromedp.Click(".modal .button.primary"))
	testkit.Eventually(t, "the name is saved", func() bool { return stored().Name == "greeting" })
}

// TestPreseedEditor edits a preseed, with a preview of a machine that is installed by it.
func TestPreseedEditor(t *testing.T) {
	t.Parallel()
	c := openConsole(t)
	id := c.site.admin.Do("POST", "/pxe/preseed", map[string]any{"name": "ours", "body": "# {{.Host.Name}}\n"}).Want(200).ID()
	at := fmt.Sprintf("/pxe/preseed/%d", id)
	c.signInWithKey(c.site.admin.Key, at)
	c.await("a sample machine is previewed", preview+`.startsWith("# ")`)
	c.replaceText("Text", "disk {{.Host.Disk}}\n{{range .Host.Nameservers}}")
	c.await("the error stands at its line", `document.querySelector(".mark")?.style.getPropertyValue("--line") === "1"`)
	c.replaceText("Text", "mac {{upper .Host.MAC}}\n")
	c.await("the new text is previewed", preview+`.includes("mac 52:54:00:12:34:56")`)
	c.press("Save")
	c.awaitText("Saved.")
	if saved := testkit.Decode[templates.OSPreseed](c.site.admin.Do("GET", at, nil).Want(200)); saved.Body != "mac {{upper .Host.MAC}}\n" {
		t.Errorf("got the preseed %q, want what was typed", saved.Body)
	}
}
