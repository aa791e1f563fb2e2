package passkey_test

import (
	"crypto"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/descope/virtualwebauthn"
	"github.com/go-webauthn/webauthn/protocol"
	"github.com/go-webauthn/webauthn/webauthn"

	"github.com/ironplane/ironplane/services/identity/passkey"
)

const page = "https://panel.example.com"

// What is said of the domain and of its pages makes sense, or nothing is said.
func TestParse(t *testing.T) {
	t.Parallel()
	for _, right := range [][2]string{{"", ""}, {"example.com", page}, {"example.com", "https://example.com,  https://a.b.example.com:8443"}, {"localhost", "http://localhost:5173"}} {
		if p, err := passkey.Parse(right[0], right[1], time.Minute); err != nil || (p == nil) != (right[0] == "") {
			t.Errorf("%q: %v %v", right, p, err)
		}
	}
	for _, wrong := range [][2]string{{"example.com", ""}, {"", page}, {"example.com", "panel.example.com"}, {"example.com", page + "/"}, {"example.com", "https://Panel.example.com"},
		{"example.com", page + ":443"}, {"example.com", page + ":"}, {"example.com", "http://panel.example.com"}, {"example.com", "https://notexample.com"}, {"example.com", "https://user@example.com"},
		{"192.0.2.1", "https://192.0.2.1"}, {"example.com", "https://*.example.com"}, {"ample.com", "https://example.com"}, {"Example.com", "https://example.com"}} {
		if p, err := passkey.Parse(wrong[0], wrong[1], time.Minute); err == nil {
			t.Errorf("%q is %+v", wrong, p)
		}
	}
}

// browser is a device as another library has it, and what is said otherwise than it should be.
type browser struct {
	name   string
	page   virtualwebauthn.RelyingParty
	device virtualwebauthn.AuthenticatorOptions
	alter  func(answer map[string]any)
	wrong  bool
}

func of(b browser, alter func(*browser)) browser { b.wrong = true; alter(&b); return b }

// What we take for right and for wrong is what the usual library does.
func TestLikeTheUsualLibrary(t *testing.T) {
	t.Parallel()
	p, err := passkey.Parse("example.com", page, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	right := browser{name: "right", page: virtualwebauthn.RelyingParty{ID: "example.com", Name: "x", Origin: page}}
	response := func(name string, change func(string) string) func(*browser) {
		return func(b *browser) {
			b.alter = func(answer map[string]any) {
				of := answer["response"].(map[string]any)
				of[name] = change(of[name].(string))
			}
		}
	}
	flip := func(text string) string {
		raw, err := base64.RawURLEncoding.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		raw[len(raw)-1] ^= 1
		return base64.RawURLEncoding.EncodeToString(raw)
	}
	client := func(name string, value any) func(*browser) {
		return response("clientDataJSON", func(text string) string {
			raw, _ := base64.RawURLEncoding.DecodeString(text)
			said := map[string]any{}
			if err := json.Unmarshal(raw, &said); err != nil {
				t.Fatal(err)
			}
			said[name] = value
			raw, _ = json.Marshal(said)
			return base64.RawURLEncoding.EncodeToString(raw)
		})
	}
	verified := passkey.Policy{Site: "x", Verify: true}
	touched := passkey.Policy{Site: "x"}
	for _, kind := range []virtualwebauthn.KeyType{virtualwebauthn.KeyTypeEC2, virtualwebauthn.KeyTypeRSA} {
		for _, policy := range []passkey.Policy{touched, verified} {
			browsers := []browser{right,
				of(right, func(b *browser) { b.name, b.page.Origin = "another origin", "https://evil.example.com" }),
				of(right, func(b *browser) { b.name, b.page.ID = "another domain", "evil.example.net" }),
				of(right, func(b *browser) { b.name, b.device.UserNotPresent = "nobody there", true }),
				of(right, func(b *browser) { b.name, b.device.BackupState = "a copy of what has none", true }),
				{name: "with copies", page: right.page, device: virtualwebauthn.AuthenticatorOptions{BackupEligible: true, BackupState: true}},
				{name: "a touch alone", page: right.page, device: virtualwebauthn.AuthenticatorOptions{UserNotVerified: true}, wrong: policy.Verify},
				of(right, func(b *browser) { client("type", "payment.get")(b); b.name = "another type" }),
				of(right, func(b *browser) { client("challenge", "AAAA")(b); b.name = "another challenge" }),
				of(right, func(b *browser) { client("crossOrigin", true)(b); b.name = "a page within a page" }),
				of(right, func(b *browser) {
					b.name, b.alter = "another id", func(answer map[string]any) { answer["rawId"] = "AAAA" }
				}),
			}
			if kind == virtualwebauthn.KeyTypeRSA { // which takes long to make
				browsers = browsers[:1]
			}
			for _, b := range browsers {
				compare(t, p, kind, policy, right, b)
			}
			compare(t, p, kind, policy, right, of(right, func(b *browser) { response("signature", flip)(b); b.name = "another signature" }))
			compare(t, p, kind, policy, right, of(right, func(b *browser) { response("authenticatorData", flip)(b); b.name = "another counter" }))
		}
	}
}

// compare has a browser make a key, and sign with one that was made rightly, and asks both libraries what they think of it.
func compare(t *testing.T, p *passkey.Party, kind virtualwebauthn.KeyType, policy passkey.Policy, right, b browser) {
	t.Helper()
	mode := map[bool]protocol.UserVerificationRequirement{true: protocol.VerificationRequired, false: protocol.VerificationDiscouraged}[policy.Verify]
	usual, err := webauthn.New(&webauthn.Config{RPID: "example.com", RPDisplayName: "x", RPOrigins: []string{page}})
	if err != nil {
		t.Fatal(err)
	}
	account := passkey.Account{Handle: []byte("handle"), Name: "ben"}
	session := func(challenge []byte) webauthn.SessionData {
		return webauthn.SessionData{Challenge: base64.RawURLEncoding.EncodeToString(challenge), RelyingPartyID: "example.com", UserID: account.Handle, UserVerification: mode, CredParams: webauthn.CredentialParametersDefault()}
	}
	credential := virtualwebauthn.NewCredential(kind)
	for len(credential.Key.AttestationData()) < 77 { // the other library drops zeros at the beginning of a number
		credential = virtualwebauthn.NewCredential(kind)
	}
	credential.Counter = 8

	create := func(b browser) (k passkey.Key, ours error, theirs *webauthn.Credential, err error) {
		options, challenge, optionsErr := p.NewKey(account, policy)
		asked, parseErr := virtualwebauthn.ParseAttestationOptions(string(options))
		if optionsErr != nil || parseErr != nil {
			t.Fatal(optionsErr, parseErr)
		}
		answer := asObject(t, virtualwebauthn.CreateAttestationResponse(b.page, virtualwebauthn.NewAuthenticatorWithOptions(b.device), credential, *asked))
		addKey(t, answer, credential)
		if b.alter != nil {
			b.alter(answer)
		}
		text, _ := json.Marshal(answer)
		k, ours = p.Made(policy, challenge, asAnswer(t, text))
		parsed, err := protocol.ParseCredentialCreationResponseBytes(text)
		if err == nil {
			theirs, err = usual.CreateCredential(user{account, nil}, session(challenge), parsed)
		}
		return k, ours, theirs, err
	}
	of := string(kind) + ", " + b.name + map[bool]string{true: ", verified"}[policy.Verify]
	if !strings.HasPrefix(b.name, "another signature") && !strings.HasPrefix(b.name, "another counter") { // which a new key has not, or nobody signs
		if _, ours, _, theirs := create(b); (ours != nil) != b.wrong || (theirs != nil) != b.wrong {
			t.Errorf("a new key, %s: we say %v, and the other library %v", of, ours, theirs)
		}
	}
	maker := right
	maker.device.BackupEligible = b.device.BackupEligible
	made, ours, theirs, err := create(maker)
	if ours != nil || err != nil {
		t.Fatal(ours, err)
	}
	account.Keys = []passkey.Key{made}
	credential.Counter++
	options, challenge, err := p.Sign(account, policy)
	if err != nil {
		t.Fatal(err)
	}
	asked, err := virtualwebauthn.ParseAssertionOptions(string(options))
	if err != nil {
		t.Fatal(err)
	}
	answer := asObject(t, virtualwebauthn.CreateAssertionResponse(b.page, virtualwebauthn.NewAuthenticatorWithOptions(b.device), credential, *asked))
	if b.alter != nil {
		b.alter(answer)
	}
	text, _ := json.Marshal(answer)
	_, ours = p.Signed(account, policy, challenge, asAnswer(t, text))
	parsed, err := protocol.ParseCredentialRequestResponseBytes(text)
	if err == nil {
		_, err = usual.ValidateLogin(user{account, []webauthn.Credential{*theirs}}, session(challenge), parsed)
	}
	if (ours != nil) != b.wrong || (err != nil) != b.wrong {
		t.Errorf("a signature, %s: we say %v, and the other library %v", of, ours, err)
	}
}

type user struct {
	passkey.Account
	credentials []webauthn.Credential
}

func (u user) WebAuthnID() []byte                         { return u.Handle }
func (u user) WebAuthnName() string                       { return u.Name }
func (u user) WebAuthnDisplayName() string                { return u.Name }
func (u user) WebAuthnCredentials() []webauthn.Credential { return u.credentials }

func asObject(t *testing.T, text string) (object map[string]any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &object); err != nil {
		t.Fatal(err)
	}
	return object
}

func asAnswer(t *testing.T, text []byte) (a passkey.Credential) {
	t.Helper()
	if err := json.Unmarshal(text, &a); err != nil {
		t.Fatal(err)
	}
	return a
}

// addKey adds to an answer what browsers say besides.
func addKey(t *testing.T, answer map[string]any, credential virtualwebauthn.Credential) {
	t.Helper()
	response := answer["response"].(map[string]any)
	raw, err := base64.RawURLEncoding.DecodeString(response["attestationObject"].(string))
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := (&protocol.AuthenticatorAttestationResponse{AuthenticatorResponse: protocol.AuthenticatorResponse{ClientDataJSON: []byte(`{}`)}, AttestationObject: raw}).Parse()
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.ParsePKCS8PrivateKey(credential.Key.Data)
	if err != nil {
		t.Fatal(err)
	}
	public, err := x509.MarshalPKIXPublicKey(key.(crypto.Signer).Public())
	if err != nil {
		t.Fatal(err)
	}
	response["authenticatorData"], response["publicKey"] = base64.RawURLEncoding.EncodeToString(parsed.AttestationObject.RawAuthData), base64.RawURLEncoding.EncodeToString(public)
}
