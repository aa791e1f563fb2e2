package secondfactor

import (
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
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/testkit"
)

// Origin is the panel's origin, and Domain the domain of the keys that it uses.
const Origin, Domain = "https://panel.example.com", "example.com"

// Settings lets the panel, and an admin's panel, use security keys.
var Settings = service.Settings{PasskeyDomain: Domain, PasskeyOrigins: "https://admin.example.com, " + Origin}

// The flags of authenticator data, as WebAuthn numbers them.
const (
	UserPresent    = 1 << 0
	UserVerified   = 1 << 2
	BackupEligible = 1 << 3
	BackedUp       = 1 << 4
	attested       = 1 << 6
)

// Device is a security key with the browser that it is plugged into. Tests change its fields to make it misbehave.
type Device struct {
	ID         []byte
	Key        crypto.Signer
	Domain     string
	Origin     string
	Flags      byte
	Counter    uint32 // of signatures; 0: the device does not count
	UserHandle string
	ClientData map[string]any // members that replace those of the browser's client data
	t          testing.TB
}

// NewDevice returns a device with a P-256 key at the panel.
func NewDevice(t testing.TB) *Device {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	id := make([]byte, 32)
	rand.Read(id)
	return &Device{ID: id, Key: key, Domain: Domain, Origin: Origin, Flags: UserPresent, t: t}
}

// With returns a copy of the device with a change.
func (d *Device) With(change func(*Device)) *Device {
	other := *d
	change(&other)
	return &other
}

// CreationOptions ask a browser to create a key.
type CreationOptions struct {
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

// RequestOptions ask a browser to sign with a key.
type RequestOptions struct {
	Challenge        string `json:"challenge"`
	Domain           string `json:"rpId"`
	UserVerification string `json:"userVerification"`
	Allow            []struct {
		ID         string
		Transports []string
	} `json:"allowCredentials"`
}

// ParseOptions reads options that the API has returned.
func ParseOptions[T any](t testing.TB, text []byte) (options T) {
	t.Helper()
	if err := json.Unmarshal(text, &options); err != nil {
		t.Fatalf("parse the options %s: %v", text, err)
	}
	return options
}

// Base64URL encodes bytes as WebAuthn's JSON does.
func Base64URL(data []byte) string { return base64.RawURLEncoding.EncodeToString(data) }

// NewKey creates an authenticator for a security key of the client's account. It returns the authenticator's path, and the options
// that the browser gets.
func NewKey(t testing.TB, c *testkit.Client, name string) (path string, options CreationOptions) {
	t.Helper()
	created := testkit.Decode[struct {
		Authenticator
		Name   string
		Method struct{ Name string }
	}](c.Do("POST", "/auth/verify/auth", map[string]any{"method": 3, "name": name}).Want(200))
	if created.Value == nil || created.Verified || created.Name != name || created.Method.Name != "passkey" {
		t.Fatalf("got %+v, want an unverified passkey called %s with its options", created, name)
	}
	return fmt.Sprintf("/auth/verify/auth/%d", created.ID), ParseOptions[CreationOptions](t, []byte(*created.Value))
}

// VerifyBody returns the body that verifies an authenticator with a new key's credential.
func VerifyBody(credential map[string]any) map[string]any {
	return map[string]any{"verified": true, "credential": credential}
}

// Register creates and verifies an authenticator for the device. It returns its path, and the recovery codes of a first one.
func (d *Device) Register(c *testkit.Client, name string) (path string, recovery []string) {
	d.t.Helper()
	path, options := NewKey(d.t, c, name)
	return path, testkit.Decode[Authenticator](c.Do("PATCH", path, VerifyBody(d.Create(options))).Want(200)).RecoveryCodes
}

// Confirm has the client's key confirm a code of the authenticator at a path.
func (d *Device) Confirm(c *testkit.Client, path string) {
	d.t.Helper()
	code := testkit.Decode[struct {
		ID      int64
		Options json.RawMessage
	}](c.Do("POST", path+"/code", `{}`).Want(200))
	c.Do("PATCH", fmt.Sprintf("%s/code/%d", path, code.ID), map[string]any{"credential": d.Sign(code.Options)}).Want(200)
}

// Create returns the credential of a new key.
func (d *Device) Create(options CreationOptions) map[string]any {
	d.t.Helper()
	data := binary.BigEndian.AppendUint16(append(d.data(attested), make([]byte, 16)...), uint16(len(d.ID)))
	data = slices.Concat(data, d.ID, d.PublicKey())
	object := append([]byte("\xa3\x63fmt\x64none\x67attStmt\xa0\x68authData\x59"), binary.BigEndian.AppendUint16(nil, uint16(len(data)))...)
	return d.credential("webauthn.create", options.Challenge, data, map[string]any{
		"attestationObject": Base64URL(append(object, data...)), "transports": []string{"usb", "nfc"},
	})
}

// CreateFrom is Create for options that are not parsed yet.
func (d *Device) CreateFrom(options json.RawMessage) map[string]any {
	d.t.Helper()
	return d.Create(ParseOptions[CreationOptions](d.t, options))
}

// Sign returns the credential with which the key answers options, and counts the signature.
func (d *Device) Sign(options json.RawMessage) map[string]any {
	d.t.Helper()
	request := ParseOptions[RequestOptions](d.t, options)
	if d.Counter > 0 {
		d.Counter++
	}
	return d.SignChallenge(request.Challenge)
}

// SignChallenge is Sign for a challenge without options. It does not count.
func (d *Device) SignChallenge(challenge string) map[string]any {
	return d.credential("webauthn.get", challenge, d.data(0), map[string]any{})
}

// credential returns a credential as PublicKeyCredential.toJSON() does. response has the members that differ by kind.
func (d *Device) credential(kind, challenge string, data []byte, response map[string]any) map[string]any {
	clientData := map[string]any{"type": kind, "challenge": challenge, "origin": d.Origin, "crossOrigin": false}
	maps.Copy(clientData, d.ClientData)
	client, err := json.Marshal(clientData)
	if err != nil {
		d.t.Fatal(err)
	}
	response["clientDataJSON"], response["authenticatorData"] = Base64URL(client), Base64URL(data)
	if kind == "webauthn.get" {
		sum := sha256.Sum256(client)
		signature, err := crypto.SignMessage(d.Key, rand.Reader, slices.Concat(data, sum[:]), d.hash())
		if err != nil {
			d.t.Fatal(err)
		}
		response["signature"] = Base64URL(signature)
		if d.UserHandle != "" {
			response["userHandle"] = d.UserHandle
		}
	}
	return map[string]any{
		"id":                     Base64URL(d.ID),
		"rawId":                  Base64URL(d.ID),
		"type":                   "public-key",
		"response":               response,
		"clientExtensionResults": map[string]any{},
	}
}

// data returns the authenticator data, which the device signs.
func (d *Device) data(flags byte) []byte {
	domain := sha256.Sum256([]byte(d.Domain))
	return binary.BigEndian.AppendUint32(append(domain[:], d.Flags|flags), d.Counter)
}

// hash returns the hash that is signed. Ed25519 signs the whole message.
func (d *Device) hash() crypto.Hash {
	if _, whole := d.Key.(ed25519.PrivateKey); whole {
		return 0
	}
	return crypto.SHA256
}

// PublicKey returns the public key in CBOR, as COSE defines it.
func (d *Device) PublicKey() []byte {
	d.t.Helper()
	switch key := d.Key.Public().(type) {
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
	d.t.Fatalf("got a key of type %T, want Ed25519, RSA or ECDSA", d.Key)
	return nil
}
