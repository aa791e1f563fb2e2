package passkey_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/descope/virtualwebauthn"

	"github.com/ironplane/ironplane/services/identity/passkey"
)

const page = "https://panel.example.com"

// The domain and the origins must match, or both be empty.
func TestParse(t *testing.T) {
	t.Parallel()
	for _, valid := range [][2]string{
		{"", ""}, {"example.com", page}, {"example.com", "https://example.com,  https://a.b.example.com:8443"},
		{"localhost", "http://localhost:5173"},
	} {
		if p, err := passkey.Parse(valid[0], valid[1], time.Minute); err != nil || (p == nil) != (valid[0] == "") {
			t.Errorf("%q: got %v and the error %v, want passkeys only with a domain, and no error", valid, p, err)
		}
	}
	for _, invalid := range [][2]string{{"example.com", ""}, {"", page}, {"example.com", "panel.example.com"}, {"example.com", page + "/"},
		{"example.com", "https://Panel.example.com"},
		{"example.com", page + ":443"}, {"example.com", page + ":"}, {"example.com", "http://panel.example.com"},
		{"example.com", "https://notexample.com"}, {"example.com", "https://user@example.com"},
		{"192.0.2.1", "https://192.0.2.1"}, {"example.com", "https://*.example.com"}, {"ample.com", "https://example.com"},
		{"Example.com", "https://example.com"}} {
		if p, err := passkey.Parse(invalid[0], invalid[1], time.Minute); err == nil {
			t.Errorf("%q: got %+v, want an error", invalid, p)
		}
	}
}

// browser is a device of another library, with its deviations from a valid one.
type browser struct {
	name      string
	page      virtualwebauthn.RelyingParty
	device    virtualwebauthn.AuthenticatorOptions
	alter     func(answer map[string]any)
	isInvalid bool
	signs     bool // isInvalid is about signatures only
}

func altered(b browser, alter func(*browser)) browser { b.isInvalid = true; alter(&b); return b }

// A credential counts only if it is for these origins, meets the policy, and signs the challenge.
func TestAnswers(t *testing.T) {
	t.Parallel()
	p, err := passkey.Parse("example.com", page, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	valid := browser{name: "right", page: virtualwebauthn.RelyingParty{ID: "example.com", Name: "x", Origin: page}}
	response := func(name string, change func(string) string) func(*browser) {
		return func(b *browser) {
			b.alter = func(answer map[string]any) {
				body := answer["response"].(map[string]any)
				body[name] = change(body[name].(string))
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
			clientData := map[string]any{}
			if err := json.Unmarshal(raw, &clientData); err != nil {
				t.Fatal(err)
			}
			clientData[name] = value
			raw, _ = json.Marshal(clientData)
			return base64.RawURLEncoding.EncodeToString(raw)
		})
	}
	verified := passkey.Policy{Site: "x", Verify: true}
	touched := passkey.Policy{Site: "x"}
	for _, kind := range []virtualwebauthn.KeyType{virtualwebauthn.KeyTypeEC2, virtualwebauthn.KeyTypeRSA} {
		for _, policy := range []passkey.Policy{touched, verified} {
			browsers := []browser{
				valid,
				altered(valid, func(b *browser) { b.name, b.page.Origin = "another origin", "https://evil.example.com" }),
				altered(valid, func(b *browser) { b.name, b.page.ID = "another domain", "evil.example.net" }),
				altered(valid, func(b *browser) { b.name, b.device.UserNotPresent = "nobody there", true }),
				altered(valid, func(b *browser) { b.name, b.device.BackupState = "a copy of what has none", true }),
				{name: "with copies", page: valid.page, device: virtualwebauthn.AuthenticatorOptions{BackupEligible: true, BackupState: true}},
				{
					name:      "a touch alone",
					page:      valid.page,
					device:    virtualwebauthn.AuthenticatorOptions{UserNotVerified: true},
					isInvalid: policy.Verify,
				},
				altered(valid, func(b *browser) { client("type", "payment.get")(b); b.name = "another type" }),
				altered(valid, func(b *browser) { client("challenge", "AAAA")(b); b.name = "another challenge" }),
				altered(valid, func(b *browser) { client("crossOrigin", true)(b); b.name = "a page within a page" }),
				altered(valid, func(b *browser) {
					b.name, b.alter = "another id", func(answer map[string]any) { answer["rawId"] = "AAAA" }
				}),
			}
			if kind == virtualwebauthn.KeyTypeRSA { // generating RSA keys takes long
				browsers = browsers[:1]
			}
			for _, b := range browsers {
				compare(t, p, kind, policy, valid, b)
			}
			compare(
				t,
				p,
				kind,
				policy,
				valid,
				altered(valid, func(b *browser) { response("signature", flip)(b); b.name, b.signs = "another signature", true }),
			)
			compare(
				t,
				p,
				kind,
				policy,
				valid,
				altered(valid, func(b *browser) { response("authenticatorData", flip)(b); b.name, b.signs = "another counter", true }),
			)
		}
	}
}

// compare has a browser create a key, and sign with a valid one.
func compare(t *testing.T, p *passkey.Party, kind virtualwebauthn.KeyType, policy passkey.Policy, valid, b browser) {
	t.Helper()
	account := passkey.Account{Handle: []byte("handle"), Name: "ben"}
	credential := virtualwebauthn.NewCredential(kind)
	for len(credential.Key.AttestationData()) < 77 { // the test's library drops leading zeros
		credential = virtualwebauthn.NewCredential(kind)
	}
	credential.Counter = 8
	create := func(b browser) (passkey.Key, error) {
		options, challenge, err := p.CreationOptions(account, policy)
		if err != nil {
			t.Fatal(err)
		}
		asked, err := virtualwebauthn.ParseAttestationOptions(string(options))
		if err != nil {
			t.Fatal(err)
		}
		answer := asObject(
			t,
			virtualwebauthn.CreateAttestationResponse(b.page, virtualwebauthn.NewAuthenticatorWithOptions(b.device), credential, *asked),
		)
		if b.alter != nil {
			b.alter(answer)
		}
		return p.VerifyNew(policy, challenge, asAnswer(t, answer))
	}
	refused := func(name string, err error) {
		t.Helper()
		if _, is := errors.AsType[*passkey.Refused](err); is != b.isInvalid || (err != nil) != b.isInvalid {
			t.Errorf("%s, %s, %s, verified %t: got the error %v, want refused %t", name, kind, b.name, policy.Verify, err, b.isInvalid)
		}
	}
	if !b.signs {
		_, err := create(b)
		refused("a new key", err)
	}
	maker := valid
	maker.device.BackupEligible = b.device.BackupEligible
	created, err := create(maker)
	if err != nil {
		t.Fatal(err)
	}
	account.Keys = []passkey.Key{created}
	credential.Counter++
	options, challenge, err := p.RequestOptions(account, policy)
	if err != nil {
		t.Fatal(err)
	}
	asked, err := virtualwebauthn.ParseAssertionOptions(string(options))
	if err != nil {
		t.Fatal(err)
	}
	answer := asObject(
		t,
		virtualwebauthn.CreateAssertionResponse(b.page, virtualwebauthn.NewAuthenticatorWithOptions(b.device), credential, *asked),
	)
	if b.alter != nil {
		b.alter(answer)
	}
	signed, err := p.VerifySignature(account, policy, challenge, asAnswer(t, answer))
	refused("a signature", err)
	if err != nil {
		return
	}
	if signed.Counter != 9 {
		t.Errorf("%s: got the counter %d, want 9", b.name, signed.Counter)
	}
	account.Keys = []passkey.Key{signed}
	_, err = p.VerifySignature(account, policy, challenge, asAnswer(t, answer))
	if r, is := errors.AsType[*passkey.Refused](err); !is || !r.Copied {
		t.Errorf("%s: signed twice with one counter: got %v, want a refusal of a copied key", b.name, err)
	}
}

func asObject(t *testing.T, text string) (object map[string]any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &object); err != nil {
		t.Fatal(err)
	}
	return object
}

func asAnswer(t *testing.T, object map[string]any) (a passkey.Credential) {
	t.Helper()
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &a); err != nil {
		t.Fatal(err)
	}
	return a
}
