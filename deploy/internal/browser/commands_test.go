package browser

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/ironplane/ironplane/deploy/cli/command"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/clients"
)

// showCommands opens the commands of the page's form or empty list, and returns them.
func (c *consoleWindow) showCommands() (ironplane, curl string) {
	c.t.Helper()
	const details = `(document.querySelector(".modal details.command") ?? document.querySelector("details.command"))`
	c.await("there are commands", details)
	if _, failed := run[bool](c.window, `() => { `+details+`.open = true; return true; }`); failed != "" {
		c.t.Fatal(failed)
	}
	c.await("both commands are shown", details+`.querySelectorAll("pre").length === 2`)
	labels, failed := run[[]string](c.window, `() => [...`+details+`.querySelectorAll(".copy")].map(e => e.getAttribute("aria-label"))`)
	if want := []string{"Copy the command of ironplane", "Copy the command of curl"}; failed != "" || !slices.Equal(labels, want) {
		c.t.Errorf("got the copy buttons %q %s, want %q", labels, failed, want)
	}
	texts, failed := run[[]string](c.window, `() => [...`+details+`.querySelectorAll("pre")].map(e => e.textContent)`)
	if failed != "" || len(texts) != 2 {
		c.t.Fatalf("got the commands %q, want two: %s", texts, failed)
	}
	return texts[0], texts[1]
}

// runCommand runs a printed command of ironplane as a shell reads it.
func (c *consoleWindow) runCommand(printed, input string) {
	c.t.Helper()
	words, err := exec.CommandContext(c.t.Context(), "sh", "-c", `ironplane() { printf '%s\0' "$@"; }; `+printed).Output()
	if err != nil {
		c.t.Fatalf("%s: %v", printed, err)
	}
	var out, stderr bytes.Buffer
	env := map[string]string{"IRONPLANE_URL": c.site.admin.URL, "IRONPLANE_KEY": c.site.admin.Key, "XDG_CONFIG_HOME": c.t.TempDir()}
	program := &command.Program{In: strings.NewReader(input), Out: &out, Err: &stderr, Getenv: func(name string) string { return env[name] }}
	if code := command.Run(c.t.Context(), strings.Split(strings.TrimSuffix(string(words), "\x00"), "\x00"), program); code != 0 {
		c.t.Fatalf("%s: got exit code %d, want 0: %s", printed, code, stderr.String())
	}
}

// TestConsoleCommands runs the commands that an empty list and forms print. They do what the forms would.
func TestConsoleCommands(t *testing.T) {
	t.Parallel()
	c := openConsole(t)
	c.signInWithKey(c.site.admin.Key, "/client")
	c.awaitText("No clients yet.")
	printed, curl := c.showCommands()
	if !strings.HasPrefix(printed, "ironplane client create") || !strings.HasPrefix(curl, "curl -X POST "+c.site.url+"/client") {
		t.Errorf("got %q and %q, want the commands that create a client", printed, curl)
	}

	// A shell takes quotes and spaces as they were typed, and a secret is no argument.
	c.press("Create a client")
	c.write("First", "Ben $HOME")
	c.write("Last", `O'Brien "B"`)
	c.write("Email", "ben@example.com")
	c.write("Password", password)
	printed, _ = c.showCommands()
	if strings.Contains(printed, password) {
		t.Errorf("got %q, want a command without the password", printed)
	}
	c.runCommand(printed, password+"\n")
	created := testkit.Decode[clients.ViewedClient](c.site.admin.Do("GET", "/client/1", nil).Want(200))
	if created.First != "Ben $HOME" || created.Last != `O'Brien "B"` {
		t.Errorf("got the client %s %s, want what the form has", created.First, created.Last)
	}
	login := map[string]any{"type": "client", "email": "ben@example.com", "password": password}
	c.site.admin.WithKey("").Do("POST", "/auth/key", login).Want(200)

	c.do(chromedp.Navigate(c.site.url + "/-/console/client/1?dialog=edit"))
	c.write("Last", "Baker")
	printed, _ = c.showCommands()
	c.runCommand(printed, "")
	edited := testkit.Decode[clients.ViewedClient](c.site.admin.Do("GET", "/client/1", nil).Want(200))
	if edited.Last != "Baker" {
		t.Errorf("got the client's last name %s, want Baker", edited.Last)
	}

	// Of two secrets, one comes from standard input and the other from a file.
	c.do(chromedp.Navigate(c.site.url + "/-/console/client/1?dialog=edit"))
	c.write("Current password", "another walk in the rain")
	c.write("Password", "a longer walk in the rain")
	printed, _ = c.showCommands()
	c.awaitText("Only one secret can come from standard input.")
	file := filepath.Join(t.TempDir(), "password.txt")
	if err := os.WriteFile(file, []byte("a longer walk in the rain\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.runCommand(strings.Replace(printed, "@password.txt", "@"+file, 1), password+"\n")
	login["password"] = "a longer walk in the rain"
	c.site.admin.WithKey("").Do("POST", "/auth/key", login).Want(200)

	// Several items are several arguments.
	c.site.admin.Do("POST", "/client", map[string]any{"email": "anna@example.com", "first": "Anna", "last": "Schmidt"}).Want(200)
	c.do(chromedp.Navigate(c.site.url + "/-/console/client?dialog=delete-many&ids=1,2"))
	c.awaitText("Nothing stands in the way.")
	printed, _ = c.showCommands()
	c.runCommand(printed, "")
	c.site.admin.Do("GET", "/client/1", nil).Want(404)
	c.site.admin.Do("GET", "/client/2", nil).Want(404)
}
