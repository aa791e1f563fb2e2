package system_test

import (
	"crypto/ed25519"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/system"
	"github.com/ironplane/ironplane/services/system/license"
)

// licenses signs licenses and writes them to the file that the installation reads.
type licenses struct {
	t    *testing.T
	key  ed25519.PrivateKey
	file string
}

func newLicenses(t *testing.T) (*licenses, service.Settings) {
	t.Helper()
	key, err := license.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	l := &licenses{t, key, filepath.Join(t.TempDir(), "license")}
	l.write(true, time.Hour)
	return l, service.Settings{License: l.file, LicenseSigner: license.EncodeKey(key.Public().(ed25519.PublicKey))}
}

func (l *licenses) write(enterprise bool, life time.Duration) string {
	l.t.Helper()
	text, err := license.Sign(
		license.Terms{Enterprise: enterprise, RegisteredClaims: jwt.RegisteredClaims{ExpiresAt: jwt.NewNumericDate(time.Now().Add(life))}},
		l.key,
	)
	if err != nil {
		l.t.Fatal(err)
	}
	l.put(text)
	return text
}

func (l *licenses) put(text string) {
	l.t.Helper()
	if err := os.WriteFile(l.file, []byte(text), 0o600); err != nil {
		l.t.Fatal(err)
	}
}

func TestLicense(t *testing.T) {
	t.Parallel()
	l, settings := newLicenses(t)
	c := testkit.Run(t, system.Definition, testkit.ServiceOptions{Settings: settings})
	want := func(answer *testkit.Response, state string, active, enterprise bool) system.License {
		t.Helper()
		is := testkit.Decode[system.License](answer.Want(200))
		if is.State != state || is.IsActive != active || is.HasEnterprise != enterprise {
			t.Errorf("got %+v, want state %s, active %t, enterprise %t", is, state, active, enterprise)
		}
		return is
	}
	view := func() *testkit.Response { return c.Do("GET", "/license", nil) }
	refresh := func() *testkit.Response { return c.Do("POST", "/license/refresh", `{"isWrapped": true}`) }

	if first := want(view(), license.Valid, true, true); first.Key == "" || first.ExpiresAt == nil {
		t.Errorf("got %+v at the start, want a key and the time it expires", first)
	}
	plain := l.write(false, time.Hour)
	want(view(), license.Valid, true, true)
	if is := want(refresh(), license.Valid, true, false); is.Key != plain {
		t.Errorf("got the license %q, want %q", is.Key, plain)
	}
	l.write(true, -time.Hour)
	want(refresh(), license.Expired, false, false)
	if expired := want(view(), license.Expired, false, false); expired.ExpiresAt == nil {
		t.Error("got an expired license without a time, want one")
	}
	for _, broken := range []func(){func() { l.put("<html>") }, func() {
		if err := os.Remove(l.file); err != nil {
			t.Fatal(err)
		}
	}} {
		broken()
		if answer := refresh().Want(503); answer.Header.Get("Retry-After") == "" {
			t.Error("got an answer without Retry-After, want one")
		}
		want(view(), license.Expired, false, false)
	}
	other, _ := newLicenses(t)
	l.put(other.write(true, time.Hour))
	if is := want(refresh(), license.BadSignature, false, false); is.ExpiresAt != nil {
		t.Error("got a time from a license of another signer, want none")
	}
	l.write(true, time.Hour)
	want(refresh(), license.Valid, true, true)
}

// An installation works without a license.
func TestNoLicense(t *testing.T) {
	t.Parallel()
	c := testkit.Run(t, system.Definition, testkit.ServiceOptions{})
	for _, answer := range []*testkit.Response{c.Do("GET", "/license", nil), c.Do("POST", "/license/refresh", `{}`)} {
		if is := testkit.Decode[system.License](answer.Want(200)); is.Key != "" || is.State != license.None || is.IsActive || is.HasEnterprise {
			t.Errorf("got %+v, want no license", is)
		}
	}
}
