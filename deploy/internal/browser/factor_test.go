package browser

import (
	"testing"

	"github.com/chromedp/cdproto/webauthn"
	"github.com/chromedp/chromedp"

	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/identity/mfa"
)

// signInWithPassword opens the console's page at a path, and types a password.
func (c *consoleWindow) signInWithPassword(username, path string) {
	c.t.Helper()
	c.do(chromedp.Navigate(c.site.url + "/-/console/sign-in?to=" + path))
	c.write("User name or email address", username)
	c.write("Password", password)
	c.press("Sign in")
}

// signOut ends the session by the account menu.
func (c *consoleWindow) signOut(name string) {
	c.t.Helper()
	c.press(name)
	c.press("Sign out")
	c.awaitText("User name or email address")
}

// TestConsolePasskey adds a passkey on the page of second factors, and signs in with it. A passkey that was removed signs nobody in,
// not even with a challenge from before.
func TestConsolePasskey(t *testing.T) {
	t.Parallel()
	c := openConsole(t)
	no := false
	call(c.window, webauthn.Enable, webauthn.EnableParams{EnableUI: &no})
	call(c.window, webauthn.AddVirtualAuthenticator, webauthn.AddVirtualAuthenticatorParams{Options: &webauthn.VirtualAuthenticatorOptions{
		Protocol: "ctap2", Transport: "internal", HasResidentKey: true, HasUserVerification: true, IsUserVerified: true,
		AutomaticPresenceSimulation: true,
	}})
	vera := map[string]any{"username": "vera", "email": "vera@example.com", "password": password}
	c.site.admin.Do("POST", "/admin", vera).Want(200)
	c.signInWithPassword("vera", "/auth/verify/auth")
	c.press("Add a passkey or security key")
	c.write("Name", "my laptop")
	c.press("Continue")
	c.awaitText("Keep these recovery codes.")
	c.press("Done")
	c.awaitText("my laptop")
	c.signOut("vera")

	const useKey = "Use a security key or passkey"
	c.signInWithPassword("vera", "/auth/verify/auth")
	c.awaitText("Second factor")
	c.press(useKey)
	c.awaitText("my laptop")
	c.signOut("vera")

	// The passkey is removed while a sign-in waits for it.
	c.signInWithPassword("vera", "/auth/verify/auth")
	c.awaitText("Second factor")
	c.site.admin.Do("DELETE", "/admin/2/verify", nil).Want(200)
	c.press(useKey)
	c.await("the removed passkey is refused", `document.querySelector("[role=alert]") && location.pathname === "/-/console/sign-in"`)
	c.do(chromedp.Navigate(c.site.url + "/-/console/auth/verify/auth"))
	c.awaitText("User name or email address")
	c.signInWithPassword("vera", "/auth/verify/auth")
	c.awaitText("A sign-in then needs more than your password.")
	login := map[string]any{"type": "admin", "username": "vera", "password": password}
	session := c.site.admin.WithKey("").Do("POST", "/auth/key", login).Want(200)
	own := c.site.admin.WithKey(testkit.Decode[struct{ Key string }](session).Key)
	if left := testkit.Decode[[]mfa.Authenticator](own.Do("GET", "/auth/verify/auth", nil).Want(200)); len(left) > 0 {
		t.Errorf("got the second factors %+v, want none", left)
	}
}
