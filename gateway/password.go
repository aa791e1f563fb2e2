package gateway

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"html"
	"io"
	"net/http"

	"github.com/ironplane/ironplane/pkg/settings"
)

// passwordPath is where who has no panel chooses a password by a mailed link, which has the link's id and token behind its #.
const passwordPath = "/-/password"

// The page is its head up to the site's name, and its body from there on. It is no template: see docsPage.
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
      <label for="again">The same again</label>
      <input id="again" type="password" autocomplete="new-password" required>
      <button id="button">Choose this password</button>
    </form>
    <p id="said" role="status" aria-live="polite">This page needs JavaScript.</p>
  </main>
  <script>` + passwordScript + `</script>
</body>
</html>
`

const passwordStyle = `body{font:1rem/1.5 system-ui,sans-serif;margin:3rem 1rem}main{max-width:24rem;margin:auto}label,input,button{display:block;width:100%;box-sizing:border-box;font:inherit}input,button{margin-bottom:1rem;padding:.5rem}`

// passwordScript takes the token out of the address, so that it stays in no history, and sends it with the password.
const passwordScript = `"use strict";
const link = new URLSearchParams(location.hash.slice(1));
history.replaceState(null, "", location.pathname);
const at = name => document.getElementById(name);
const id = link.get("id"), token = link.get("token");
const say = text => { at("said").textContent = text; };
if (/^[1-9][0-9]*$/.test(id) && token) {
  at("form").hidden = false;
  say("");
} else {
  say("This is not the whole link. Open the one in the mail, or copy all of it.");
}
at("form").addEventListener("submit", async event => {
  event.preventDefault();
  const password = at("password").value;
  if (password !== at("again").value) {
    say("The two are not the same.");
    return;
  }
  at("button").disabled = true;
  say("");
  try {
    const answer = await fetch("/auth/password-reset/" + id, {
      method: "PATCH", credentials: "omit", headers: {"Content-Type": "application/json"}, body: JSON.stringify({token, password}),
    });
    const body = await answer.json();
    if (answer.ok) {
      at("form").remove();
      say("The password is chosen. You can sign in with it.");
      return;
    }
    const wrong = (body.errors || []).find(field => field.pointer === "/password");
    if (answer.status === 404 || answer.status === 422 && !wrong) {
      at("form").remove();
      say("This link is good no longer. Ask for another one.");
      return;
    }
    say(wrong ? "The password " + wrong.message + "." : body.detail);
  } catch {
    say("There was no answer. Try again.");
  }
  at("button").disabled = false;
});
`

// passwordPolicy lets the page's own script and style be used, what it sends go here, and nobody frame it.
var passwordPolicy = fmt.Sprintf(
	"default-src 'none'; script-src '%s'; style-src '%s'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "+
		"require-trusted-types-for 'script'",
	hashSource(passwordScript),
	hashSource(passwordStyle),
)

// hashSource names a script or a style in a Content-Security-Policy.
func hashSource(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

func (g *Gateway) password(w http.ResponseWriter, _ *http.Request) {
	header := w.Header()
	header.Set("Content-Security-Policy", passwordPolicy)
	header.Set("X-Frame-Options", "DENY")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Content-Type", "text/html; charset=utf-8")
	name := html.EscapeString(settings.SiteName.In(g.settings.Values()))
	_, _ = io.WriteString(w, passwordHead+name+"</title>\n</head>\n<body>\n  <main>\n    <h1>"+name+passwordBody)
}
