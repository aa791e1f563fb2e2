package product_test

import (
	"encoding/base64"
	"net/http"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/deploy/internal/product/producttest"
	"github.com/ironplane/ironplane/pkg/auth/lockout"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/pkg/testkit/secondfactor"
	"github.com/ironplane/ironplane/services/identity"
	"github.com/ironplane/ironplane/services/identity/keys"
	"github.com/ironplane/ironplane/services/identity/mfa"
	"github.com/ironplane/ironplane/services/identity/session"
)

const sessionPath = "/-/console/session"

// browser is a browser at the console's page. It keeps cookies as browsers do.
type browser struct {
	t       *testing.T
	c       *testkit.Client
	cookies map[string]*http.Cookie
}

func newBrowser(t *testing.T, c *testkit.Client) *browser {
	return &browser{t, c.WithKey("").WithT(t), map[string]*http.Cookie{}}
}

// do sends a request by fetch, and fails the test if a script could read a key or a device in the response.
func (b *browser) do(method, path string, body any, headers ...string) *testkit.Response {
	b.t.Helper()
	var sent []string
	for _, c := range b.cookies {
		if strings.HasPrefix(path, c.Path) {
			sent = append(sent, c.Name+"="+c.Value)
		}
	}
	headers = append([]string{"X-Ironplane-Console", "1", "Sec-Fetch-Site", "same-origin", "Cookie", strings.Join(sent, "; ")}, headers...)
	if method != http.MethodGet {
		headers = append(headers, "Origin", b.c.URL)
	}
	response := b.c.Do(method, path, body, headers...)
	for _, c := range (&http.Response{Header: response.Header}).Cookies() {
		if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Domain != "" || c.Secure {
			b.t.Errorf("got the cookie %s, want HttpOnly, SameSite=Strict, no domain and, over plain HTTP, not Secure", c.Name)
		}
		if b.cookies[c.Name] = c; c.MaxAge < 0 {
			delete(b.cookies, c.Name)
		}
	}
	if strings.HasPrefix(path, sessionPath) && (strings.Contains(response.Text, `"key":`) || strings.Contains(response.Text, `"device":`)) {
		b.t.Errorf("%s %s: got %s, want neither a key nor a device", method, path, response.Text)
	}
	return response
}

// key returns the key in the session's cookie, which no script can read.
func (b *browser) key() string {
	b.t.Helper()
	c := b.cookies["ironplane-session"]
	if c == nil {
		b.t.Fatal("got no cookie of a session, want one")
	}
	value, _, _ := strings.Cut(c.Value, ".")
	key, err := base64.RawURLEncoding.DecodeString(value)
	if err != nil {
		b.t.Fatal(err)
	}
	return string(key)
}

// A login begins a session in a cookie. Its view is that of the key; it is renewed, ends, and leaves the device behind.
func TestConsoleSession(t *testing.T) {
	t.Parallel()
	_, c := producttest.Shared(t)
	admin := newPerson(t, c, "admin", "console@example.com")
	c.Do("PATCH", path("/admin/%d/permission", admin), `{"network": {"groups": {"read": true, "write": true}}}`).Want(200)
	login := loginOf("admin", "console@example.com", password)
	b := newBrowser(t, c)
	b.do("GET", sessionPath, nil).Want(401)
	b.do("POST", sessionPath, loginOf("admin", "console@example.com", "wrong")).Want(401)
	if len(b.cookies) != 0 {
		t.Errorf("got %v after a wrong password, want no cookie", b.cookies)
	}
	began := b.do("POST", sessionPath, login).Want(200)
	first := b.key()
	if view := c.WithKey(first).Do("GET", "/auth/key/current", nil).Want(200); began.Text != view.Text ||
		b.do("GET", sessionPath, nil).Want(200).Text != view.Text {
		t.Errorf("got the session %s, want the view of its key: %s", began.Text, view.Text)
	}
	group := b.do("POST", "/group", `{"name": "console"}`).Want(200).ID()
	b.do("DELETE", path("/group/%d", group), nil).Want(200)
	created := testkit.Decode[keys.APIKey](b.do("POST", "/auth/key", `{"name": "billing"}`).Want(200))
	c.WithKey(created.Key).Do("DELETE", "/auth/key/current", nil).Want(200)

	// A renewal changes the value; the session stays.
	b.do("PATCH", sessionPath, nil).Want(200)
	if b.key() == first {
		t.Error("got the same value after a renewal, want another one")
	}
	if got := b.do("GET", sessionPath, nil).Want(200).ID(); got != began.ID() {
		t.Errorf("got session %d after a renewal, want %d", got, began.ID())
	}

	// A key that an attacker has planted is replaced by the sign-in.
	planted := b.key()
	b.do("POST", sessionPath, login).Want(200)
	last := b.key()
	if last == planted || last == first {
		t.Error("got the planted key after a sign-in, want a new one")
	}
	c.WithKey(planted).Do("DELETE", "/auth/key/current", nil).Want(200)
	b.do("GET", sessionPath, nil).Want(200)

	b.do("DELETE", sessionPath, nil).Want(200)
	testkit.Eventually(t, "the key is refused", func() bool { return c.WithKey(last).Do("GET", "/auth/session", nil).Status == 401 })
	b.do("GET", sessionPath, nil).Want(401)
	b.do("DELETE", sessionPath, nil).Want(200)

	// The browser is a known device: guesses of others do not lock it out.
	for range lockout.MaxPerNameAndAddress {
		c.WithKey("").Do("POST", "/auth/key", loginOf("admin", "console@example.com", "wrong")).Want(401)
	}
	newBrowser(t, c).do("POST", sessionPath, login).Want(429)
	b.do("POST", sessionPath, login).Want(200)
}

// A pasted key is forgotten at the end, and works on. A key that cannot be used from here begins no session.
func TestConsoleSessionOfAKey(t *testing.T) {
	t.Parallel()
	_, c := producttest.Shared(t)
	key := testkit.Decode[keys.APIKey](c.Do("POST", "/auth/key", `{"name": "pasted"}`).Want(200))
	b := newBrowser(t, c)
	if got := b.do("POST", sessionPath, map[string]string{"key": key.Key}).Want(200).ID(); got != key.ID {
		t.Errorf("got the view of key %d, want %d", got, key.ID)
	}
	b.do("PATCH", sessionPath, nil).Want(200)
	b.do("GET", "/group", nil).Want(200)
	b.do("DELETE", sessionPath, nil).Want(200)
	b.do("GET", "/group", nil).Want(401)
	c.WithKey(key.Key).Do("GET", "/auth/key/current", nil).Want(200)

	elsewhere := testkit.Decode[keys.APIKey](c.Do("POST", "/auth/key", `{"name": "elsewhere", "allowed_cidrs": ["192.0.2.0/24"]}`).Want(200))
	b.do("POST", sessionPath, map[string]string{"key": elsewhere.Key}).Want(403)
	b.do("POST", sessionPath, map[string]string{"key": key.Key + "x"}).Want(401)
	c.Do("DELETE", path("/auth/key/%d", key.ID), nil).Want(200)
	b.do("POST", sessionPath, map[string]string{"key": key.Key}).Want(401)
	if len(b.cookies) != 0 {
		t.Errorf("got %v, want no cookie", b.cookies)
	}
	for body, pointer := range map[string]string{
		`{}`: "/key", `{"key": 7}`: "/key", `{"key": "x", "password": "y"}`: "/key", `{"challenge": "x", "token": "1"}`: "/auth",
		`{"owner": {"url": "/client/5"}, "name": "x"}`: "/owner",
	} {
		code := "invalid"
		if body == `{}` {
			code = "required"
		}
		b.do("POST", sessionPath, body).WantErrors(pointer, code)
	}
	b.do("POST", sessionPath, `{"owner": {"url": "/client/5"}}`).Want(401)
	b.do("POST", sessionPath, `[]`).Want(400)
	b.do("POST", sessionPath, `{"key": "`+strings.Repeat("x", 70_000)+`"}`).Want(413)
	b.do("PUT", sessionPath, nil).Want(405)
}

// Pages of other sites cannot sign a browser in or out, and forms cannot either.
func TestConsoleSessionFromElsewhere(t *testing.T) {
	t.Parallel()
	_, c := producttest.Shared(t)
	key := testkit.Decode[keys.APIKey](c.Do("POST", "/auth/key", `{"name": "victim"}`).Want(200))
	b := newBrowser(t, c)
	b.do("POST", sessionPath, map[string]string{"key": key.Key}).Want(200)
	body := map[string]string{"key": c.Key}
	for name, headers := range map[string][]string{
		"another site":       {"Sec-Fetch-Site", "cross-site"},
		"another port":       {"Sec-Fetch-Site", "same-site"},
		"an old browser":     {"Sec-Fetch-Site", "same-origin", "X-Ironplane-Console", ""},
		"a form":             {"X-Ironplane-Console", "", "Content-Type", "text/plain"},
		"a form with header": {"Content-Type", "application/x-www-form-urlencoded"},
	} {
		for _, method := range []string{"POST", "DELETE", "PATCH"} {
			if name == "a form with header" && method != "POST" {
				continue
			}
			if got := b.do(method, sessionPath, body, headers...); got.Status != 403 && got.Status != 415 {
				t.Errorf("%s, %s: got %d, want 403 or 415", name, method, got.Status)
			}
		}
	}
	if got := b.do("GET", sessionPath, nil).Want(200).ID(); got != key.ID {
		t.Errorf("got the session of key %d, want that of %d", got, key.ID)
	}
}

// A login with a second factor answers its challenge as the API does, and the code begins the session.
func TestConsoleSecondFactor(t *testing.T) {
	t.Parallel()
	p, c := producttest.Shared(t)
	newPerson(t, c, "client", "console-factor@example.com")
	login := loginOf("client", "console-factor@example.com", password)
	_, own := signIn(t, c, login)
	app, _ := secondfactor.NewVerifiedApp(t, p.Databases[identity.Name], own)
	b := newBrowser(t, c)
	asked := testkit.Decode[struct{ Verify *mfa.LoginVerify }](b.do("POST", sessionPath, login).Want(200)).Verify
	if asked == nil || asked.Code.Auth.ID != app.ID || len(b.cookies) != 0 {
		t.Fatalf("got %+v and the cookies %v, want a challenge of authenticator %d and no cookie", asked, b.cookies, app.ID)
	}
	answer := func(token string) *testkit.Response {
		return b.do("POST", sessionPath, map[string]any{"challenge": asked.Challenge, "auth": app.ID, "token": token})
	}
	answer("000000").WantErrors("/token", "wrong")
	answer(app.Code()).Want(200)
	b.do("GET", "/entity", nil).Want(200)
	if b.cookies["ironplane-device-client"] == nil {
		t.Errorf("got the cookies %v, want the device's among them", b.cookies)
	}
}

// A link's code begins a session once. An admin acts for a client, and returns to its own session.
func TestConsoleLinksAndActing(t *testing.T) {
	t.Parallel()
	_, c := producttest.Shared(t)
	client := newPerson(t, c, "client", "console-acting@example.com")
	admin := newPerson(t, c, "admin", "console-actor@example.com")
	c.Do("PATCH", path("/admin/%d/permission", admin), `{"users": {"clients": {"read": true, "write": true}}}`).Want(200)
	b := newBrowser(t, c)
	b.do("POST", sessionPath, loginOf("admin", "console-actor@example.com", password)).Want(200)
	link := testkit.Decode[session.SSOLink](b.do("GET", "/auth/sso", nil).Want(200))
	_, code, _ := strings.Cut(link.URL, "#key=")
	other := newBrowser(t, c)
	other.do("POST", sessionPath, map[string]string{"sso": code}).Want(200)
	other.do("GET", "/client", nil).Want(200)
	other.do("POST", sessionPath, map[string]string{"sso": code}).Want(401)

	own := b.do("GET", sessionPath, nil).Want(200).Text
	b.do("POST", sessionPath, map[string]any{"owner": map[string]any{"url": "/client/999999"}}).WantErrors("/owner/url", "not_found")
	b.do("POST", sessionPath, map[string]any{"owner": map[string]any{"url": path("/client/%d", client)}}).Want(200)
	acting := b.key()
	if got := b.do("GET", sessionPath, nil).Want(200).Text; !strings.Contains(got, path("/client/%d", client)) {
		t.Errorf("got %s, want a key of client %d", got, client)
	}
	b.do("PATCH", sessionPath, nil).Want(200)
	b.do("DELETE", sessionPath, nil).Want(200)
	testkit.Eventually(t, "the key is refused", func() bool { return c.WithKey(acting).Do("GET", "/auth/session", nil).Status == 401 })
	if got := b.do("GET", sessionPath, nil).Want(200).Text; got != own {
		t.Errorf("got the session %s after acting, want %s", got, own)
	}
	b.do("DELETE", sessionPath, nil).Want(200)
	b.do("GET", sessionPath, nil).Want(401)
}
