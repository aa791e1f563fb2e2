package identity_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/identity/admin"
	"github.com/ironplane/ironplane/services/identity/keys"
	"github.com/ironplane/ironplane/services/identity/openid"
	"github.com/ironplane/ironplane/services/identity/session"
)

// fakeProvider is an identity provider that signs in whomever a test names.
type fakeProvider struct {
	*httptest.Server
	t *testing.T

	mu     sync.Mutex
	key    jose.JSONWebKey
	claims map[string]any            // of the user that signs in
	codes  map[string]map[string]any // claims by code, including the PKCE challenge
}

const clientID, clientSecret, callbackURL = "ironplane", "the secret of this client", "https://api.example.com/auth/openid/callback"

func newFakeProvider(t *testing.T) *fakeProvider {
	t.Helper()
	p := &fakeProvider{t: t, codes: map[string]map[string]any{}}
	p.rotate()
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, body any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(body)
	}
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		answer(
			w,
			map[string]any{
				"issuer":                 p.URL,
				"authorization_endpoint": p.URL + "/authorize",
				"token_endpoint":         p.URL + "/token",
				"jwks_uri":               p.URL + "/keys",
				"response_types_supported": []string{
					"code",
				},
				"subject_types_supported":               []string{"public"},
				"id_token_signing_alg_values_supported": []string{"ES256", "none"},
			},
		)
	})
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, _ *http.Request) {
		p.mu.Lock()
		defer p.mu.Unlock()
		answer(w, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{p.key.Public()}})
	})
	mux.HandleFunc("GET /authorize", p.authorize)
	mux.HandleFunc("POST /token", func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		claims, exists := p.codes[r.PostFormValue("code")]
		delete(p.codes, r.PostFormValue("code"))
		key := p.key
		p.mu.Unlock()
		id, secret, _ := r.BasicAuth()
		challenge := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
		if id, _ = url.QueryUnescape(
			id,
		); !exists || id != clientID || r.PostFormValue("redirect_uri") != callbackURL ||
			claims["challenge"] != base64.RawURLEncoding.EncodeToString(challenge[:]) {
			w.WriteHeader(http.StatusBadRequest)
			answer(w, map[string]any{"error": "invalid_grant"})
			return
		}
		if status, fails := claims["fails"].(int); fails {
			w.WriteHeader(status)
			return
		}
		if secret, _ = url.QueryUnescape(secret); secret != clientSecret {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		delete(claims, "challenge")
		if otherKey, is := claims["signed by"].(jose.JSONWebKey); is {
			key = otherKey
			delete(claims, "signed by")
		}
		answer(w, map[string]any{"access_token": "x", "token_type": "Bearer", "id_token": p.sign(key, claims)})
	})
	p.Server = httptest.NewServer(mux)
	t.Cleanup(p.Close)
	return p
}

func newSigningKey(t *testing.T) jose.JSONWebKey {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return jose.JSONWebKey{Key: private, KeyID: rand.Text(), Algorithm: "ES256", Use: "sig"}
}

// rotate replaces the provider's signing key.
func (p *fakeProvider) rotate() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.key = newSigningKey(p.t)
}

func (p *fakeProvider) sign(key jose.JSONWebKey, claims map[string]any) string {
	text, err := json.Marshal(claims)
	if err != nil {
		p.t.Error(err)
	}
	if key.Key == nil { // alg: none
		return base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`)) + "." + base64.RawURLEncoding.EncodeToString(text) + "."
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key}, nil)
	if err != nil {
		p.t.Error(err)
		return ""
	}
	signed, err := signer.Sign(text)
	if err != nil {
		p.t.Error(err)
		return ""
	}
	token, err := signed.CompactSerialize()
	if err != nil {
		p.t.Error(err)
	}
	return token
}

// authorize is the provider's sign-in page. It signs the user in at once, and redirects the browser back.
func (p *fakeProvider) authorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	if q.Get("response_type") != "code" || q.Get("client_id") != clientID || q.Get("redirect_uri") != callbackURL ||
		q.Get("code_challenge_method") != "S256" ||
		q.Get("code_challenge") == "" ||
		q.Get("nonce") == "" ||
		q.Get("state") == "" ||
		!strings.Contains(q.Get("scope"), "openid") {
		p.t.Errorf("got the query %s, want a complete authorization request with the scope openid", r.URL.RawQuery)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	claims := map[string]any{
		"iss":       p.URL,
		"aud":       clientID,
		"iat":       time.Now().Unix(),
		"exp":       time.Now().Add(time.Hour).Unix(),
		"nonce":     q.Get("nonce"),
		"challenge": q.Get("code_challenge"),
	}
	maps.Copy(claims, p.claims)
	code := rand.Text()
	p.codes[code] = claims
	http.Redirect(
		w,
		r,
		q.Get("redirect_uri")+"?"+url.Values{"code": {code}, "state": {q.Get("state")}, "iss": {p.URL}}.Encode(),
		http.StatusFound,
	)
}

// visit opens the provider's sign-in page, and returns the path that the browser is redirected to.
func (p *fakeProvider) visit(page string) string {
	p.t.Helper()
	request, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, page, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	response, err := http.DefaultTransport.RoundTrip(request)
	if err != nil {
		p.t.Fatal(err)
	}
	defer response.Body.Close()
	back, err := url.Parse(response.Header.Get("Location"))
	if err != nil || response.StatusCode != http.StatusFound {
		p.t.Fatalf("the provider: got %d and the error %v, want 302 with a location", response.StatusCode, err)
	}
	return back.RequestURI()
}

// browser is a browser with the panel.
type browser struct {
	*fakeProvider
	anonymous *testkit.Client
	provider  int64
	verifier  string
}

// begin begins a sign-in, and has the provider sign in the user with these claims. It returns the path of the callback.
func (b *browser) begin(claims map[string]any) string {
	b.t.Helper()
	b.mu.Lock()
	b.claims = claims
	b.mu.Unlock()
	b.verifier = rand.Text()
	sum := sha256.Sum256([]byte(b.verifier))
	page := testkit.Decode[openid.OpenIDPage](
		b.anonymous.Do("POST", "/auth/openid", map[string]any{"provider": b.provider, "challenge": base64.RawURLEncoding.EncodeToString(sum[:])}).
			Want(200),
	)
	return b.visit(page.URL)
}

func (b *browser) exchange(code string) *testkit.Response {
	return b.anonymous.Do("POST", "/auth/sso", map[string]any{"code": code, "verifier": b.verifier})
}

// signIn signs in the user with these claims, and returns the session's key.
func (b *browser) signIn(claims map[string]any) keys.APIKey {
	b.t.Helper()
	back := b.anonymous.Do("GET", b.begin(claims), nil, "Accept", "text/html").Want(http.StatusFound)
	return testkit.Decode[keys.APIKey](b.exchange(parseLink(b.t, back.Header.Get("Location")).Get("key")).Want(200))
}

func personClaims(subject, email string, more ...any) map[string]any {
	claims := map[string]any{"sub": subject, "email": email, "email_verified": true}
	for i := 0; i < len(more); i += 2 {
		claims[more[i].(string)] = more[i+1]
	}
	return claims
}

const notSignedIn = "The identity provider's user is not an admin here."

// Admins sign in with their company's identity provider.
func TestOpenID(t *testing.T) {
	t.Parallel()
	s, c := newFixtureWith(
		t,
		service.Settings{AllowedNetworks: "127.0.0.1", APIURL: "https://api.example.com", AdminURL: "https://admin.example.com"},
	)
	s.setPanels()
	at := newFakeProvider(t)
	anna := s.newPerson("admin", "anna@corp.example")
	settings := map[string]any{
		"name":          "Corp",
		"issuer":        at.URL,
		"client_id":     clientID,
		"client_secret": clientSecret,
		"domains":       []string{"Corp.Example"},
	}
	_, some := newAdmin(t, c, "some", `{"users": {"admins": {"read": true, "write": true}}}`)
	some.Do("POST", "/auth/provider", settings).Want(403)
	created := c.Do("POST", "/auth/provider", settings).Want(200)
	provider := path("/auth/provider/%d", created.ID())
	some.Do("PATCH", provider, `{"domains": ["example.com"]}`).Want(403)
	some.Do("DELETE", provider, nil).Want(403)
	if text := c.Do("GET", provider, nil).
		Want(200).
		Text; strings.Contains(text, clientSecret) ||
		strings.Contains(created.Text, clientSecret) {
		t.Error("got the provider with its secret, want it without")
	}
	c.Do("PATCH", provider, `{"issuer": "https://elsewhere.example.com"}`).WantErrors("/client_secret", "required")
	for member, invalid := range map[string]any{
		"issuer": "ftp://x", "domains": []string{"no domain"}, "permissions": []string{"all"}, "makes_admins": true,
	} {
		body := maps.Clone(settings)
		delete(body, "domains")
		body["name"], body[member] = "Another", invalid
		if response := c.Do("POST", "/auth/provider", body); response.Status != 422 || !strings.Contains(response.Text, `"/`+member+`"`) {
			t.Errorf("%s: got %d %s, want 422 that names the member", member, response.Status, response.Text)
		}
	}
	b := &browser{fakeProvider: at, anonymous: c.WithKey(""), provider: created.ID()}
	testkit.Eventually(t, "the service knows the panel's address", func() bool { return c.Do("GET", "/auth/sso", nil).Status == 200 })
	if choices := b.anonymous.Do("GET", "/auth/openid", nil).
		Want(200).
		Text; !strings.Contains(choices, `"Corp"`) ||
		strings.Contains(choices, at.URL) {
		t.Errorf("got the choices %s, want Corp without its address", choices)
	}

	// An admin is found by a verified address in a listed domain, and from then on by the subject.
	for _, claims := range []map[string]any{
		personClaims("anna", "anna@corp.example", "email_verified", false), personClaims("anna", "anna@corp.example", "email_verified", "false"),
		personClaims("anna", "anna@other.example"), personClaims("ben", "ben@corp.example"), {"sub": "anna"},
	} {
		b.anonymous.Do("GET", b.begin(claims), nil).WantDetail(401, notSignedIn)
	}
	key := b.signIn(personClaims("anna", "Anna@corp.example"))
	signedIn := c.WithKey(key.Key)
	if key.Owner.ID != anna || key.Name != "Session" {
		t.Errorf("got %+v, want a session of admin %d", key, anna)
	}
	signedIn.Do("POST", "/auth/key", `{"name": "lasting"}`).Want(200) // a login's session may create lasting keys
	if key := b.signIn(map[string]any{"sub": "anna"}); key.Owner.ID != anna {
		t.Errorf("got %+v, want a key of admin %d", key, anna)
	}
	b.anonymous.Do("GET", b.begin(personClaims("another anna", "anna@corp.example")), nil).WantDetail(401, notSignedIn)

	// Tokens that prove nothing.
	for name, claims := range map[string]map[string]any{
		"another audience": {"aud": "another"}, "another party": {"aud": []string{clientID, "another"}, "azp": "another"},
		"no party": {"aud": []string{clientID, "another"}}, "another issuer": {"iss": "https://elsewhere.example.com"},
		"another sign-in": {"nonce": "x"}, "no nonce": {"nonce": ""}, "expired": {"exp": time.Now().Add(-time.Minute).Unix()},
		"another key": {"signed by": newSigningKey(t)}, "no key": {"signed by": jose.JSONWebKey{}}, "no subject": {"sub": ""},
	} {
		all := personClaims("anna", "anna@corp.example")
		maps.Copy(all, claims)
		if response := b.anonymous.Do("GET", b.begin(all), nil); response.Status != 401 || !strings.Contains(response.Text, notSignedIn) {
			t.Errorf("%s: got %d %s, want 401 and %q", name, response.Status, response.Text, notSignedIn)
		}
	}
	for _, status := range []int{429, 500, 502} {
		b.anonymous.Do("GET", b.begin(personClaims("anna", "", "fails", status)), nil).Want(503)
	}
	back := b.begin(personClaims("anna", ""))
	b.anonymous.Do("GET", strings.Replace(back, "iss=http", "iss=https", 1), nil).WantDetail(401, notSignedIn)
	b.anonymous.Do("GET", back, nil).Want(401) // the sign-in is completed
	b.anonymous.Do("GET", "/auth/openid/callback?state=unknown&code=x", nil).Want(401)
	b.anonymous.Do("GET", "/auth/openid/callback", nil).Want(401)
	denied := b.begin(personClaims("anna", ""))
	b.anonymous.Do("GET", denied[:strings.Index(denied, "?")]+"?error=access_denied&state="+queryOf(t, denied).Get("state"), nil).
		WantDetail(401, notSignedIn)

	// The provider's keys change.
	at.rotate()
	if key := b.signIn(personClaims("anna", "")); key.Owner.ID != anna {
		t.Errorf("with the provider's new key: got %+v, want a key of admin %d", key, anna)
	}

	// The code is useless without the verifier.
	code := parseLink(
		t,
		testkit.Decode[session.SSOLink](b.anonymous.Do("GET", b.begin(personClaims("anna", "")), nil).Want(200)).URL,
	).Get("key")
	b.anonymous.Do("POST", "/auth/sso", exchangeBody(code)).Want(401)
	b.anonymous.Do("POST", "/auth/sso", map[string]any{"code": code, "verifier": "another"}).Want(401)
	b.exchange(code).Want(200)
	b.exchange(code).Want(401)

	// Many sign-ins from one network end that network's oldest ones, and no others.
	flood := func(from string, n int) {
		testkit.Execute(t, s.DB, `INSERT INTO openid_login (provider_id, hash, challenge, nonce, network, expires_at)
			SELECT $1, sha256(($2 || n)::bytea), sha256('x'), 'x', $2::cidr, now() + interval '10 minutes' FROM generate_series(1, $3::int) n`, b.provider, from, n)
	}
	flood("192.0.2.7/32", 10_000)
	flood("198.51.100.7/32", 1)
	b.signIn(personClaims("anna", ""))
	var local, elsewhere int
	if err := s.DB.QueryRow(t.Context(), "SELECT count(*) FILTER (WHERE network = '192.0.2.7'), count(*) FILTER (WHERE network = "+
		"'198.51.100.7') FROM openid_login").
		Scan(&local, &elsewhere); err != nil ||
		local != 99 ||
		elsewhere != 1 {
		t.Errorf("got %d sign-ins of this address, %d of another one and the error %v, want 99 and 1", local, elsewhere, err)
	}

	// Of many concurrent requests, each step works once.
	back = b.begin(personClaims("anna", ""))
	var link atomic.Pointer[testkit.Response]
	once(t, "a callback", func() int {
		response := b.anonymous.Do("GET", back, nil)
		if response.Status == 200 {
			link.Store(response)
		}
		return response.Status
	})
	code = parseLink(t, testkit.Decode[session.SSOLink](link.Load()).URL).Get("key")
	once(t, "a code", func() int { return b.exchange(code).Status })

	// A user becomes an admin.
	c.Do("PATCH", provider, `{"makes_admins": true, "permissions": ["network.groups read"]}`).Want(200)
	b.anonymous.Do("GET", b.begin(personClaims("eve", "eve@other.example")), nil).WantDetail(401, notSignedIn)
	ben := b.signIn(personClaims("ben", "ben@corp.example"))
	c.WithKey(ben.Key).Do("GET", "/-/holds/network.groups", nil).Want(200)
	c.WithKey(ben.Key).Do("GET", "/-/holds/network.switches", nil).Want(403)
	if record := testkit.Decode[admin.Admin](
		c.Do("GET", ben.Owner.URL, nil).Want(200),
	); record.Email != "ben@corp.example" ||
		record.Username != "ben" {
		t.Errorf("got %+v, want the admin ben with ben@corp.example", record)
	}
	b.anonymous.Do("POST", "/auth/key", loginBody("admin", "ben@corp.example", "")).Want(401)

	// A disabled admin, and a disabled provider.
	c.Do("PATCH", ben.Owner.URL, disable).Want(200)
	code = parseLink(t, testkit.Decode[session.SSOLink](b.anonymous.Do("GET", b.begin(personClaims("ben", "")), nil).Want(200)).URL).Get("key")
	b.exchange(code).Want(401)
	back = b.begin(personClaims("anna", ""))
	c.Do("PATCH", provider, disable).Want(200)
	b.anonymous.Do("GET", back, nil).Want(401)
	b.anonymous.Do("POST", "/auth/openid", map[string]any{"provider": b.provider, "challenge": "47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU"}).
		WantErrors("/provider", "not_found")
}

func queryOf(t *testing.T, path string) url.Values {
	t.Helper()
	at, err := url.Parse(path)
	if err != nil {
		t.Fatal(err)
	}
	return at.Query()
}

// once sends 32 concurrent requests. One has to succeed, and the others to return 401.
func once(t *testing.T, name string, try func() int) {
	t.Helper()
	var done atomic.Int32
	var all sync.WaitGroup
	for range 32 {
		all.Go(func() {
			switch status := try(); status {
			case 200:
				done.Add(1)
			case 401:
			default:
				t.Errorf("%s: got %d, want 200 or 401", name, status)
			}
		})
	}
	all.Wait()
	if done.Load() != 1 {
		t.Fatalf("%s: got %d successes, want 1", name, done.Load())
	}
}
