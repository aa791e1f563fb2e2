package browser

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// provider is a small identity provider with one user. It speaks OpenID Connect: discovery, code flow with PKCE, and tokens that it
// signs.
type provider struct {
	*httptest.Server
	key *ecdsa.PrivateKey

	mu    sync.Mutex
	codes map[string]url.Values // the authorization request of each code
}

const clientID, clientSecret, userEmail = "ironplane", "the secret of this client", "anna@corp.example"

func encode(text []byte) string { return base64.RawURLEncoding.EncodeToString(text) }

func startProvider(t *testing.T) *provider {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	public, err := key.PublicKey.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	p := &provider{key: key, codes: map[string]url.Values{}}
	answer := func(w http.ResponseWriter, body any) {
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(body); err != nil {
			t.Errorf("answer of the provider: %v", err)
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]any{
			"issuer": p.URL, "authorization_endpoint": p.URL + "/authorize", "token_endpoint": p.URL + "/token", "jwks_uri": p.URL + "/keys",
			"response_types_supported": []string{"code"}, "subject_types_supported": []string{"public"},
			"id_token_signing_alg_values_supported": []string{"ES256"},
		})
	})
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]any{"keys": []any{map[string]string{
			"kty": "EC", "crv": "P-256", "kid": "1", "alg": "ES256", "use": "sig", "x": encode(public[1:33]), "y": encode(public[33:]),
		}}})
	})
	mux.HandleFunc("GET /authorize", func(w http.ResponseWriter, r *http.Request) {
		code, q := rand.Text(), r.URL.Query()
		p.mu.Lock()
		p.codes[code] = q
		p.mu.Unlock()
		back := url.Values{"code": {code}, "state": {q.Get("state")}, "iss": {p.URL}}
		http.Redirect(w, r, q.Get("redirect_uri")+"?"+back.Encode(), http.StatusFound)
	})
	mux.HandleFunc("POST /token", func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		asked := p.codes[r.PostFormValue("code")]
		delete(p.codes, r.PostFormValue("code"))
		p.mu.Unlock()
		id, secret, _ := r.BasicAuth()
		secret, _ = url.QueryUnescape(secret)
		challenge := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
		if asked == nil || id != clientID || secret != clientSecret || asked.Get("code_challenge") != encode(challenge[:]) ||
			asked.Get("redirect_uri") != r.PostFormValue("redirect_uri") {
			w.WriteHeader(http.StatusBadRequest)
			answer(w, map[string]string{"error": "invalid_grant"})
			return
		}
		answer(w, map[string]any{"access_token": "x", "token_type": "Bearer", "id_token": p.sign(t, map[string]any{
			"iss": p.URL, "aud": clientID, "iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix(), "nonce": asked.Get("nonce"),
			"sub": "anna", "email": userEmail, "email_verified": true,
		})})
	})
	p.Server = httptest.NewServer(mux)
	t.Cleanup(p.Close)
	return p
}

// sign returns a token with these claims.
func (p *provider) sign(t *testing.T, claims map[string]any) string {
	text, err := json.Marshal(claims)
	if err != nil {
		t.Errorf("claims of the provider: %v", err)
	}
	token := encode([]byte(`{"alg":"ES256","kid":"1"}`)) + "." + encode(text)
	sum := sha256.Sum256([]byte(token))
	r, s, err := ecdsa.Sign(rand.Reader, p.key, sum[:])
	if err != nil {
		t.Errorf("signature of the provider: %v", err)
		return ""
	}
	return token + "." + encode(append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...))
}

// TestConsoleOpenID signs in an admin with an identity provider. The page that was asked for follows, and nobody else can use the code
// of another browser.
func TestConsoleOpenID(t *testing.T) {
	t.Parallel()
	at := startProvider(t)
	c := openConsole(t)
	c.site.admin.Do("POST", "/admin", map[string]any{"username": "anna", "email": userEmail, "password": password}).Want(200)
	c.site.admin.Do("PATCH", "/admin/2/permission", `{"network": {"entities": {"read": true}}}`).Want(200)
	c.site.admin.Do("POST", "/auth/provider", map[string]any{
		"name": "Corp", "issuer": at.URL, "client_id": clientID, "client_secret": clientSecret, "domains": []string{"corp.example"},
	}).Want(200)
	c.do(chromedp.Navigate(c.site.url + "/-/console/entity?sort=-id"))
	c.press("Sign in with Corp")
	c.awaitText("No IP entities yet.")
	if address := get(c.window, chromedp.Location()); address != c.site.url+"/-/console/entity?sort=-id" {
		t.Errorf("got the address %s after the sign-in, want the page that was asked for", address)
	}
	c.await("anna is signed in", `document.querySelector(".user").textContent.includes("anna")`)
	kept, failed := run[bool](c.window, `() => JSON.stringify({...sessionStorage}).includes("verifier")`)
	if kept || failed != "" {
		t.Errorf("got the verifier in the tab's storage (%s), want it used", failed)
	}
	for _, e := range get(c.window, chromedp.NavigationEntries()).Entries {
		if strings.Contains(e.URL, "#key=") {
			t.Errorf("got the code in the history: %s", e.URL)
		}
	}

	// A code without this tab's verifier signs nobody in.
	c.signOut("anna")
	c.press("Sign in with Corp")
	c.await("anna is signed in again", `document.querySelector(".user")?.textContent.includes("anna")`)
	c.signOut("anna")
	if _, failed := run[bool](c.window, `() => {
		const keep = Storage.prototype.setItem;
		Storage.prototype.setItem = function (name, value) { if (this !== sessionStorage) keep.call(this, name, value); };
		return true;
	}`); failed != "" {
		t.Fatal(failed)
	}
	c.press("Sign in with Corp")
	c.await("the code is refused", `document.querySelector("[role=alert]")`)
	c.do(chromedp.Navigate(c.site.url + "/-/console/entity"))
	c.awaitText("User name or email address")
}
