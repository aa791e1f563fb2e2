// Package passkey speaks WebAuthn: a security key or a passkey shows, by signing a challenge, that who signs in has it. Who made a key is not
// asked (attestation is "none"), so that there are no certificates and no CBOR to be read: what has to be known of a new key, browsers say
// besides. The usual library reads both, which would be a twelfth of this service's program.
package passkey

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Party is whom keys are made for, and sign for: a domain, and the pages below it that may ask.
type Party struct {
	Domain string
	pages  []string
	await  time.Duration // how long browsers go on asking
}

// Parse reads the domain and the origins of its pages, with commas or blanks between; nil: neither is said.
func Parse(domain, origins string, await time.Duration) (*Party, error) {
	pages := strings.FieldsFunc(origins, func(r rune) bool { return r == ',' || r == ' ' })
	if domain == "" && len(pages) == 0 {
		return nil, nil
	}
	if domain == "" || len(pages) == 0 {
		return nil, errors.New("of the domain and the origins one is said and the other is not")
	}
	if _, err := netip.ParseAddr(domain); err == nil {
		return nil, fmt.Errorf("%s is an address, and keys are made for names", domain)
	}
	for _, page := range pages {
		u, err := url.Parse(page)
		if err != nil || u.Hostname() == "" || strings.Contains(u.Host, "*") || page != strings.ToLower(u.Scheme+"://"+u.Host) || strings.HasSuffix(u.Host, ":") || u.Scheme+u.Port() == "https443" {
			return nil, fmt.Errorf("%q is no origin such as https://panel.example.com", page)
		}
		if u.Scheme != "https" && (u.Scheme != "http" || u.Hostname() != "localhost") { // as browsers have it
			return nil, fmt.Errorf("%s does not begin with https://, as all must but http://localhost", page)
		}
		if u.Hostname() != domain && !strings.HasSuffix(u.Hostname(), "."+domain) {
			return nil, fmt.Errorf("%s is not below the domain %q", page, domain)
		}
	}
	return &Party{domain, pages, await}, nil
}

// Key is what is known of a key: how it is called, and what its signatures are checked with.
type Key struct {
	ID         []byte
	Public     []byte   // as PKIX
	Counter    int64    // of what it has signed; 0: it does not count
	Copied     bool     // it may be on other devices, too
	Transports []string // how browsers reach it
}

// Account is whose keys they are.
type Account struct {
	Handle []byte // random, and the same for all of its keys
	Name   string
	Keys   []Key
}

// Policy is what is asked of keys.
type Policy struct {
	Site   string // whom it is for, in words
	Verify bool   // they ask for a PIN or a finger, rather than for a touch alone
}

func (p Policy) verification() string {
	if p.Verify {
		return "required"
	}
	return "discouraged" // or browsers would have people choose PINs for keys that stand beside a password
}

// Credential is what a browser answers to options, as PublicKeyCredential.toJSON() has it.
type Credential struct {
	ID       string `json:"id" max:"1400"`
	RawID    string `json:"rawId" max:"1400"`
	Type     string `json:"type" max:"20"`
	Response struct {
		ClientDataJSON    string   `json:"clientDataJSON" max:"10000"`
		AuthenticatorData string   `json:"authenticatorData" max:"20000"`
		PublicKey         string   `json:"publicKey" max:"10000" doc:"of a new key"`
		Transports        []string `json:"transports" doc:"of a new key"`
		Signature         string   `json:"signature" max:"10000" doc:"of one that signs"`
		UserHandle        *string  `json:"userHandle" max:"100" doc:"of one that signs and knows its account"`
	} `json:"response"`
}

// Refused is why an answer does not count.
type Refused struct {
	Why    string
	Copied bool // what has signed may be a copy
}

func (r *Refused) Error() string { return r.Why }

func refuse(format string, a ...any) error { return &Refused{Why: fmt.Sprintf(format, a...)} }

const (
	challengeLength = 32
	longestID       = 1023
	inData          = 37 // bytes of what an authenticator says, before what it says of a new key
)

// Flags of what an authenticator says.
const (
	present  = 1 << 0
	verified = 1 << 2
	copyable = 1 << 3
	isCopied = 1 << 4
	hasKey   = 1 << 6
)

var encoding = base64.RawURLEncoding

type (
	descriptor struct {
		Type       string   `json:"type"`
		ID         string   `json:"id"`
		Transports []string `json:"transports,omitempty"`
	}
	named struct {
		ID          string `json:"id"`
		Name        string `json:"name"`
		DisplayName string `json:"displayName,omitempty"`
	}
	parameter struct {
		Type      string `json:"type"`
		Algorithm int    `json:"alg"`
	}
	selection struct {
		ResidentKey      string `json:"residentKey"`
		UserVerification string `json:"userVerification"`
	}
	creation struct {
		Party       named        `json:"rp"`
		User        named        `json:"user"`
		Challenge   string       `json:"challenge"`
		Parameters  []parameter  `json:"pubKeyCredParams"`
		Timeout     int64        `json:"timeout"`
		Exclude     []descriptor `json:"excludeCredentials"`
		Selection   selection    `json:"authenticatorSelection"`
		Attestation string       `json:"attestation"`
	}
	request struct {
		Challenge        string       `json:"challenge"`
		Timeout          int64        `json:"timeout"`
		Domain           string       `json:"rpId"`
		Allow            []descriptor `json:"allowCredentials"`
		UserVerification string       `json:"userVerification"`
	}
)

func (a Account) descriptors() []descriptor {
	all := []descriptor{}
	for _, k := range a.Keys {
		all = append(all, descriptor{"public-key", encoding.EncodeToString(k.ID), k.Transports})
	}
	return all
}

func newChallenge() []byte {
	challenge := make([]byte, challengeLength)
	rand.Read(challenge)
	return challenge
}

// NewKey are the options by which a browser has a key made, which is none of those that the account has.
func (p *Party) NewKey(a Account, policy Policy) (options json.RawMessage, challenge []byte, err error) {
	challenge = newChallenge()
	c := creation{
		Party: named{ID: p.Domain, Name: policy.Site}, User: named{encoding.EncodeToString(a.Handle), a.Name, a.Name},
		Challenge: encoding.EncodeToString(challenge), Timeout: p.await.Milliseconds(), Exclude: a.descriptors(),
		Selection: selection{"discouraged", policy.verification()}, Attestation: "none", // a key has room for few that it knows by itself
	}
	for _, kind := range kinds {
		c.Parameters = append(c.Parameters, parameter{"public-key", kind.algorithm})
	}
	options, err = json.Marshal(c)
	return options, challenge, err
}

// Sign are the options by which a browser has one of the account's keys sign.
func (p *Party) Sign(a Account, policy Policy) (options json.RawMessage, challenge []byte, err error) {
	challenge = newChallenge()
	options, err = json.Marshal(request{encoding.EncodeToString(challenge), p.await.Milliseconds(), p.Domain, a.descriptors(), policy.verification()})
	return options, challenge, err
}

// clientData is what a browser says of what it had done, and where.
type clientData struct {
	Type        string `json:"type"`
	Challenge   string `json:"challenge"`
	Origin      string `json:"origin"`
	CrossOrigin bool   `json:"crossOrigin"`
}

func (a Credential) client() (text []byte, c clientData, err error) {
	if text, err = encoding.DecodeString(a.Response.ClientDataJSON); err != nil {
		return nil, c, refuse("clientDataJSON is not in base64url")
	}
	if err := json.Unmarshal(text, &c); err != nil {
		return nil, c, refuse("clientDataJSON holds no JSON")
	}
	return text, c, nil
}

// Challenge is what the browser says that it answers; nil: nothing that can be read.
func (a Credential) Challenge() []byte {
	_, c, err := a.client()
	if err != nil {
		return nil
	}
	challenge, err := encoding.DecodeString(c.Challenge)
	if err != nil {
		return nil
	}
	return challenge
}

// said is what an answer says that both kinds of it do.
type said struct {
	client, data []byte // as they were signed
	id           []byte
	flags        byte
	counter      int64
}

// read reads an answer to a challenge, and refuses one that is for somebody else.
func (p *Party) read(a Credential, kind string, policy Policy, challenge []byte) (s said, err error) {
	var c clientData
	if s.client, c, err = a.client(); err != nil {
		return s, err
	}
	if s.data, err = encoding.DecodeString(a.Response.AuthenticatorData); err != nil || len(s.data) < inData {
		return s, refuse("authenticatorData is none in base64url")
	}
	if s.id, err = encoding.DecodeString(a.RawID); err != nil || len(s.id) == 0 || len(s.id) > longestID || a.ID != a.RawID || a.Type != "public-key" {
		return s, refuse("id, rawId and type are not those of a key")
	}
	s.flags, s.counter = s.data[32], int64(binary.BigEndian.Uint32(s.data[33:]))
	domain := sha256.Sum256([]byte(p.Domain))
	switch {
	case c.Type != kind:
		return s, refuse("it is %q and not %s", c.Type, kind)
	case subtle.ConstantTimeCompare([]byte(c.Challenge), []byte(encoding.EncodeToString(challenge))) != 1:
		return s, refuse("it answers another challenge")
	case !slices.Contains(p.pages, c.Origin):
		return s, refuse("it is from %q, and answers come from %s, as IRONPLANE_PASSKEY_ORIGINS says", c.Origin, strings.Join(p.pages, ", "))
	case c.CrossOrigin:
		return s, refuse("it is from a page within a page of another origin")
	case !bytes.Equal(s.data[:32], domain[:]):
		return s, refuse("it is for another domain than %s", p.Domain)
	case s.flags&present == 0:
		return s, refuse("nobody touched the key")
	case policy.Verify && s.flags&verified == 0:
		return s, refuse("the key asked for no PIN and no finger, as the setting security.verify_passkeys has it do")
	case s.flags&isCopied != 0 && s.flags&copyable == 0:
		return s, refuse("the key says that there are copies of it and cannot be any")
	}
	return s, nil
}

// Made is the key that was made as an answer to a challenge, or Refused.
func (p *Party) Made(policy Policy, challenge []byte, a Credential) (k Key, err error) {
	s, err := p.read(a, "webauthn.create", policy, challenge)
	if err != nil {
		return k, err
	}
	// The model of the key, 16 bytes, and how long its id is stand before the id.
	const before = inData + 16 + 2
	if s.flags&hasKey == 0 || len(s.data) < before || !bytes.HasPrefix(s.data[before:], s.id) || int(binary.BigEndian.Uint16(s.data[inData+16:])) != len(s.id) {
		return k, refuse("authenticatorData has no key of this id")
	}
	k = Key{ID: s.id, Counter: s.counter, Copied: s.flags&copyable != 0, Transports: []string{}}
	if k.Public, err = encoding.DecodeString(a.Response.PublicKey); err != nil {
		return k, refuse("publicKey is not in base64url")
	}
	if _, err := verifier(k.Public); err != nil {
		return k, err
	}
	for _, t := range []string{"usb", "nfc", "ble", "smart-card", "hybrid", "internal"} {
		if slices.Contains(a.Response.Transports, t) {
			k.Transports = append(k.Transports, t)
		}
	}
	return k, nil
}

// Signed is the account's key that has signed a challenge, with its new counter, or Refused.
func (p *Party) Signed(account Account, policy Policy, challenge []byte, a Credential) (k Key, err error) {
	s, err := p.read(a, "webauthn.get", policy, challenge)
	if err != nil {
		return k, err
	}
	i := slices.IndexFunc(account.Keys, func(k Key) bool { return bytes.Equal(k.ID, s.id) })
	if i < 0 {
		return k, refuse("it is by a key that the account does not have")
	}
	k = account.Keys[i]
	if handle := a.Response.UserHandle; handle != nil && *handle != "" && *handle != encoding.EncodeToString(account.Handle) {
		return k, refuse("it is by a key that was made for another account")
	}
	if k.Copied != (s.flags&copyable != 0) {
		return k, refuse("whether there can be copies of the key has changed")
	}
	signature, err := encoding.DecodeString(a.Response.Signature)
	if err != nil {
		return k, refuse("signature is not in base64url")
	}
	verify, err := verifier(k.Public)
	if err != nil {
		return k, fmt.Errorf("read a public key that is kept: %s", err.Error())
	}
	client := sha256.Sum256(s.client)
	if !verify(slices.Concat(s.data, client[:]), signature) {
		return k, refuse("the signature is not the key's")
	}
	if (s.counter != 0 || k.Counter != 0) && s.counter <= k.Counter {
		return k, &Refused{Why: fmt.Sprintf("its counter says %d, and said %d before: there may be a copy of the key", s.counter, k.Counter), Copied: true}
	}
	k.Counter = s.counter
	return k, nil
}
