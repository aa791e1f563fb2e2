package license

import (
	"crypto/ed25519"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

func newKey(t *testing.T) ed25519.PrivateKey {
	t.Helper()
	key, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func sign(t *testing.T, key ed25519.PrivateKey, from, until time.Duration) string {
	t.Helper()
	now := time.Now()
	text, err := Sign(
		Terms{
			RegisteredClaims: jwt.RegisteredClaims{NotBefore: jwt.NewNumericDate(now.Add(from)), ExpiresAt: jwt.NewNumericDate(now.Add(until))},
			Enterprise:       true,
		},
		key,
	)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestCheck(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	signer, other := key.Public().(ed25519.PublicKey), newKey(t)
	good := sign(t, key, -time.Hour, time.Hour)
	head, rest, _ := strings.Cut(good, ".")
	claims, signature, _ := strings.Cut(rest, ".")
	forged := base64.RawURLEncoding.EncodeToString([]byte(`{"enterprise":true}`))
	encode := base64.RawURLEncoding.EncodeToString
	hmac, err := jwt.NewWithClaims(jwt.SigningMethodHS256, Terms{Enterprise: true}).SignedString([]byte(signer)) // the public key as a secret
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ text, state string }{
		"good":                                {good, Valid},
		"none":                                {"", None},
		"expired":                             {sign(t, key, -2*time.Hour, -time.Hour), Expired},
		"expired within the clock skew":       {sign(t, key, -2*time.Hour, -clockSkew/2), Valid},
		"not yet valid":                       {sign(t, key, time.Hour, 2*time.Hour), NotYet},
		"not yet valid within the clock skew": {sign(t, key, clockSkew/2, time.Hour), Valid},
		"another signer":                      {sign(t, other, -time.Hour, time.Hour), BadSignature},
		"another signer, and expired":         {sign(t, other, -2*time.Hour, -time.Hour), BadSignature},
		"altered":                             {head + "." + forged + "." + signature, BadSignature},
		"unsigned":                            {encode([]byte(`{"alg":"none"}`)) + "." + claims + ".", BadSignature},
		"another algorithm":                   {hmac, BadSignature},
		"no token":                            {"nothing", BadSignature},
	} {
		terms, state := Check(c.text, signer)
		if state != c.state || terms.Enterprise != (c.state == Valid || c.state == Expired || c.state == NotYet) {
			t.Errorf("%s: got %s, %+v, want %s", name, state, terms, c.state)
		}
	}
	private, err := ParseKey(EncodeKey(key.Seed()))
	if err != nil || !private.Equal(key) {
		t.Errorf("got another key or %v, want the same key", err)
	}
	if public, err := ParseSigner(EncodeKey(signer)); err != nil || !public.Equal(signer) {
		t.Errorf("got another public key or %v, want the same key", err)
	}
	for _, invalid := range []string{"", "?", EncodeKey(key)} {
		if _, err := ParseSigner(invalid); err == nil {
			t.Errorf("got %q accepted as a key, want an error", invalid)
		}
	}
}

// A license is read from a file or a URL. Other content is refused.
func TestRead(t *testing.T) {
	good := sign(t, newKey(t), 0, time.Hour)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/good":
			_, _ = w.Write([]byte(good + "\n"))
		case "/page":
			_, _ = w.Write([]byte("<html>"))
		case "/long":
			_, _ = w.Write([]byte(strings.Repeat(" ", maxBytes) + good))
		case "/away":
			http.Redirect(w, r, "/good", http.StatusFound)
		default:
			http.NotFound(w, r)
		}
	}))
	defer server.Close()
	client.Transport = server.Client().Transport
	defer func() { client.Transport = nil }()
	file := filepath.Join(t.TempDir(), "license")
	if err := os.WriteFile(file, []byte(good), 0o600); err != nil {
		t.Fatal(err)
	}
	for source, want := range map[string]string{
		"": "", file: good, server.URL + "/good": good,
		server.URL + "/page": "error", server.URL + "/long": "error", server.URL + "/away": "error", server.URL + "/none": "error",
		file + ".none": "error", "https://127.0.0.1:1/": "error",
	} {
		text, err := Source(source).Read(t.Context())
		if (err != nil) != (want == "error") || err == nil && text != want {
			t.Errorf("%q: got %q, %v, want %q", source, text, err, want)
		}
	}
	if Source("http://example.com/license").Check() == nil {
		t.Error("got a source by plain HTTP accepted, want an error")
	}
}
