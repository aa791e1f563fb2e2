package identity_test

import (
	"encoding/base64"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/credentials"
	"github.com/ironplane/ironplane/pkg/auth/lockout"
	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/pkg/testkit/secondfactor"
	"github.com/ironplane/ironplane/services/identity/login"
)

// withDevice adds a device token to a login.
func withDevice(login, device string) string {
	return strings.TrimSuffix(login, "}") + `, "device": "` + device + `"}`
}

// lockOut makes wrong guesses at an account until its name is locked out from the caller's address.
func lockOut(t *testing.T, c *testkit.Client, kind, email string) {
	t.Helper()
	for range lockout.MaxPerNameAndAddress {
		c.WithKey("").Do("POST", "/auth/key", loginBody(kind, email, "wrong")).Want(401)
	}
	c.WithKey("").Do("POST", "/auth/key", loginBody(kind, email, password)).Want(429)
}

// A login from a known device is not locked out by guesses of others. It is known for 30 days, for its own account, and until the
// password changes.
func TestKnownDevice(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"admin", "client"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s, c := newFixture(t)
			anonymous := c.WithKey("")
			id := s.newPerson(kind, "anna@example.com")
			s.newPerson(kind, "other@example.com")
			device := newDevice(t, anonymous, loginBody(kind, "anna@example.com", password))
			lockOut(t, c, kind, "anna@example.com")
			right := func(device string) *testkit.Response {
				return anonymous.Do("POST", "/auth/key", withDevice(loginBody(kind, "anna@example.com", password), device))
			}
			next := testkit.Decode[login.GivenKey](right(device).Want(200)).Device
			right(next).Want(200)

			sealed, err := base64.RawURLEncoding.DecodeString(device)
			if err != nil {
				t.Fatalf("decode a device: %v", err)
			}
			at := seal.Location{Table: kind, Column: "device", ID: id}
			content, err := s.Deps.Box.Open(at, sealed)
			if err != nil {
				t.Fatalf("open a device: %v", err)
			}
			year := strconv.Itoa(time.Now().Year())
			expired := strings.NewReplacer(`"expires":"`+year, `"expires":"2020`, `"expires":"`+strconv.Itoa(time.Now().Year()+1), `"expires":"2020`).
				Replace(content.Reveal())
			for label, invalid := range map[string]string{
				"no device":                   "",
				"no base64":                   "a device",
				"an altered device":           "AAAA" + device[4:],
				"the device of another owner": newDevice(t, anonymous, loginBody(kind, "other@example.com", password)),
				"an expired device":           base64.RawURLEncoding.EncodeToString(s.Deps.Box.Seal(at, secret.New(expired))),
			} {
				if got := right(invalid); got.Status != 429 {
					t.Errorf("a login with %s: got %d, want 429", label, got.Status)
				}
			}

			if kind == "admin" {
				c.Do("PATCH", path("/admin/%d", id), `{"password": "another long walk"}`).Want(200)
				c.Do("PATCH", path("/admin/%d", id), `{"password": "`+password+`"}`).Want(200) // the same one, so that only the device decides
			} else {
				s.editClient(id, func(a *credentials.Account) { a.Version++ })
			}
			right(device).Want(429)
		})
	}
}

// Logins from known devices have their own bound: 50 wrong passwords an hour for the account, with all of its devices.
func TestGuessesFromKnownDevices(t *testing.T) {
	t.Parallel()
	s, c := newFixture(t)
	anonymous := c.WithKey("")
	s.newPerson("client", "ben@example.com")
	s.newPerson("client", "ann@example.com")
	right := loginBody("client", "ben@example.com", password)
	devices := []string{newDevice(t, anonymous, right), newDevice(t, anonymous, right)}
	other := newDevice(t, anonymous, loginBody("client", "ann@example.com", password))
	var compared atomic.Int32
	var all sync.WaitGroup
	for n := range 70 {
		all.Go(func() {
			login := withDevice(loginBody("client", "ben@example.com", "wrong"), devices[n%len(devices)])
			switch response := anonymous.Do("POST", "/auth/key", login); {
			case response.Status == 401:
				compared.Add(1)
			case response.Status != 429:
				t.Errorf("got %d: %s, want 401 or 429", response.Status, response.Text)
			}
		})
	}
	all.Wait()
	if n := compared.Load(); n != lockout.MaxFromDevices {
		t.Errorf("got %d guesses compared, want %d", n, lockout.MaxFromDevices)
	}
	for _, device := range devices {
		locked := anonymous.Do("POST", "/auth/key", withDevice(right, device)).Want(429)
		if after, err := strconv.Atoi(locked.Header.Get("Retry-After")); err != nil || after < 1800 || after > 3600 {
			t.Errorf("got Retry-After %q, want up to an hour", locked.Header.Get("Retry-After"))
		}
	}
	anonymous.Do("POST", "/auth/key", withDevice(loginBody("client", "ann@example.com", password), other)).Want(200)
	anonymous.Do("POST", "/auth/key", right).Want(200) // other logins are counted apart
}

// newDevice signs in and returns the device of the login.
func newDevice(t *testing.T, anonymous *testkit.Client, body string) string {
	t.Helper()
	key := testkit.Decode[login.GivenKey](anonymous.WithT(t).Do("POST", "/auth/key", body).Want(200))
	if key.Key == "" || key.Device == "" {
		t.Fatalf("a login: got %+v, want a key and a device", key)
	}
	return key.Device
}

// A login with a second factor has a device once the factor is confirmed. The device replaces no second factor.
func TestDeviceAfterSecondFactor(t *testing.T) {
	t.Parallel()
	s, c := newFixture(t)
	anonymous := c.WithKey("")
	body := loginBody("client", "ben@example.com", password)
	s.newPerson("client", "ben@example.com")
	_, own := signIn(t, c, body)
	app, _ := secondfactor.NewVerifiedApp(t, s.DB, own)
	challenge := secondfactor.BeginLogin(t, c, body)
	confirmed := anonymous.Do("PATCH", challenge.Path(), challenge.Answer(app.Code())).Want(200)
	device := testkit.Decode[struct{ Device string }](confirmed).Device
	if device == "" {
		t.Fatalf("a confirmed login: got %s, want a device", confirmed.Text)
	}
	response := anonymous.Do("POST", "/auth/key", withDevice(body, device)).Want(200)
	if asked := testkit.Decode[login.GivenKey](response); asked.Key != "" || asked.Device != "" || asked.Verify == nil {
		t.Errorf("a login with a device: got %s, want a challenge alone", response.Text)
	}
}
