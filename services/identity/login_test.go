package identity_test

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/credentials"
	"github.com/ironplane/ironplane/pkg/auth/lockout"
	"github.com/ironplane/ironplane/pkg/settings"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/identity/keys"
	"github.com/ironplane/ironplane/services/identity/session"
)

const current = "/auth/key/current"

// A session begins with a login. All of its values end together, at the latest with the account or its password.
func TestLogin(t *testing.T) {
	t.Parallel()
	s, c := newFixture(t)
	anonymous := c.WithKey("")
	for _, kind := range []string{"admin", "client"} {
		email := "one@" + kind + ".example.com"
		id := s.newPerson(kind, email)
		self := path("/%s/%d", kind, id)
		first, signedIn := signIn(t, c, loginBody(kind, strings.ToUpper(email), password))
		if first.Owner.URL != self {
			t.Errorf("owner of the session: got %+v, want %s", first.Owner, self)
		}
		if got := testkit.Decode[keys.APIKey](signedIn.Do("GET", current, nil).Want(200)); got.ID != first.ID || got.Key != "" {
			t.Errorf("the session's key: got %+v, want %d without its value", got, first.ID)
		}
		_, other := signIn(t, c, loginBody(kind, email, password))
		own := testkit.Decode[[]session.Session](signedIn.Do("GET", "/auth/session", nil).Want(200))
		if len(own) != 2 || own[0].IP != "192.0.2.7" || own[0].Agent != "Go-http-client/1.1" || own[0].Acting {
			t.Errorf("own sessions: got %+v, want two", own)
		}

		// A renewed session has a new value. The old value works for another minute.
		renewed := testkit.Decode[keys.APIKey](signedIn.Do("POST", "/auth/key", `{}`).Want(200))
		if renewed.ID != first.ID || renewed.Key == "" || renewed.Key == first.Key {
			t.Errorf("the renewed session: got %+v, want another value of %d", renewed, first.ID)
		}
		for _, key := range []string{first.Key, renewed.Key} {
			c.WithKey(key).Do("GET", current, nil).Want(200)
		}
		c.WithKey(renewed.Key).Do("POST", "/auth/key", `[]`).Want(200)
		latest := testkit.Decode[keys.APIKey](signedIn.Do("POST", "/auth/key", `{"isWrapped": true}`).Want(200))
		signedIn.Do("PATCH", path("/auth/key/%d", first.ID), `{"name": "mine"}`).Want(403)
		lasting := testkit.Decode[keys.APIKey](signedIn.Do("POST", "/auth/key", `{"name": "lasting"}`).Want(200))
		if lasting.ExpiresAt != nil {
			t.Errorf("a key made by a login's session: got %+v, want one that does not expire", lasting)
		}

		// All values of a session end together.
		c.WithKey(latest.Key).Do("DELETE", current, nil).Want(200)
		for _, key := range []string{first.Key, renewed.Key, latest.Key} {
			c.WithKey(key).Do("GET", current, nil).Want(401)
		}
		other.Do("GET", current, nil).Want(200)
		_, third := signIn(t, c, loginBody(kind, email, password))
		other.Do("DELETE", "/auth/session", nil).Want(200)
		third.Do("GET", current, nil).Want(401)
		last, fourth := signIn(t, c, loginBody(kind, email, password))
		other.Do("DELETE", path("/auth/session/%d", last.ID), nil).Want(200)
		fourth.Do("GET", current, nil).Want(401)

		// Sessions end with the account's password, and work only while the account is enabled.
		change := func(body string, edit func(*credentials.Account)) {
			t.Helper()
			if kind == "admin" {
				c.Do("PATCH", self, body).Want(200)
			} else {
				s.editClient(id, edit)
			}
		}
		_, fifth := signIn(t, c, loginBody(kind, email, password))
		change(`{"password": "another long walk"}`, func(a *credentials.Account) { a.Version++ })
		fifth.Do("GET", current, nil).Want(401)
		other.Do("GET", current, nil).Want(401)
		c.WithKey(lasting.Key).Do("GET", current, nil).Want(200)
		currentPassword := password
		if kind == "admin" {
			anonymous.Do("POST", "/auth/key", loginBody(kind, email, password)).Want(401)
			currentPassword = "another long walk"
		}
		_, sixth := signIn(t, c, loginBody(kind, email, currentPassword))
		change(disable, func(a *credentials.Account) { a.Disabled = true })
		sixth.Do("GET", current, nil).Want(401)
		anonymous.Do("POST", "/auth/key", loginBody(kind, email, currentPassword)).Want(401)
		change(enable, func(a *credentials.Account) { a.Disabled = false })
		sixth.Do("GET", current, nil).Want(200)
		if kind == "admin" {
			c.Do("DELETE", self, nil).Want(200)
		} else {
			s.Clients.Delete(id)
		}
		sixth.Do("GET", current, nil).Want(401)
		anonymous.Do("POST", "/auth/key", loginBody(kind, email, currentPassword)).Want(401)
		testkit.Eventually(t, "the account's keys are deleted", func() bool {
			return len(testkit.Decode[[]keys.APIKey](c.Do("GET", "/auth/key?owner="+self, nil).Want(200))) == 0
		})
	}
	anonymous.Do("POST", "/auth/key", `{"type": "integration", "email": "x", "password": "y"}`).WantErrors("/type", "invalid")
	anonymous.Do("POST", "/auth/key", `{"password": ""}`).WantErrors("/email", "required", "/type", "invalid")
	anonymous.Do("POST", "/auth/key", `{"type": "client", "username": "x", "password": ""}`).WantErrors("/email", "required")
	anonymous.Do("POST", "/auth/key", `{"name": "x"}`).Want(401)
	anonymous.Do("POST", "/auth/key", `{}`).Want(401)
	c.Do("POST", "/auth/key", `{}`).WantErrors("/name", "required")
	c.Do("POST", "/auth/key", `{"name": ""}`).WantErrors("/name", "required")
	c.Do("POST", "/auth/key", `{"email": "x"}`).WantErrors("/name", "required")
}

// While the clients service is unavailable, admins can sign in, and clients cannot.
func TestLoginWhileClientsIsAway(t *testing.T) {
	t.Parallel()
	s, c := newFixture(t)
	s.newPerson("client", "ben@example.com")
	s.newPerson("admin", "anna@example.com")
	s.Clients.SetAway(true)
	c.WithKey("").Do("POST", "/auth/key", loginBody("client", "ben@example.com", password)).Want(503)
	signIn(t, c, loginBody("admin", "anna@example.com", password))
	s.Clients.SetAway(false)
	signIn(t, c, loginBody("client", "ben@example.com", password))
}

// All refused logins get the same response, whether or not the account exists.
func TestLoginAnswersAlike(t *testing.T) {
	t.Parallel()
	s, c := newFixture(t)
	for _, kind := range []string{"admin", "client"} {
		s.newPerson(kind, "right@"+kind+".example")
		s.newPerson(kind, "none@"+kind+".example")
		off := s.newPerson(kind, "off@"+kind+".example")
		if kind == "admin" {
			testkit.Execute(t, s.DB, "UPDATE admin SET password_hash = NULL WHERE email = 'none@admin.example'")
			c.Do("PATCH", path("/admin/%d", off), disable).Want(200)
		} else {
			s.editClient(off-1, func(a *credentials.Account) { a.Hash = "" })
			s.editClient(off, func(a *credentials.Account) { a.Disabled = true })
		}
	}
	var texts []string
	for _, kind := range []string{"admin", "client"} {
		for email, tried := range map[string]string{"right": "wrong", "none": "", "off": password, "unknown": password} {
			response := c.WithKey("").Do("POST", "/auth/key", loginBody(kind, email+"@"+kind+".example", tried)).Want(401)
			texts = append(texts, response.Text)
		}
	}
	for _, text := range texts {
		if text != texts[0] {
			t.Errorf("answers to refused logins: got %s and %s, want one", text, texts[0])
		}
	}
	s.wantRecords("admin.password.refused", 3)
	s.wantRecords("client.password.refused", 3)
	testkit.Eventually(t, "logins by unknown names are logged", func() bool {
		testkit.Execute(t, s.DB, "UPDATE unknown_name SET minute = minute - interval '1 minute'")
		return s.countRecords("auth.login.refused") > 0
	})
}

// Too many wrong passwords lock a name out from the guesser's network, whether or not the account exists.
func TestLockedOut(t *testing.T) {
	t.Parallel()
	s, c := newFixture(t)
	s.newPerson("client", "ben@example.com")
	for _, name := range []string{"ben@example.com", "nobody@example.com"} {
		var compared, locked atomic.Int32
		var all sync.WaitGroup
		for range 32 {
			all.Go(func() {
				switch response := c.WithKey("").Do("POST", "/auth/key", loginBody("client", name, "wrong")); response.Status {
				case 401:
					compared.Add(1)
				case 429:
					locked.Add(1)
				default:
					t.Errorf("got %d: %s, want 401 or 429", response.Status, response.Text)
				}
			})
		}
		all.Wait()
		if compared.Load() != 5 || locked.Load() != 27 {
			t.Errorf("guesses at %s: got %d compared and %d locked out, want 5 and 27", name, compared.Load(), locked.Load())
		}
	}
	c.WithKey("").Do("POST", "/auth/key", loginBody("client", "ben@example.com", password)).Want(429)
}

// Guesses are counted by the account that they are for, however the caller writes its name and whatever else it sends.
func TestGuessesCountByAccount(t *testing.T) {
	t.Parallel()
	s, c := newFixture(t)
	anonymous := c.WithKey("")
	s.newPerson("admin", "anna@example.com")
	s.newPerson("client", "ben@example.com")
	for _, kind := range []string{"admin", "client"} {
		both := `{"type": "` + kind + `", "email": "anna@example.com", "username": "anna", "password": "wrong"}`
		for range lockout.MaxPerNameAndAddress + 1 {
			anonymous.Do("POST", "/auth/key", both).WantErrors("/username", "conflict")
		}
	}
	byUsername := func(name, password string) string {
		return `{"type": "admin", "username": "` + name + `", "email": "", "password": "` + password + `"}`
	}
	for label, login := range map[string]func(n int, password string) string{
		"an admin": func(n int, password string) string {
			return []string{
				byUsername("anna", password), byUsername("ANNA", password), loginBody("admin", "Anna@example.com", password),
			}[n%3]
		},
		"a client": func(n int, password string) string { return loginBody("client", upTo("ben@example.com", n), password) },
		"nobody": func(n int, password string) string {
			return loginBody("client", upTo("nobody@example.com", n), password)
		},
		"no admin":  func(n int, password string) string { return byUsername(upTo("nobody", n), password) },
		"no e-mail": func(n int, password string) string { return loginBody("admin", upTo("nobody", n), password) },
	} {
		for n := range lockout.MaxPerNameAndAddress {
			if got := anonymous.Do("POST", "/auth/key", login(n, "wrong")); got.Status != 401 {
				t.Errorf("guess %d at %s: got %d, want 401", n, label, got.Status)
			}
		}
		for n := range 3 {
			if got := anonymous.Do("POST", "/auth/key", login(n, password)); got.Status != 429 {
				t.Errorf("the right password of %s after too many guesses: got %d, want 429", label, got.Status)
			}
		}
	}
}

// upTo returns text with its first n bytes in upper case.
func upTo(text string, n int) string { return strings.ToUpper(text[:n]) + text[n:] }

// A session that acts for a client cannot change credentials, and ends with the key that began it.
func TestActing(t *testing.T) {
	t.Parallel()
	s, c := newFixture(t)
	ben := path("/client/%d", s.newPerson("client", "ben@example.com"))
	few, fewKey := newAdmin(t, c, "few", `{"users": {"clients": {"read": true}}}`)
	act := func(c *testkit.Client, owner string) *testkit.Response {
		return c.Do("POST", "/auth/key", map[string]any{"owner": map[string]any{"url": owner}})
	}
	act(fewKey, ben).Want(403)
	act(c, "/client/999").WantErrors("/owner/url", "not_found")
	act(c, path("/admin/%d", few)).Want(403)
	maker := testkit.Decode[keys.APIKey](c.Do("POST", "/auth/key", `{"name": "maker"}`).Want(200))
	as := c.WithKey(testkit.Decode[keys.APIKey](act(c.WithKey(maker.Key), ben).Want(200)).Key)
	as.Do("GET", current, nil).Want(200)
	as.Do("POST", "/auth/key", `{"name": "mine"}`).Want(403)
	act(as, ben).Want(403)
	as.Do("DELETE", "/auth/session", nil).Want(403)
	if keys := testkit.Decode[[]keys.APIKey](c.Do("GET", "/auth/key?owner="+ben, nil).Want(200)); len(keys) != 0 {
		t.Errorf("acting sessions among keys: got %+v, want none", keys)
	}
	renewed := testkit.Decode[keys.APIKey](as.Do("POST", "/auth/key", `{}`).Want(200))
	for range 3 {
		act(c, ben).Want(200)
	}
	s.wantRecords("auth.session.began", 1)
	c.Do("DELETE", path("/auth/key/%d", maker.ID), nil).Want(200)
	as.Do("GET", current, nil).Want(401)
	c.WithKey(renewed.Key).Do("GET", current, nil).Want(401)
}

// Settings define how long a session lasts, and an account has no more sessions than it may have.
func TestSessionsEnd(t *testing.T) {
	t.Parallel()
	s, c := newFixture(t)
	s.newPerson("admin", "anna@example.com")
	s.System.SetSetting(settings.SessionDuration.Slug, "30")
	testkit.Eventually(t, "a session lasts half an hour", func() bool {
		key, _ := signIn(t, c, loginBody("admin", "anna@example.com", password))
		return time.Until(key.ExpiresAt.Time) < 31*time.Minute
	})
	s.System.SetSetting(settings.MaxSessionDuration.Slug, "10")
	_, own := signIn(t, c, loginBody("admin", "anna@example.com", password))
	testkit.Eventually(t, "a renewed session lasts ten minutes", func() bool {
		renewed := testkit.Decode[keys.APIKey](own.Do("POST", "/auth/key", `{}`).Want(200))
		own = c.WithKey(renewed.Key)
		return time.Until(renewed.ExpiresAt.Time) < 11*time.Minute
	})
	for range 60 { // more than an account may have
		_, own = signIn(t, c, loginBody("admin", "anna@example.com", password))
	}
	if got := len(testkit.Decode[[]session.Session](own.Do("GET", "/auth/session?per_page=100", nil).Want(200))); got != 50 {
		t.Errorf("sessions: got %d, want 50", got)
	}
}
