package identity_test

import (
	"bytes"
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ironplane/ironplane/pkg/auth/credentials"
	"github.com/ironplane/ironplane/pkg/events"
	"github.com/ironplane/ironplane/pkg/mail"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/pkg/testkit/secondfactor"
	"github.com/ironplane/ironplane/services/identity/login"
	"github.com/ironplane/ironplane/services/identity/mfa"
)

// Security keys are registered with a name. From then on one of them has to sign at each login.
func TestPasskeys(t *testing.T) {
	t.Parallel()
	s, c := newFixtureWith(t, secondfactor.Settings)
	for _, kind := range []string{"admin", "client"} {
		email := "keys@" + kind + ".example.com"
		s.newPerson(kind, email)
		login := loginBody(kind, email, password)
		_, session := signIn(t, c, login)
		at, options := secondfactor.NewKey(t, session, "blue key")
		if options.Party.ID != "example.com" || options.Party.Name != "Ironplane" || options.User.ID == "" ||
			options.Selection.UserVerification != "discouraged" ||
			options.Attestation != "none" ||
			len(options.Exclude) != 0 {
			t.Errorf("got the options %+v, want those of a first passkey of example.com", options)
		}
		session.Do("PATCH", at, `{"verified": true}`).WantErrors("/verified", "unconfirmed")
		signIn(t, c, login) // without a key, until the authenticator is verified
		blue := secondfactor.NewDevice(t)
		blue.Counter = 1
		_, other := signIn(t, c, login)
		other.Do("PATCH", at, secondfactor.VerifyBody(blue.Create(options))).WantErrors("/verified", "unconfirmed") // another session's
		verified := testkit.Decode[mfa.Authenticator](session.Do("PATCH", at, secondfactor.VerifyBody(blue.Create(options))).Want(200))
		if !verified.Verified || len(verified.RecoveryCodes) != 10 || verified.Value != nil {
			t.Errorf("got %+v, want it verified with ten recovery codes and without a value", verified)
		}
		session.Do("PATCH", at, secondfactor.VerifyBody(blue.Create(options))).Want(200) // sent again, as if the response was lost
		if text := session.Do("GET", at, nil).Want(200).Text; strings.Contains(text, "challenge") || !strings.Contains(text, "blue key") {
			t.Errorf("got %s, want the blue key without a challenge", text)
		}

		// A second key takes a confirmation. Its options exclude the first key, and have the same user handle.
		second, secondOptions := secondfactor.NewKey(t, session, "spare key")
		if len(secondOptions.Exclude) != 1 || secondOptions.Exclude[0].ID != secondfactor.Base64URL(blue.ID) ||
			secondOptions.User.ID != options.User.ID {
			t.Errorf("got the options %+v, want the first key excluded and the user %s", secondOptions, options.User.ID)
		}
		session.Do("PATCH", second, secondfactor.VerifyBody(blue.Create(secondOptions))).
			WantErrors("/credential", "taken")
			// from a browser that ignores the excluded keys
		spare := secondfactor.NewDevice(t)
		spare.Flags |= secondfactor.BackupEligible
		testkit.Execute(t, s.DB, "UPDATE verify_code SET confirmed_at = confirmed_at - interval '11 minutes'")
		session.Do("PATCH", second, secondfactor.VerifyBody(spare.Create(secondOptions))).Want(403)
		session.Do("POST", "/auth/verify/auth", `{"method": 3}`).Want(403)
		blue.Confirm(session, at)
		session.Do("PATCH", second, secondfactor.VerifyBody(spare.Create(secondOptions))).Want(200)

		// A login accepts either key.
		v := secondfactor.BeginLogin(t, c, login)
		asked := secondfactor.ParseOptions[secondfactor.RequestOptions](t, v.Code.Options)
		if asked.Domain != "example.com" || asked.UserVerification != "discouraged" || len(asked.Allow) != 2 ||
			len(asked.Allow[0].Transports) != 2 ||
			len(v.Auths) != 2 {
			t.Errorf("got the options %+v, want two keys of example.com and two authenticators", asked)
		}
		anonymous := c.WithKey("")
		anonymous.Do("PATCH", v.Path(), map[string]any{"credential": spare.Sign(v.Code.Options)}).Want(401)
		anonymous.Do("PATCH", v.Path(), v.Answer(invalidToken)).WantErrors("/token", "wrong")
		answer := spare.With(func(d *secondfactor.Device) { d.UserHandle = options.User.ID }).Sign(v.Code.Options)
		key := testkit.Decode[mfa.ConfirmedKey](anonymous.Do("PATCH", v.Path(), v.AnswerWith(answer)).Want(200)).Key
		if key.Key == "" {
			t.Errorf("got %+v, want a key with its value", key)
		}
		anonymous.Do("PATCH", v.Path(), v.AnswerWith(answer)).WantErrors("/token", "expired")
		v2 := secondfactor.BeginLogin(t, c, login)
		anonymous.Do("PATCH", v2.Path(), v2.AnswerWith(answer)).WantErrors("/credential", "wrong")
		anonymous.Do("PATCH", v2.Path(), v2.AnswerWith(blue.Sign(v2.Code.Options))).Want(200)
		v = secondfactor.BeginLogin(t, c, login)
		v.Complete(t, c, verified.RecoveryCodes[0])

		// To remove the last key takes a confirmation.
		in := c.WithKey(key.Key).WithT(t)
		in.Do("PATCH", second, `{"name": "green key"}`).Want(200)
		in.Do("DELETE", second, nil).Want(200)
		testkit.Execute(t, s.DB, "UPDATE verify_code SET confirmed_at = confirmed_at - interval '11 minutes'")
		in.Do("DELETE", at, nil).Want(403)
		in.Do("PATCH", at, `{"verified": false}`).Want(403)
		blue.Confirm(in, at)
		in.Do("PATCH", at, `{"verified": false}`).Want(200)
		in.Do("PATCH", at, `{"verified": true}`).WantErrors("/verified", "unconfirmed")
		renewed := testkit.Decode[mfa.VerifyCode](in.Do("POST", at+"/code", `{}`).Want(200))
		in.Do("PATCH", path("%s/code/%d", at, renewed.ID), map[string]any{"credential": blue.CreateFrom(renewed.Options)}).
			WantErrors("/credential", "wrong")
		in.Do("PATCH", at, secondfactor.VerifyBody(blue.CreateFrom(renewed.Options))).
			Want(200)
		blue.Confirm(in, at)
		in.Do("DELETE", at, nil).Want(200)
		signIn(t, c, login)
	}
	for kind, want := range map[string]int{"admin.verify_code.refused": 3, "auth.verify.auth.verified": 6, "auth.verify.auth.deleted": 4} {
		s.wantRecords(kind, want)
	}
}

// Invalid credentials are refused, and the log says why.
func TestInvalidPasskeys(t *testing.T) {
	t.Parallel()
	s, c := newFixtureWith(t, secondfactor.Settings)
	ben := s.newPerson("client", "ben@example.com")
	s.newPerson("client", "eve@example.com")
	s.newPerson("client", "dora@example.com") // a second account, as each may have twenty invalid answers in a quarter of an hour
	login := loginBody("client", "ben@example.com", password)
	_, benClient := signIn(t, c, login)
	_, doraClient := signIn(t, c, loginBody("client", "dora@example.com", password))
	_, eveClient := signIn(t, c, loginBody("client", "eve@example.com", password))
	key, hers := secondfactor.NewDevice(t), secondfactor.NewDevice(t)
	key.Counter = 7
	origin := func(o string) func(*secondfactor.Device) { return func(d *secondfactor.Device) { d.Origin = o } }
	says := func(name string, value any) func(*secondfactor.Device) {
		return func(d *secondfactor.Device) { d.ClientData = map[string]any{name: value} }
	}
	alterations := map[string]func(*secondfactor.Device){
		"another origin":           origin("https://evil.example.net"),
		"a host below the domain":  origin("https://evil.example.com"),
		"an origin without TLS":    origin("http://panel.example.com"),
		"another port":             origin(secondfactor.Origin + ":8443"),
		"another domain":           func(d *secondfactor.Device) { d.Domain = "evil.example.net" },
		"another challenge":        says("challenge", secondfactor.Base64URL(bytes.Repeat([]byte{1}, 32))),
		"another kind":             says("type", "payment.get"),
		"a page within a page":     says("crossOrigin", true),
		"no user present":          func(d *secondfactor.Device) { d.Flags = 0 },
		"a backup of a device key": func(d *secondfactor.Device) { d.Flags |= secondfactor.BackedUp },
	}
	at, options := secondfactor.NewKey(t, doraClient, "key")
	for name, alter := range alterations {
		response := doraClient.Do("PATCH", at, secondfactor.VerifyBody(key.With(alter).Create(options)))
		if name == "another challenge" {
			response.WantErrors("/verified", "unconfirmed")
			continue
		}
		response.WantErrors("/credential", "wrong")
		testkit.Execute(t, s.DB, "UPDATE verify_code SET tries = 0")
	}
	// Five invalid answers end a challenge.
	for range 5 {
		doraClient.Do("PATCH", at, secondfactor.VerifyBody(key.With(alterations["another origin"]).Create(options))).
			WantErrors("/credential", "wrong")
	}
	doraClient.Do("PATCH", at, secondfactor.VerifyBody(key.Create(options))).WantErrors("/credential", "expired")
	renewed := testkit.Decode[mfa.VerifyCode](doraClient.Do("POST", at+"/code", `{}`).Want(200))
	testkit.Execute(t, s.DB, "UPDATE verify_code SET expires_at = now() WHERE id = $1", renewed.ID)
	doraClient.Do("PATCH", at, secondfactor.VerifyBody(key.CreateFrom(renewed.Options))).
		WantErrors("/credential", "expired")
	renewed = testkit.Decode[mfa.VerifyCode](doraClient.Do("POST", at+"/code", `{}`).Want(200))
	doraClient.Do("PATCH", at, secondfactor.VerifyBody(key.CreateFrom(renewed.Options))).
		Want(200)

	key.With(func(d *secondfactor.Device) { d.ID = []byte("ben") }).Register(benClient, "key")
	key.ID = []byte("ben")
	hers.Register(eveClient, "hers")
	alterations["another account's key"] = func(d *secondfactor.Device) { d.ID, d.Key = hers.ID, hers.Key }
	alterations["the signature of another key"] = func(d *secondfactor.Device) { d.Key = hers.Key }
	alterations["another account's name"] = func(d *secondfactor.Device) { d.UserHandle = secondfactor.Base64URL([]byte("somebody else")) }
	alterations["a backup of a registered key"] = func(d *secondfactor.Device) { d.Flags |= secondfactor.BackupEligible }
	alterations["a counter that stands still"] = func(d *secondfactor.Device) { d.Counter-- }
	alterations["a counter that goes back"] = func(d *secondfactor.Device) { d.Counter = 1 }
	alterations["a counter of zero"] = func(d *secondfactor.Device) { d.Counter = 0 }
	for name, alter := range alterations {
		v := secondfactor.BeginLogin(t, c, login)
		response := c.WithKey("").Do("PATCH", v.Path(), v.AnswerWith(key.With(alter).Sign(v.Code.Options)))
		if response.WantErrors("/credential", "wrong"); strings.Contains(response.Text, "ip_") {
			t.Errorf("%s: got %s, want no key", name, response.Text)
		}
		testkit.Execute(t, s.DB, "DELETE FROM verify_code")
	}
	// An account's key cannot answer another account's challenge, nor a credential of one login another login.
	v, w := secondfactor.BeginLogin(t, c, login), secondfactor.BeginLogin(t, c, loginBody("client", "eve@example.com", password))
	c.WithKey("").Do("PATCH", w.Path(), w.AnswerWith(key.Sign(v.Code.Options))).WantErrors("/credential", "wrong")
	c.WithKey("").Do("PATCH", v.Path(), w.AnswerWith(key.Sign(v.Code.Options))).Want(401)
	c.WithKey("").
		Do(
			"PATCH", v.Path(),
			map[string]any{"challenge": v.Challenge, "credential": map[string]any{"type": "public-key", "id": strings.Repeat("A", 1401)}},
		).
		WantErrors("/credential/id", "too_long")
	c.WithKey("").Do("PATCH", v.Path(), v.AnswerWith(key.Sign(v.Code.Options))).Want(200)
	// A changed password ends the challenges that began before.
	v = secondfactor.BeginLogin(t, c, login)
	s.editClient(ben, func(a *credentials.Account) { a.Version++ })
	c.WithKey("").Do("PATCH", v.Path(), v.AnswerWith(key.Sign(v.Code.Options))).WantErrors("/token", "expired")
	var log string
	testkit.Must(
		t,
		s.DB.QueryRow(t.Context(), "SELECT string_agg(after::text, ' ') FROM change WHERE type = 'client.verify_code.refused'").Scan(&log),
	)
	for _, why := range []string{"there may be a copy of the key", "evil.example.net", "validating challenge", "User presence"} {
		if !strings.Contains(log, why) {
			t.Errorf("records of refused codes: got %s, want one with %q", log, why)
		}
	}
	testkit.Eventually(t, "the account is notified", func() bool {
		return slices.ContainsFunc(s.Clients.Received(), func(m events.Message) bool {
			return m.Kind == mail.ChangedKind && strings.Contains(string(m.Content), "there may be")
		})
	})
}

// Of many concurrent requests with one credential, one succeeds.
func TestPasskeyCountsOnce(t *testing.T) {
	t.Parallel()
	s, c := newFixtureWith(t, secondfactor.Settings)
	s.newPerson("client", "ben@example.com")
	login := loginBody("client", "ben@example.com", password)
	_, session := signIn(t, c, login)
	at, options := secondfactor.NewKey(t, session, "key")
	once := func(c *testkit.Client, at string, body any) (through int32) {
		var in atomic.Int32
		var all sync.WaitGroup
		for range 32 {
			all.Go(func() {
				switch response := c.Do("PATCH", at, body); {
				case response.Status == 200 && (strings.Contains(response.Text, "ip_") || strings.Contains(response.Text, "recovery_codes")):
					in.Add(1)
				case response.Status == 200 || response.Status == 422 || response.Status == 429:
				default:
					t.Errorf("got %d: %s, want 200, 422 or 429", response.Status, response.Text)
				}
			})
		}
		all.Wait()
		return in.Load()
	}
	for _, counter := range []uint32{0, 5} {
		key := secondfactor.NewDevice(t)
		key.Counter = counter
		if n := once(session, at, secondfactor.VerifyBody(key.Create(options))); n != 1 {
			t.Errorf("answers with one new key: got %d accepted, want 1", n)
		}
		v := secondfactor.BeginLogin(t, c, login)
		if n := once(c.WithKey(""), v.Path(), v.AnswerWith(key.Sign(v.Code.Options))); n != 1 {
			t.Errorf("answers with one signature: got %d signed in, want 1", n)
		}
		key.Confirm(session, at)
		session.Do("DELETE", at, nil).Want(200)
		at, options = secondfactor.NewKey(t, session, "key")
	}
}

// Keys of all accepted algorithms work.
func TestPasskeyAlgorithms(t *testing.T) {
	t.Parallel()
	s, c := newFixtureWith(t, secondfactor.Settings)
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	long, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	for name, key := range map[string]crypto.Signer{"edwards": edwards, "rsa": long} {
		s.newPerson("client", name+"@example.com")
		login := loginBody("client", name+"@example.com", password)
		_, session := signIn(t, c, login)
		right := secondfactor.NewDevice(t).With(func(d *secondfactor.Device) { d.Key = key })
		right.Register(session, name)
		v := secondfactor.BeginLogin(t, c, login)
		otherKey := secondfactor.NewDevice(t).With(func(d *secondfactor.Device) { d.ID = right.ID })
		c.WithKey("").Do("PATCH", v.Path(), v.AnswerWith(otherKey.Sign(v.Code.Options))).WantErrors("/credential", "wrong")
		c.WithKey("").Do("PATCH", v.Path(), v.AnswerWith(right.Sign(v.Code.Options))).Want(200)
	}
}

// If the setting asks for it, keys have to verify their user by a PIN or a fingerprint.
func TestPasskeysVerifyUsers(t *testing.T) {
	t.Parallel()
	s, c := newFixtureWith(t, secondfactor.Settings)
	s.newPerson("admin", "anna@example.com")
	login := loginBody("admin", "anna@example.com", password)
	_, session := signIn(t, c, login)
	touched := secondfactor.NewDevice(t)
	at, _ := touched.Register(session, "key")
	s.System.SetSetting("security.verify_passkeys", "1")
	var v *secondfactor.Login
	testkit.Eventually(t, "the setting counts", func() bool {
		v = secondfactor.BeginLogin(t, c, login)
		return secondfactor.ParseOptions[secondfactor.RequestOptions](t, v.Code.Options).UserVerification == "required"
	})
	c.WithKey("").Do("PATCH", v.Path(), v.AnswerWith(touched.Sign(v.Code.Options))).WantErrors("/credential", "wrong")
	unlocked := touched.With(func(d *secondfactor.Device) { d.Flags |= secondfactor.UserVerified })
	c.WithKey("").Do("PATCH", v.Path(), v.AnswerWith(unlocked.Sign(v.Code.Options))).Want(200)
	unlocked.Confirm(session, at)
	second, options := secondfactor.NewKey(t, session, "second")
	if options.Selection.UserVerification != "required" {
		t.Errorf("got the options %+v, want user verification required", options)
	}
	session.Do("PATCH", second, secondfactor.VerifyBody(secondfactor.NewDevice(t).Create(options))).WantErrors("/credential", "wrong")
	verifying := secondfactor.NewDevice(t).With(func(d *secondfactor.Device) { d.Flags |= secondfactor.UserVerified })
	session.Do("PATCH", second, secondfactor.VerifyBody(verifying.Create(options))).
		Want(200)
}

// Without a configured domain no keys can be added. Accounts with earlier keys sign in by recovery codes.
func TestNoPasskeys(t *testing.T) {
	t.Parallel()
	s, c := newFixtureWith(t, service.Settings{})
	refused := c.Do("POST", "/auth/verify/auth", `{"method": 3}`)
	if refused.WantErrors("/method", "unavailable"); !strings.Contains(refused.Text, "IRONPLANE_PASSKEY_DOMAIN") {
		t.Errorf("got %s, want it to name IRONPLANE_PASSKEY_DOMAIN", refused.Text)
	}
	s.newPerson("admin", "anna@example.com")
	login := loginBody("admin", "anna@example.com", password)
	_, session := signIn(t, c, login)
	a, recovery := secondfactor.NewVerifiedApp(t, s.DB, session)
	var earlier int64
	if err := s.DB.QueryRow(t.Context(), `
		INSERT INTO authenticator (owner_type, owner_id, method_id, verified, domain, handle, credential, public_key)
		SELECT owner_type, owner_id, 3, true, 'before.example.net', 'h', 'c', 'p' FROM authenticator WHERE id = $1 RETURNING id`, a.ID).Scan(&earlier); err != nil {
		t.Fatal(err)
	}
	if v := secondfactor.BeginLogin(t, c, login); v.Code.Auth.ID != a.ID || len(v.Auths) != 2 {
		t.Errorf("got %+v, want a code of authenticator %d out of two", v, a.ID)
	}
	session.Do("DELETE", a.Path(), nil).Want(200)
	v := secondfactor.BeginLogin(t, c, login)
	if v.Code.Auth.ID != earlier || v.Code.Options != nil {
		t.Errorf("got %+v, want a code of authenticator %d without options", v, earlier)
	}
	c.WithKey("").
		Do("PATCH", v.Path(), v.AnswerWith(secondfactor.NewDevice(t).SignChallenge("AAAA"))).
		WantErrors("/credential", "wrong")
	v.Complete(t, c, recovery[0])
}

// No caller can register a key for another account, whatever its permissions.
func TestPasskeysOfOthers(t *testing.T) {
	t.Parallel()
	s, c := newFixtureWith(t, secondfactor.Settings)
	_, annaClient := newAdmin(t, c, "anna", `{"users": {"admins": {"read": true, "write": true}}}`)
	_, bigClient := newAdmin(t, c, "big", `{"network": {"groups": {"read": true, "write": true}}}`)
	client := s.newPerson("client", "ben@example.com")
	at, options := secondfactor.NewKey(t, bigClient, "key")
	for name, caller := range map[string]*testkit.Client{"less": annaClient, "all": c} {
		want := map[string]int{"less": 403, "all": 422}[name]
		caller.Do("PATCH", at, secondfactor.VerifyBody(secondfactor.NewDevice(t).Create(options))).Want(want)
		caller.Do("POST", at+"/code", `{}`).Want(403)
	}
	acting := c.WithKey(
		testkit.Decode[login.GivenKey](
			c.Do("POST", "/auth/key", map[string]any{"owner": map[string]any{"url": path("/client/%d", client)}}).Want(200),
		).Key,
	)
	acting.Do("POST", "/auth/verify/auth", `{"method": 3}`).Want(403)
	bigClient.Do("PATCH", at, secondfactor.VerifyBody(secondfactor.NewDevice(t).Create(options))).Want(200)
}
