package gateway

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/ironplane/ironplane/gateway/cookie"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/settings"
)

// caller is what a request says about who sent it.
type caller struct {
	key       string
	hasSecret bool           // the request has a credential in any form
	session   cookie.Session // of the console; the zero Session: none
	isConsole bool           // key is the session's
	isSecure  bool           // the page that sent the request came by https
	refusal   error          // the reason why the request's credentials cannot be used
}

// identify takes the credentials out of a request, so that they reach neither a service nor a log. The console's cookie counts for
// paths of services and for the session itself. The request must have the console's header, come from the console's own origin, and
// have no other credential.
func (g *Gateway) identify(r *http.Request, e *recorder) (c caller) {
	isTLS := !g.isPlainHTTP(r)
	values := g.settings.Values()
	c.key, c.hasSecret = extractCredentials(r, settings.KeyInQuery.In(values) == 1)
	c.isSecure = isTLS || strings.HasPrefix(r.Header.Get("Origin"), "https://")
	isSessionPath := e.route == cookie.SessionPath
	switch {
	case !g.config.Console.isOn(), !isSessionPath && (e.service == principal.Gateway || e.service == ""):
		r.Header.Del("Cookie")
		return c
	case !cookie.IsConsole(r):
		if isSessionPath {
			c.refusal = problem.New(problem.Forbidden, "Send the header %s: 1.", cookie.ConsoleHeader)
		}
		r.Header.Del("Cookie")
		return c
	}
	c.session, c.refusal = cookie.ReadSession(r, isTLS)
	hasCookie := c.refusal != nil || c.session.Key != ""
	if !isSessionPath {
		r.Header.Del("Cookie")
		if !hasCookie {
			return c
		}
	}
	if err := cookie.CheckOrigin(r, isTLS, settings.APIURL.In(values)); err != nil {
		c.refusal = err
	}
	if c.hasSecret && c.refusal == nil {
		c.refusal = problem.New(problem.BadRequest, "The request has a key beside the console's session. Send only one of them.")
	}
	c.hasSecret = c.hasSecret || hasCookie
	c.isConsole, c.key = true, c.session.Key
	if c.refusal != nil || isSessionPath && r.Method == http.MethodPost { // a sign-in needs no key, and a revoked one must not stop it
		c.key = ""
	}
	return c
}

// checkKeyRequest refuses a request for a session's key that the console's page sends with its cookie: no script gets to read
// such a key. Named keys are for other programs, and a person copies them.
func checkKeyRequest(r *http.Request) error {
	if r.Method != http.MethodPost || strings.TrimRight(r.URL.Path, "/") != "/auth/key" {
		return nil
	}
	var members struct{ Name, Password json.RawMessage }
	if body, ok := r.Body.(*bufferedBody); ok {
		text := make([]byte, body.content.Len())
		_, _ = body.content.ReadAt(text, 0) // it reads from memory
		_ = json.Unmarshal(text, &members)  // what cannot be read has no name
	}
	var name string
	if err := json.Unmarshal(members.Name, &name); err == nil && strings.TrimSpace(name) != "" && members.Password == nil {
		return nil
	}
	return problem.New(
		problem.Forbidden,
		"The console creates only keys with a name. Its sessions begin and are renewed at %s.",
		cookie.SessionPath,
	)
}
