package browser

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/webauthn"
	"github.com/chromedp/chromedp"

	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/identity/login"
	"github.com/ironplane/ironplane/services/identity/mfa"
)

// panel serves the page of a panel at /panel, and passes other requests to the gateway.
func panel(w http.ResponseWriter, r *http.Request, gateway http.Handler) {
	if r.URL.Path != "/panel" {
		gateway.ServeHTTP(w, r)
		return
	}
	w.Header().Set("Content-Type", "text/html")
	_, _ = io.WriteString(w, `<!DOCTYPE html><title>panel</title>`)
}

const (
	// createKey and signWith are the scripts that the API reference documents.
	createKey = `async value => (await navigator.credentials.create({publicKey: PublicKeyCredential.parseCreationOptionsFromJSON(JSON.parse(value))})).toJSON()`
	signWith  = `async options => (await navigator.credentials.get({publicKey: PublicKeyCredential.parseRequestOptionsFromJSON(options)})).toJSON()`
)

// addAuthenticator registers an authenticator and returns its path and the options for the browser.
func addAuthenticator(t *testing.T, c *testkit.Client, name string) (at, value string) {
	t.Helper()
	a := testkit.Decode[mfa.Authenticator](c.Do("POST", "/auth/verify/auth", map[string]any{"method": 3, "name": name}).Want(200))
	return fmt.Sprintf("/auth/verify/auth/%d", a.ID), *a.Value
}

// TestPasskeysInABrowser registers security keys and passkeys in Chromium and signs in with them. The API accepts
// the signatures of the panel's page only.
func TestPasskeysInABrowser(t *testing.T) {
	t.Parallel()
	w := open(t)
	s := newSite(t, panel)
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { panel(w, r, http.NotFoundHandler()) }))
	t.Cleanup(other.Close)
	no := false
	call(w, webauthn.Enable, webauthn.EnableParams{EnableUI: &no})
	s.admin.Do("POST", "/client", map[string]any{"email": "ben@example.com", "password": password, "first": "Ben", "last": "Miller"}).Want(200)
	for name, kind := range map[string]webauthn.VirtualAuthenticatorOptions{
		"a security key": {Protocol: "ctap2", Transport: "usb", AutomaticPresenceSimulation: true},
		"a key of U2F":   {Protocol: "u2f", Transport: "usb", AutomaticPresenceSimulation: true},
		"a passkey": {
			Protocol: "ctap2", Transport: "internal", HasResidentKey: true, HasUserVerification: true, IsUserVerified: true,
			AutomaticPresenceSimulation: true, DefaultBackupEligibility: true, DefaultBackupState: true,
		},
	} {
		device := call(w, webauthn.AddVirtualAuthenticator, webauthn.AddVirtualAuthenticatorParams{Options: &kind}).AuthenticatorID
		w.do(chromedp.Navigate(s.url + "/panel"))
		login := func() *login.GivenKey {
			key := testkit.Decode[login.GivenKey](
				s.admin.WithKey("").
					Do("POST", "/auth/key", map[string]any{"type": "client", "email": "ben@example.com", "password": password}).
					Want(200),
			)
			return &key
		}
		session := s.admin.WithKey(login().Key)
		at, value := addAuthenticator(t, session, name)
		key, failed := run[map[string]any](w, createKey, value)
		if failed != "" {
			t.Fatalf("%s: %s", name, failed)
		}
		session.Do("PATCH", at, map[string]any{"verified": true, "credential": key}).Want(200)

		sign := func() (v *mfa.LoginVerify, key map[string]any, failed string) {
			v = login().Verify
			if v == nil || v.Code.Options == nil {
				t.Fatalf("%s: got %+v from a login, want a challenge with options", name, v)
			}
			key, failed = run[map[string]any](w, signWith, v.Code.Options)
			return v, key, failed
		}
		confirm := func(v *mfa.LoginVerify, key map[string]any) *testkit.Response {
			return s.admin.WithKey("").
				Do("PATCH", fmt.Sprintf("/auth/verify/auth/%d/code/%s", v.Code.Auth.ID, v.Challenge), map[string]any{"credential": key})
		}
		v, signed, failed := sign()
		if failed != "" {
			t.Fatalf("%s: %s", name, failed)
		}
		in := s.admin.WithKey(testkit.Decode[mfa.ConfirmedKey](confirm(v, signed).Want(200)).Key.Key)
		confirm(v, signed).WantErrors("/token", "expired")

		// A device refuses to create a second key for the account.
		second, value := addAuthenticator(t, in, "again")
		if _, failed := run[map[string]any](w, createKey, value); !strings.Contains(failed, "InvalidStateError") {
			t.Errorf("%s: got %q for a second key, want InvalidStateError", name, failed)
		}
		in.Do("DELETE", second, nil).Want(200)

		// The browser lets any origin of the domain sign, but the API accepts only the panel's.
		w.do(chromedp.Navigate(strings.Replace(other.URL, "127.0.0.1", "localhost", 1) + "/panel"))
		if v, signed, failed = sign(); failed != "" {
			t.Fatalf("%s: %s", name, failed)
		}
		confirm(v, signed).WantErrors("/credential", "wrong")
		w.do(chromedp.Navigate(other.URL + "/panel"))
		if _, _, failed = sign(); !strings.Contains(failed, "SecurityError") {
			t.Errorf("%s: got %q on another domain, want SecurityError", name, failed)
		}
		w.do(chromedp.Navigate(s.url + "/panel"))

		// The signature of a copied key has an old counter.
		if name != "a passkey" {
			keys := call(w, webauthn.GetCredentials, webauthn.GetCredentialsParams{AuthenticatorID: device}).Credentials
			if len(keys) != 1 || keys[0].SignCount == 0 {
				t.Fatalf("%s: got %+v, want one key that has signed", name, keys)
			}
			call(w, webauthn.ClearCredentials, webauthn.ClearCredentialsParams{AuthenticatorID: device})
			copied := map[string]any{
				"credentialId":         keys[0].CredentialID,
				"isResidentCredential": false,
				"rpId":                 "localhost",
				"privateKey":           keys[0].PrivateKey,
				"signCount":            0,
			}
			call(
				w,
				cdp.Command[map[string]any, cdp.Empty]{Method: webauthn.CommandAddCredential},
				map[string]any{"authenticatorId": device, "credential": copied},
			)
			if v, signed, failed = sign(); failed != "" {
				t.Fatalf("%s: %s", name, failed)
			}
			if answer := confirm(v, signed); !strings.Contains(answer.Text, "there may be a copy") {
				t.Errorf("%s: got %d %s for a copy, want a warning of a copy", name, answer.Status, answer.Text)
			}
		}
		in.Do("DELETE", at, nil).Want(200)
		call(w, webauthn.RemoveVirtualAuthenticator, webauthn.RemoveVirtualAuthenticatorParams{AuthenticatorID: device})
	}
}
