// Package secondfactor plays the people who sign in with a second factor: an authenticator app, and a browser with a security key.
package secondfactor

import (
	"crypto/hmac"
	"crypto/sha1"
	"encoding/base32"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/testkit"
)

// App is an authenticator app: it shows the codes of one authenticator.
type App struct {
	ID     int64
	Secret string // in base32
	t      testing.TB
	db     *pg.DB
}

// Authenticator is what the API returns of an authenticator.
type Authenticator struct {
	ID            int64
	Value         *string
	Verified      bool
	RecoveryCodes []string `json:"recovery_codes"`
}

// NewApp creates an authenticator for the client's account, and does not verify it. db is the identity service's database.
func NewApp(t testing.TB, db *pg.DB, c *testkit.Client) *App {
	t.Helper()
	created := testkit.Decode[Authenticator](c.Do("POST", "/auth/verify/auth", `{"method": {"id": 1}}`).Want(200))
	if created.Value == nil || created.Verified || len(created.RecoveryCodes) > 0 {
		t.Fatalf("got %+v, want an unverified app with its value and without recovery codes", created)
	}
	value, err := url.Parse(*created.Value)
	if err != nil || value.Scheme != "otpauth" || value.Host != "totp" {
		t.Fatalf("got the value %s (%v), want an otpauth://totp address", *created.Value, err)
	}
	return &App{ID: created.ID, Secret: value.Query().Get("secret"), t: t, db: db}
}

// NewVerifiedApp creates an authenticator for the client's account and verifies it. It returns the recovery codes of a first one.
func NewVerifiedApp(t testing.TB, db *pg.DB, c *testkit.Client) (*App, []string) {
	t.Helper()
	a := NewApp(t, db, c)
	a.Confirm(c)
	return a, testkit.Decode[Authenticator](c.Do("PATCH", a.Path(), `{"verified": true}`).Want(200)).RecoveryCodes
}

// Path returns the authenticator's path.
func (a *App) Path() string { return fmt.Sprintf("/auth/verify/auth/%d", a.ID) }

// Code returns the code that the app shows now. It counts although the service has seen it before, so tests need not wait for the next.
func (a *App) Code() string {
	a.t.Helper()
	testkit.Execute(a.t, a.db, "UPDATE authenticator SET step = 0 WHERE id = $1", a.ID)
	secret, err := base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(a.Secret)
	if err != nil {
		a.t.Fatalf("decode the secret of an app: %v", err)
	}
	return totp(secret, time.Now())
}

// totp returns the code of a shared secret at a time, as RFC 6238 defines it: SHA-1, six digits, steps of 30 seconds.
func totp(secret []byte, now time.Time) string {
	mac := hmac.New(sha1.New, secret)
	mac.Write(binary.BigEndian.AppendUint64(nil, uint64(now.Unix()/30)))
	sum := mac.Sum(nil)
	offset := sum[len(sum)-1] & 0xf
	return fmt.Sprintf("%06d", binary.BigEndian.Uint32(sum[offset:])&0x7fffffff%1_000_000)
}

// Confirm has the client's key confirm a code of the app.
func (a *App) Confirm(c *testkit.Client) {
	a.t.Helper()
	code := c.Do("POST", a.Path()+"/code", `{}`).Want(200).ID()
	c.Do("PATCH", fmt.Sprintf("%s/code/%d", a.Path(), code), map[string]any{"token": a.Code()}).Want(200)
}

// Login is a login that waits for a second factor.
type Login struct {
	Challenge string
	Code      struct {
		ID      int64
		Auth    Factor
		Options json.RawMessage // for a browser; nil: no security key can answer
	}
	Auths []Factor // the account's verified authenticators
}

// Factor is an authenticator as a login lists it.
type Factor struct {
	ID     int64
	Method struct{ Name string }
}

// BeginLogin sends the right password of an account with a second factor.
func BeginLogin(t testing.TB, c *testkit.Client, body string) *Login {
	t.Helper()
	response := testkit.Decode[struct {
		ID     int64
		Key    string
		Verify *Login
	}](c.WithKey("").WithT(t).Do("POST", "/auth/key", body).Want(200))
	if response.Key != "" || response.ID != 0 || response.Verify == nil || response.Verify.Challenge == "" {
		t.Fatalf("got %+v, want a challenge and no key", response)
	}
	return response.Verify
}

// Path returns the path that the login's code is confirmed at.
func (l *Login) Path() string {
	return fmt.Sprintf("/auth/verify/auth/%d/code/%d", l.Code.Auth.ID, l.Code.ID)
}

// Answer returns the body that answers the login with a token.
func (l *Login) Answer(token string) map[string]any {
	return map[string]any{"token": token, "challenge": l.Challenge}
}

// AnswerWith returns the body that answers the login with a security key's credential.
func (l *Login) AnswerWith(credential map[string]any) map[string]any {
	return map[string]any{"credential": credential, "challenge": l.Challenge}
}

// Session is the key of a session.
type Session struct {
	Name, Key string
	Owner     struct{ URL string }
}

// Complete completes the login with a token. It returns the session, and a client with its key.
func (l *Login) Complete(t testing.TB, c *testkit.Client, token string) (Session, *testkit.Client) {
	t.Helper()
	session := testkit.Decode[struct{ Key Session }](c.WithKey("").WithT(t).Do("PATCH", l.Path(), l.Answer(token)).Want(200)).Key
	if session.Key == "" || session.Name != "Session" {
		t.Fatalf("got %+v, want a session with its value", session)
	}
	return session, c.WithKey(session.Key).WithT(t)
}
