package gateway

import (
	"crypto/sha256"
	"encoding/base64"
	"html"
	"io"
	"net/http"

	"github.com/ironplane/ironplane/pkg/settings"
)

// passwordPath is the page on which a client without a panel chooses a password. The mailed link has the link's id and token in
// its fragment.
const passwordPath = "/-/password"

// passwordHead is the page up to the site's name, and passwordBody the page after it. See docsPage on templates.
const passwordHead = `<!DOCTYPE html>
<html lang="en">
<head>
  <meta charset="utf-8">
  <meta name="viewport" content="width=device-width, initial-scale=1">
  <meta name="referrer" content="no-referrer">
  <style>` + passwordStyle + `</style>
  <title>`

const passwordBody = `</h1>
    <form id="form" hidden>
      <label for="password">New password</label>
      <input id="password" type="password" autocomplete="new-password" required>
      <label for="repeated">Repeat the new password</label>
      <input id="repeated" type="password" autocomplete="new-password" required>
      <button id="button">Set password</button>
    </form>
    <p id="message" role="status" aria-live="polite">This page needs JavaScript.</p>
  </main>
  <script>` + passwordScript + `</script>
</body>
</html>
`

const passwordStyle = `body{font:1rem/1.5 system-ui,sans-serif;margin:3rem 1rem}main{max-width:24rem;margin:auto}label,input,button{display:block;width:100%;box-sizing:border-box;font:inherit}input,button{margin-bottom:1rem;padding:.5rem}`

// passwordScript removes the token from the address, so that it stays in no history, and sends it with the new password.
const passwordScript = `"use strict";
const link = new URLSearchParams(location.hash.slice(1));
history.replaceState(null, "", location.pathname);
const element = name => document.getElementById(name);
const id = link.get("id"), token = link.get("token");
const show = text => { element("message").textContent = text; };
if (/^[1-9][0-9]*$/.test(id) && token) {
  element("form").hidden = false;
  show("");
} else {
  show("The link is incomplete. Open the link in the mail, or copy all of it.");
}
element("form").addEventListener("submit", async event => {
  event.preventDefault();
  const password = element("password").value;
  if (password !== element("repeated").value) {
    show("The passwords do not match.");
    return;
  }
  element("button").disabled = true;
  show("");
  try {
    const response = await fetch("/auth/password-reset/" + id, {
      method: "PATCH", credentials: "omit", headers: {"Content-Type": "application/json"}, body: JSON.stringify({token, password}),
    });
    const body = await response.json();
    if (response.ok) {
      element("form").remove();
      show("The password is set. You can sign in with it.");
      return;
    }
    const invalid = (body.errors || []).find(field => field.pointer === "/password");
    if (response.status === 404 || response.status === 422 && !invalid) {
      element("form").remove();
      show("The link has expired. Request a new one.");
      return;
    }
    show(invalid ? "The password " + invalid.message + "." : body.detail);
  } catch {
    show("The server did not respond. Try again.");
  }
  element("button").disabled = false;
});
`

// passwordPolicy allows the page's own script and style, and requests to this origin.
var passwordPolicy = pagePolicy(passwordScript)

// hashSource returns the source expression of a script or style for a Content-Security-Policy.
func hashSource(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

func (g *Gateway) password(w http.ResponseWriter, _ *http.Request) {
	g.writePage(w, passwordPolicy, passwordBody)
}

// writePage writes a page with this policy: its head, the site's name, and the rest.
func (g *Gateway) writePage(w http.ResponseWriter, policy, body string) {
	header := w.Header()
	header.Set("Content-Security-Policy", policy)
	header.Set("X-Frame-Options", "DENY")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Content-Type", "text/html; charset=utf-8")
	name := html.EscapeString(settings.SiteName.In(g.settings.Values()))
	_, _ = io.WriteString(w, passwordHead+name+"</title>\n</head>\n<body>\n  <main>\n    <h1>"+name+body)
}
