package product_test

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
	"slices"
	"testing"

	"github.com/ironplane/ironplane/pkg/service"
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

var base64url = base64.RawURLEncoding.EncodeToString

// answer is what the browser answers, of which response is what it says besides.
func (d *device) answer(kind, challenge string, data []byte, response map[string]any) map[string]any {
	said := map[string]any{"type": kind, "challenge": challenge, "origin": d.origin, "crossOrigin": false}
	for name, value := range d.client {
		said[name] = value
	}
	client, err := json.Marshal(said)
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
	d.t.Fatalf("got a key of type %T, want Ed25519, RSA or ECDSA", d.key)
	return nil
}

func read[T any](t *testing.T, text []byte) (v T) {
	t.Helper()
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatalf("read %s: %v", text, err)
	}
	return v
}

func created(answer map[string]any) map[string]any {
	return map[string]any{"verified": true, "credential": answer}
}
