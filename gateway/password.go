package gateway

import (
	"net/http"
)

// passwordPath is the page on which a client without a panel chooses a password. The mailed link has the link's id and token in
// its fragment.
const passwordPath = "/-/password"

// passwordBody is the page after the site's name. See docsPage on templates.
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

func (g *Gateway) password(w http.ResponseWriter, _ *http.Request) {
	g.writePage(w, passwordPolicy, passwordBody)
}
