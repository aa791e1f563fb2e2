package identity_test

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
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
	"github.com/ironplane/ironplane/services/identity/login"
	"github.com/ironplane/ironplane/services/identity/mfa"
)

const (
	panel       = "https://panel.example.com"
	flagPresent = 1 << 0
	flagUser    = 1 << 2
	flagMany    = 1 << 3
	flagKey     = 1 << 6
)

// withPasskeys is what services are told where keys are used.
var withPasskeys = service.Settings{PasskeyDomain: "example.com", PasskeyOrigins: "https://admin.example.com, " + panel}

// device is a security key, and the browser that it is held at.
type device struct {
	t       *testing.T
	id      []byte
	key     crypto.Signer
	domain  string
	origin  string
	flags   byte
	counter uint32
	handle  string
	client  map[string]any // what is said otherwise than it should be
}

func newDevice(t *testing.T) *device {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	id := make([]byte, 32)
	rand.Read(id)
	return &device{t: t, id: id, key: key, domain: "example.com", origin: panel, flags: flagPresent}
}

// altered is the same device, altered.
func (d *device) altered(alter func(*device)) *device {
	other := *d
	alter(&other)
	return &other
}

var base64url = base64.RawURLEncoding.EncodeToString

// answer is what the browser answers, of which response is what it says besides.
func (d *device) answer(kind, challenge string, data []byte, response map[string]any) map[string]any {
	clientData := map[string]any{"type": kind, "challenge": challenge, "origin": d.origin, "crossOrigin": false}
	for name, value := range d.client {
		clientData[name] = value
	}
	client, err := json.Marshal(clientData)
	if err != nil {
		d.t.Fatal(err)
	}
	response["clientDataJSON"], response["authenticatorData"] = base64url(client), base64url(data)
	if kind == "webauthn.get" {
		sum := sha256.Sum256(client)
		signature, err := crypto.SignMessage(d.key, rand.Reader, slices.Concat(data, sum[:]), d.hash())
		if err != nil {
			d.t.Fatal(err)
		}
		response["signature"] = base64url(signature)
		if d.handle != "" {
			response["userHandle"] = d.handle
		}
	}
	return map[string]any{
		"id":                     base64url(d.id),
		"rawId":                  base64url(d.id),
		"type":                   "public-key",
		"response":               response,
		"clientExtensionResults": map[string]any{},
	}
}

// data is what the device says, and signs.
func (d *device) data(flags byte) []byte {
	domain := sha256.Sum256([]byte(d.domain))
	return binary.BigEndian.AppendUint32(append(domain[:], d.flags|flags), d.counter)
}

type creationOptions struct {
	Challenge string `json:"challenge"`
	Party     struct {
		ID, Name string
	} `json:"rp"`
	User struct {
		ID, Name string
	} `json:"user"`
	Exclude   []struct{ ID string } `json:"excludeCredentials"`
	Selection struct {
		UserVerification string `json:"userVerification"`
	} `json:"authenticatorSelection"`
	Attestation string `json:"attestation"`
}

type requestOptions struct {
	Challenge        string `json:"challenge"`
	Domain           string `json:"rpId"`
	UserVerification string `json:"userVerification"`
	Allow            []struct {
		ID         string
		Transports []string
	} `json:"allowCredentials"`
}

// create answers options by which a key is made.
func (d *device) create(options creationOptions) map[string]any {
	d.t.Helper()
	data := binary.BigEndian.AppendUint16(append(d.data(flagKey), make([]byte, 16)...), uint16(len(d.id)))
	data = slices.Concat(data, d.id, d.public())
	none := append([]byte("\xa3\x63fmt\x64none\x67attStmt\xa0\x68authData\x59"), binary.BigEndian.AppendUint16(nil, uint16(len(data)))...)
	return d.answer(
		"webauthn.create",
		options.Challenge,
		data,
		map[string]any{"attestationObject": base64url(append(none, data...)), "transports": []string{"usb", "nfc"}},
	)
}

// hash is what a signature is of.
func (d *device) hash() crypto.Hash {
	if _, whole := d.key.(ed25519.PrivateKey); whole {
		return 0
	}
	return crypto.SHA256
}

// public is the public key, in CBOR as COSE has it.
func (d *device) public() []byte {
	d.t.Helper()
	switch key := d.key.Public().(type) {
	case ed25519.PublicKey:
		return slices.Concat([]byte("\xa4\x01\x01\x03\x27\x20\x06\x21\x58\x20"), key)
	case *rsa.PublicKey:
		return slices.Concat([]byte("\xa4\x01\x03\x03\x39\x01\x00\x20\x59\x01\x00"), key.N.Bytes(), []byte("\x21\x43\x01\x00\x01"))
	case *ecdsa.PublicKey:
		point, err := key.Bytes()
		if err != nil {
			d.t.Fatal(err)
		}
		return slices.Concat([]byte("\xa5\x01\x02\x03\x26\x20\x01\x21\x58\x20"), point[1:33], []byte("\x22\x58\x20"), point[33:])
	}
	d.t.Fatalf("got a key of type %T, want one that the device can encode", d.key)
	return nil
}

// sign answers options by which a key signs, which counts.
func (d *device) sign(options json.RawMessage) map[string]any {
	d.t.Helper()
	asked := read[requestOptions](d.t, options)
	if d.counter > 0 {
		d.counter++
	}
	return d.answer("webauthn.get", asked.Challenge, d.data(0), map[string]any{})
}

func read[T any](t *testing.T, text []byte) (v T) {
	t.Helper()
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}

// newPasskey makes an authenticator of the caller for a security key that is yet to be made.
func newPasskey(t *testing.T, c *testkit.Client, name string) (at string, options creationOptions) {
	t.Helper()
	created := testkit.Decode[mfa.Authenticator](c.Do("POST", "/auth/verify/auth", map[string]any{"method": 3, "name": name}).Want(200))
	if created.Value == nil || created.Verified || created.CustomName == nil || *created.CustomName != name ||
		created.Method.Name != "passkey" {
		t.Fatalf("got %+v, want an unverified passkey called %s with its options", created, name)
	}
	return path("/auth/verify/auth/%d", created.ID), read[creationOptions](t, []byte(*created.Value))
}

func newKeyBody(answer map[string]any) map[string]any {
	return map[string]any{"verified": true, "credential": answer}
}

// register registers a device.
func register(t *testing.T, c *testkit.Client, d *device, name string) (at string, recovery []string) {
	t.Helper()
	at, options := newPasskey(t, c, name)
	return at, testkit.Decode[mfa.Authenticator](c.Do("PATCH", at, newKeyBody(d.create(options))).Want(200)).RecoveryCodes
}

func loginAnswer(v *mfa.LoginVerify, answer map[string]any) map[string]any {
	return map[string]any{"credential": answer, "challenge": v.Challenge}
}

// confirmWith confirms a code of an authenticator with a device.
func confirmWith(c *testkit.Client, at string, d *device) {
	d.t.Helper()
	code := testkit.Decode[mfa.VerifyCode](c.Do("POST", at+"/code", `{}`).Want(200))
	c.Do("PATCH", path("%s/code/%d", at, code.ID), map[string]any{"credential": d.sign(code.Options)}).Want(200)
}

// Security keys are registered under names, and from then on one of them signs at each login.
func TestPasskeys(t *testing.T) {
	t.Parallel()
	s, c := newFixtureWith(t, withPasskeys)
	for _, kind := range []string{"admin", "client"} {
		email := "keys@" + kind + ".example.com"
		s.newPerson(kind, email)
		login := loginBody(kind, email, password)
		_, session := signIn(t, c, login)
		at, options := newPasskey(t, session, "blue key")
		if options.Party.ID != "example.com" || options.Party.Name != "Ironplane" || options.User.ID == "" ||
			options.Selection.UserVerification != "discouraged" ||
			options.Attestation != "none" ||
			len(options.Exclude) != 0 {
			t.Errorf("got the options %+v, want those of a first passkey of example.com", options)
		}
		session.Do("PATCH", at, `{"verified": true}`).WantErrors("/verified", "unconfirmed")
		signIn(t, c, login) // as long as it is not verified
		blue := newDevice(t)
		blue.counter = 1
		_, other := signIn(t, c, login)
		other.Do("PATCH", at, newKeyBody(blue.create(options))).WantErrors("/verified", "unconfirmed") // another session's
		verified := testkit.Decode[mfa.Authenticator](session.Do("PATCH", at, newKeyBody(blue.create(options))).Want(200))
		if !verified.Verified || len(verified.RecoveryCodes) != 10 || verified.Value != nil {
			t.Errorf("got %+v, want it verified with ten recovery codes and without a value", verified)
		}
		session.Do("PATCH", at, newKeyBody(blue.create(options))).Want(200) // as an answer that was lost has it sent again
		if text := session.Do("GET", at, nil).Want(200).Text; strings.Contains(text, "challenge") || !strings.Contains(text, "blue key") {
			t.Errorf("got %s, want the blue key without a challenge", text)
		}

		// A second one takes a confirmation; the first one is not made once more, and both have one name for the account.
		second, secondOptions := newPasskey(t, session, "spare key")
		if len(secondOptions.Exclude) != 1 || secondOptions.Exclude[0].ID != base64url(blue.id) || secondOptions.User.ID != options.User.ID {
			t.Errorf("got the options %+v, want the first key excluded and the user %s", secondOptions, options.User.ID)
		}
		session.Do("PATCH", second, newKeyBody(blue.create(secondOptions))).WantErrors("/credential", "taken") // by a browser that does not look
		spare := newDevice(t)
		spare.flags |= flagMany
		testkit.Execute(t, s.DB, "UPDATE verify_code SET confirmed_at = confirmed_at - interval '11 minutes'")
		session.Do("PATCH", second, newKeyBody(spare.create(secondOptions))).Want(403)
		session.Do("POST", "/auth/verify/auth", `{"method": 3}`).Want(403)
		confirmWith(session, at, blue)
		session.Do("PATCH", second, newKeyBody(spare.create(secondOptions))).Want(200)

		// A login asks for either.
		v := beginLogin(t, c, login)
		asked := read[requestOptions](t, v.Code.Options)
		if asked.Domain != "example.com" || asked.UserVerification != "discouraged" || len(asked.Allow) != 2 ||
			len(asked.Allow[0].Transports) != 2 ||
			len(v.Auths) != 2 {
			t.Errorf("got the options %+v, want two keys of example.com and two authenticators", asked)
		}
		anonymous := c.WithKey("")
		anonymous.Do("PATCH", codePath(v), map[string]any{"credential": spare.sign(v.Code.Options)}).Want(401)
		anonymous.Do("PATCH", codePath(v), map[string]any{"token": invalidToken, "challenge": v.Challenge}).WantErrors("/token", "wrong")
		answer := spare.altered(func(d *device) { d.handle = options.User.ID }).sign(v.Code.Options)
		key := testkit.Decode[mfa.ConfirmedKey](anonymous.Do("PATCH", codePath(v), loginAnswer(v, answer)).Want(200)).Key
		if key.Key == "" {
			t.Errorf("got %+v, want a key with its value", key)
		}
		anonymous.Do("PATCH", codePath(v), loginAnswer(v, answer)).WantErrors("/token", "expired")
		v2 := beginLogin(t, c, login)
		anonymous.Do("PATCH", codePath(v2), loginAnswer(v2, answer)).WantErrors("/credential", "wrong")
		anonymous.Do("PATCH", codePath(v2), loginAnswer(v2, blue.sign(v2.Code.Options))).Want(200)
		v = beginLogin(t, c, login)
		completeLogin(t, c, v, verified.RecoveryCodes[0])

		// Removing the last one takes a confirmation.
		in := c.WithKey(key.Key).WithT(t)
		in.Do("PATCH", second, `{"name": "green key"}`).Want(200)
		in.Do("DELETE", second, nil).Want(200)
		testkit.Execute(t, s.DB, "UPDATE verify_code SET confirmed_at = confirmed_at - interval '11 minutes'")
		in.Do("DELETE", at, nil).Want(403)
		in.Do("PATCH", at, `{"verified": false}`).Want(403)
		confirmWith(in, at, blue)
		in.Do("PATCH", at, `{"verified": false}`).Want(200)
		in.Do("PATCH", at, `{"verified": true}`).WantErrors("/verified", "unconfirmed")
		renewed := testkit.Decode[mfa.VerifyCode](in.Do("POST", at+"/code", `{}`).Want(200))
		in.Do("PATCH", path("%s/code/%d", at, renewed.ID), map[string]any{"credential": blue.create(read[creationOptions](t, renewed.Options))}).
			WantErrors("/credential", "wrong")
		in.Do("PATCH", at, newKeyBody(blue.create(read[creationOptions](t, renewed.Options)))).Want(200)
		confirmWith(in, at, blue)
		in.Do("DELETE", at, nil).Want(200)
		signIn(t, c, login)
	}
	for kind, want := range map[string]int{"admin.verify_code.refused": 3, "auth.verify.auth.verified": 6, "auth.verify.auth.deleted": 4} {
		s.wantRecords(kind, want)
	}
}

// What is not the right answer of the right key is refused, and the log says why.
func TestInvalidPasskeys(t *testing.T) {
	t.Parallel()
	s, c := newFixtureWith(t, withPasskeys)
	ben := s.newPerson("client", "ben@example.com")
	s.newPerson("client", "eve@example.com")
	s.newPerson("client", "dora@example.com") // an account has twenty wrong ones in a quarter of an hour
	login := loginBody("client", "ben@example.com", password)
	_, benClient := signIn(t, c, login)
	_, doraClient := signIn(t, c, loginBody("client", "dora@example.com", password))
	_, eveClient := signIn(t, c, loginBody("client", "eve@example.com", password))
	key, hers := newDevice(t), newDevice(t)
	key.counter = 7
	origin := func(o string) func(*device) { return func(d *device) { d.origin = o } }
	says := func(name string, value any) func(*device) {
		return func(d *device) { d.client = map[string]any{name: value} }
	}
	alterations := map[string]func(*device){
		"another origin":          origin("https://evil.example.net"),
		"an origin below":         origin("https://evil.example.com"),
		"an origin without TLS":   origin("http://panel.example.com"),
		"another port":            origin(panel + ":8443"),
		"another domain":          func(d *device) { d.domain = "evil.example.net" },
		"another challenge":       says("challenge", base64url(bytes.Repeat([]byte{1}, 32))),
		"another kind":            says("type", "payment.get"),
		"a page within a page":    says("crossOrigin", true),
		"nobody's presence":       func(d *device) { d.flags = 0 },
		"copies of what has none": func(d *device) { d.flags |= 1 << 4 },
	}
	at, options := newPasskey(t, doraClient, "key")
	for name, alter := range alterations {
		response := doraClient.Do("PATCH", at, newKeyBody(key.altered(alter).create(options)))
		if name == "another challenge" {
			response.WantErrors("/verified", "unconfirmed")
			continue
		}
		response.WantErrors("/credential", "wrong")
		testkit.Execute(t, s.DB, "UPDATE verify_code SET tries = 0")
	}
	// Five wrong answers end what is asked.
	for range 5 {
		doraClient.Do("PATCH", at, newKeyBody(key.altered(alterations["another origin"]).create(options))).WantErrors("/credential", "wrong")
	}
	doraClient.Do("PATCH", at, newKeyBody(key.create(options))).WantErrors("/credential", "expired")
	renewed := testkit.Decode[mfa.VerifyCode](doraClient.Do("POST", at+"/code", `{}`).Want(200))
	testkit.Execute(t, s.DB, "UPDATE verify_code SET expires_at = now() WHERE id = $1", renewed.ID)
	doraClient.Do("PATCH", at, newKeyBody(key.create(read[creationOptions](t, renewed.Options)))).WantErrors("/credential", "expired")
	renewed = testkit.Decode[mfa.VerifyCode](doraClient.Do("POST", at+"/code", `{}`).Want(200))
	doraClient.Do("PATCH", at, newKeyBody(key.create(read[creationOptions](t, renewed.Options)))).Want(200)

	register(t, benClient, key.altered(func(d *device) { d.id = []byte("ben") }), "key")
	key.id = []byte("ben")
	register(t, eveClient, hers, "hers")
	alterations["another account's key"] = func(d *device) { d.id, d.key = hers.id, hers.key }
	alterations["the signature of another key"] = func(d *device) { d.key = hers.key }
	alterations["another account's name"] = func(d *device) { d.handle = base64url([]byte("somebody else")) }
	alterations["copies that cannot be"] = func(d *device) { d.flags |= flagMany }
	alterations["a counter that stands"] = func(d *device) { d.counter-- }
	alterations["a counter that goes back"] = func(d *device) { d.counter = 1 }
	alterations["a counter that is gone"] = func(d *device) { d.counter = 0 }
	for name, alter := range alterations {
		v := beginLogin(t, c, login)
		response := c.WithKey("").Do("PATCH", codePath(v), loginAnswer(v, key.altered(alter).sign(v.Code.Options)))
		if response.WantErrors("/credential", "wrong"); strings.Contains(response.Text, "ip_") {
			t.Errorf("%s: got %s, want no key", name, response.Text)
		}
		testkit.Execute(t, s.DB, "DELETE FROM verify_code")
	}
	// What is asked of one is not answered by another, and what is asked of one login not in another.
	v, w := beginLogin(t, c, login), beginLogin(t, c, loginBody("client", "eve@example.com", password))
	c.WithKey("").Do("PATCH", codePath(w), loginAnswer(w, key.sign(v.Code.Options))).WantErrors("/credential", "wrong")
	c.WithKey("").Do("PATCH", codePath(v), loginAnswer(w, key.sign(v.Code.Options))).Want(401)
	c.WithKey("").
		Do(
			"PATCH", codePath(v),
			map[string]any{"challenge": v.Challenge, "credential": map[string]any{"type": "public-key", "id": strings.Repeat("A", 1401)}},
		).
		WantErrors("/credential/id", "too_long")
	c.WithKey("").Do("PATCH", codePath(v), loginAnswer(v, key.sign(v.Code.Options))).Want(200)
	// A changed password ends what was asked for before.
	v = beginLogin(t, c, login)
	s.editClient(ben, func(a *credentials.Account) { a.Version++ })
	c.WithKey("").Do("PATCH", codePath(v), loginAnswer(v, key.sign(v.Code.Options))).WantErrors("/token", "expired")
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
	testkit.Eventually(t, "the account is told", func() bool {
		return slices.ContainsFunc(s.Clients.Received(), func(m events.Message) bool {
			return m.Kind == mail.ChangedKind && strings.Contains(string(m.Content), "there may be")
		})
	})
}

// Of however many who send one answer, or register one key, at once, one gets through.
func TestPasskeyCountsOnce(t *testing.T) {
	t.Parallel()
	s, c := newFixtureWith(t, withPasskeys)
	s.newPerson("client", "ben@example.com")
	login := loginBody("client", "ben@example.com", password)
	_, session := signIn(t, c, login)
	at, options := newPasskey(t, session, "key")
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
		key := newDevice(t)
		key.counter = counter
		if n := once(session, at, newKeyBody(key.create(options))); n != 1 {
			t.Errorf("answers with one new key: got %d accepted, want 1", n)
		}
		v := beginLogin(t, c, login)
		if n := once(c.WithKey(""), codePath(v), loginAnswer(v, key.sign(v.Code.Options))); n != 1 {
			t.Errorf("answers with one signature: got %d signed in, want 1", n)
		}
		confirmWith(session, at, key)
		session.Do("DELETE", at, nil).Want(200)
		at, options = newPasskey(t, session, "key")
	}
}

// Devices choose one of the algorithms that are asked for.
func TestPasskeyAlgorithms(t *testing.T) {
	t.Parallel()
	s, c := newFixtureWith(t, withPasskeys)
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
		right := newDevice(t).altered(func(d *device) { d.key = key })
		register(t, session, right, name)
		v := beginLogin(t, c, login)
		otherKey := newDevice(t).altered(func(d *device) { d.id = right.id })
		c.WithKey("").Do("PATCH", codePath(v), loginAnswer(v, otherKey.sign(v.Code.Options))).WantErrors("/credential", "wrong")
		c.WithKey("").Do("PATCH", codePath(v), loginAnswer(v, right.sign(v.Code.Options))).Want(200)
	}
}

// A PIN or a finger is asked for where the setting says so.
func TestPasskeysVerifyUsers(t *testing.T) {
	t.Parallel()
	s, c := newFixtureWith(t, withPasskeys)
	s.newPerson("admin", "anna@example.com")
	login := loginBody("admin", "anna@example.com", password)
	_, session := signIn(t, c, login)
	touched := newDevice(t)
	at, _ := register(t, session, touched, "key")
	s.System.SetSetting("security.verify_passkeys", "1")
	var v *mfa.LoginVerify
	testkit.Eventually(t, "the setting counts", func() bool {
		v = beginLogin(t, c, login)
		return read[requestOptions](t, v.Code.Options).UserVerification == "required"
	})
	c.WithKey("").Do("PATCH", codePath(v), loginAnswer(v, touched.sign(v.Code.Options))).WantErrors("/credential", "wrong")
	unlocked := touched.altered(func(d *device) { d.flags |= flagUser })
	c.WithKey("").Do("PATCH", codePath(v), loginAnswer(v, unlocked.sign(v.Code.Options))).Want(200)
	confirmWith(session, at, unlocked)
	second, options := newPasskey(t, session, "second")
	if options.Selection.UserVerification != "required" {
		t.Errorf("got the options %+v, want user verification required", options)
	}
	session.Do("PATCH", second, newKeyBody(newDevice(t).create(options))).WantErrors("/credential", "wrong")
	session.Do("PATCH", second, newKeyBody(newDevice(t).altered(func(d *device) { d.flags |= flagUser }).create(options))).Want(200)
}

// Where nothing is said of a domain, no keys are made; those that there are from before are stood in for by recovery codes.
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
	a, recovery := verifiedApp(t, s, session)
	var earlier int64
	if err := s.DB.QueryRow(t.Context(), `
		INSERT INTO authenticator (owner_type, owner_id, method_id, verified, domain, handle, credential, public_key)
		SELECT owner_type, owner_id, 3, true, 'before.example.net', 'h', 'c', 'p' FROM authenticator WHERE id = $1 RETURNING id`, a.id).Scan(&earlier); err != nil {
		t.Fatal(err)
	}
	if v := beginLogin(t, c, login); v.Code.Auth.ID != a.id || len(v.Auths) != 2 {
		t.Errorf("got %+v, want a code of authenticator %d out of two", v, a.id)
	}
	session.Do("DELETE", a.path(), nil).Want(200)
	v := beginLogin(t, c, login)
	if v.Code.Auth.ID != earlier || v.Code.Options != nil {
		t.Errorf("got %+v, want a code of authenticator %d without options", v, earlier)
	}
	c.WithKey("").
		Do("PATCH", codePath(v), loginAnswer(v, newDevice(t).answer("webauthn.get", "AAAA", newDevice(t).data(0), map[string]any{}))).
		WantErrors("/credential", "wrong")
	completeLogin(t, c, v, recovery[0])
}

// Nobody registers a key for somebody else, whatever he may write.
func TestPasskeysOfOthers(t *testing.T) {
	t.Parallel()
	s, c := newFixtureWith(t, withPasskeys)
	_, annaClient := newAdmin(t, c, "anna", `{"users": {"admins": {"read": true, "write": true}}}`)
	_, bigClient := newAdmin(t, c, "big", `{"network": {"groups": {"read": true, "write": true}}}`)
	client := s.newPerson("client", "ben@example.com")
	at, options := newPasskey(t, bigClient, "key")
	for name, caller := range map[string]*testkit.Client{"who holds less": annaClient, "who holds all": c} {
		want := map[string]int{"who holds less": 403, "who holds all": 422}[name]
		caller.Do("PATCH", at, newKeyBody(newDevice(t).create(options))).Want(want)
		caller.Do("POST", at+"/code", `{}`).Want(403)
	}
	acting := c.WithKey(
		testkit.Decode[login.GivenKey](
			c.Do("POST", "/auth/key", map[string]any{"owner": map[string]any{"url": path("/client/%d", client)}}).Want(200),
		).Key,
	)
	acting.Do("POST", "/auth/verify/auth", `{"method": 3}`).Want(403)
	bigClient.Do("PATCH", at, newKeyBody(newDevice(t).create(options))).Want(200)
}
