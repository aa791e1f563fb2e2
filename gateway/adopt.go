package gateway

import (
	"net/http"
)

// adoptPath is the page on which a client without a panel confirms that an integration adopts it. The mailed link has the client's
// id and the code in its fragment.
const adoptPath = "/-/adopt"

// adoptBody is the page after the site's name. Only a click sends the code, because programs that scan mails open their links.
const adoptBody = `</h1>
    <form id="form" hidden>
      <p>Do you agree that the company that sent you the mail manages your account?</p>
      <button id="button">I agree</button>
    </form>
    <p id="message" role="status" aria-live="polite">This page needs JavaScript.</p>
  </main>
  <script>` + adoptScript + `</script>
</body>
</html>
`

// adoptScript removes the code from the address, so that it stays in no history, and sends it after a click.
const adoptScript = `"use strict";
const link = new URLSearchParams(location.hash.slice(1));
history.replaceState(null, "", location.pathname);
const element = name => document.getElementById(name);
const client = link.get("client"), code = link.get("code");
const show = text => { element("message").textContent = text; };
if (/^[1-9][0-9]*$/.test(client) && code) {
  element("form").hidden = false;
  show("");
} else {
  show("The link is incomplete. Open the link in the mail, or copy all of it.");
}
element("form").addEventListener("submit", async event => {
  event.preventDefault();
  element("button").disabled = true;
  show("");
  try {
    const response = await fetch("/client/" + client + "/adopt", {
      method: "PATCH", credentials: "omit", headers: {"Content-Type": "application/json"}, body: JSON.stringify({code}),
    });
    const body = await response.json();
    if (response.ok || response.status === 404) {
      element("form").remove();
      show(response.ok ? body.message : "The link has expired, or was used.");
      return;
    }
    show(body.detail);
  } catch {
    show("The server did not respond. Try again.");
  }
  element("button").disabled = false;
});
`

// adoptPolicy allows the page's own script and style, and requests to this origin.
var adoptPolicy = pagePolicy(adoptScript)

func (g *Gateway) adopt(w http.ResponseWriter, _ *http.Request) {
	g.writePage(w, adoptPolicy, adoptBody)
}
