// Package passkey is for which pages security keys and passkeys are made, and what is asked of them, by WebAuthn: one shows, by signing a
// challenge, that who signs in has it. Who made a key is not asked.
package passkey

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-webauthn/webauthn/protocol"
	"github.com/go-webauthn/webauthn/protocol/webauthncose"
	"github.com/go-webauthn/webauthn/webauthn"
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
		if err != nil || u.Hostname() == "" || strings.Contains(u.Host, "*") || page != strings.ToLower(u.Scheme+"://"+u.Host) ||
			strings.HasSuffix(u.Host, ":") ||
			u.Scheme+u.Port() == "https443" {
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
	Public     []byte   // as COSE has it
	Counter    uint32   // of what it has signed; 0: it does not count
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

func (p Policy) verification() protocol.UserVerificationRequirement {
	if p.Verify {
		return protocol.VerificationRequired
	}
	return protocol.VerificationDiscouraged // or browsers would have people choose PINs for keys that stand beside a password
}

// Credential is what a browser answers to options, as PublicKeyCredential.toJSON() has it.
type Credential struct {
	ID       string `json:"id" max:"1400"`
	RawID    string `json:"rawId" max:"1400"`
	Type     string `json:"type" max:"20"`
	Response struct {
		ClientDataJSON    string   `json:"clientDataJSON" max:"10000"`
		AttestationObject string   `json:"attestationObject" max:"20000" doc:"of a new key"`
		Transports        []string `json:"transports" doc:"of a new key"`
		AuthenticatorData string   `json:"authenticatorData" max:"20000" doc:"of one that signs"`
		Signature         string   `json:"signature" max:"10000" doc:"of one that signs"`
		UserHandle        *string  `json:"userHandle" max:"100" doc:"of one that signs and knows its account"`
	} `json:"response"`
}

// Refused is why an answer does not count.
type Refused struct {
	Why    string
	Detail string // for the log
	Copied bool   // what has signed may be a copy
}

func (r *Refused) Error() string { return r.Why }

// refused is what the library says of an answer.
func refused(err error) error {
	var of *protocol.Error
	if !errors.As(err, &of) {
		return &Refused{Why: "it cannot be read", Detail: err.Error()}
	}
	r := &Refused{Why: of.Details, Detail: of.DevInfo}
	if strings.Contains(r.Why, "challenge") { // the detail is what was asked, which is for nobody but the browser that was given it
		r.Detail = ""
	}
	return r
}

// kinds are the kinds of keys that are taken: those first that are to be made where a device has the choice.
var kinds = []protocol.CredentialParameter{
	{Type: protocol.PublicKeyCredentialType, Algorithm: webauthncose.AlgES256},
	{Type: protocol.PublicKeyCredentialType, Algorithm: webauthncose.AlgEdDSA},
	{Type: protocol.PublicKeyCredentialType, Algorithm: webauthncose.AlgRS256},
}

// How long the modulus of an RSA key is, in bytes.
const leastModulus, mostModulus = 2048 / 8, 4096 / 8

// transports are how browsers reach a key, as far as that is known of them.
var transports = []protocol.AuthenticatorTransport{
	protocol.USB,
	protocol.NFC,
	protocol.BLE,
	protocol.SmartCard,
	protocol.Hybrid,
	protocol.Internal,
}

// library is go-webauthn for a policy.
func (p *Party) library(policy Policy) (*webauthn.WebAuthn, error) {
	await := webauthn.TimeoutConfig{Timeout: p.await, TimeoutUVD: p.await}
	w, err := webauthn.New(&webauthn.Config{
		RPID: p.Domain, RPDisplayName: policy.Site, RPOrigins: p.pages, AttestationPreference: protocol.PreferNoAttestation,
		Timeouts: webauthn.TimeoutsConfig{Login: await, Registration: await},
	})
	if err != nil {
		return nil, fmt.Errorf("set up passkeys for %s: %w", p.Domain, err)
	}
	return w, nil
}

// session is what the library would have kept since it asked.
func (p *Party) session(account Account, policy Policy, challenge []byte) webauthn.SessionData {
	session := webauthn.SessionData{
		Challenge: base64.RawURLEncoding.EncodeToString(challenge), RelyingPartyID: p.Domain, UserID: account.Handle,
		UserVerification: policy.verification(), CredParams: kinds,
	}
	for _, k := range account.Keys {
		session.AllowedCredentialIDs = append(session.AllowedCredentialIDs, k.ID)
	}
	return session
}

// user is an account as the library has it.
type user struct{ Account }

func (u user) WebAuthnID() []byte          { return u.Handle }
func (u user) WebAuthnName() string        { return u.Name }
func (u user) WebAuthnDisplayName() string { return u.Name }

func (u user) WebAuthnCredentials() (all []webauthn.Credential) {
	for _, k := range u.Keys {
		c := webauthn.Credential{
			ID:            k.ID,
			PublicKey:     k.Public,
			Flags:         webauthn.CredentialFlags{BackupEligible: k.Copied},
			Authenticator: webauthn.Authenticator{SignCount: k.Counter},
		}
		for _, t := range k.Transports {
			c.Transport = append(c.Transport, protocol.AuthenticatorTransport(t))
		}
		all = append(all, c)
	}
	return all
}

// NewKey are the options by which a browser has a key made, which is none of those that the account has.
func (p *Party) NewKey(a Account, policy Policy) (options json.RawMessage, challenge []byte, err error) {
	w, err := p.library(policy)
	if err != nil {
		return nil, nil, err
	}
	created, _, err := w.BeginRegistration(user{a}, webauthn.WithCredentialParameters(kinds),
		webauthn.WithExclusions(webauthn.Credentials(user{a}.WebAuthnCredentials()).CredentialDescriptors()),
		webauthn.WithAuthenticatorSelection(protocol.AuthenticatorSelection{
			ResidentKey:      protocol.ResidentKeyRequirementDiscouraged,
			UserVerification: policy.verification(), // a key has room for few that it knows by itself
		}))
	if err != nil {
		return nil, nil, fmt.Errorf("ask for a new passkey: %w", err)
	}
	options, err = json.Marshal(created.Response)
	return options, created.Response.Challenge, err
}

// Sign are the options by which a browser has one of the account's keys sign.
func (p *Party) Sign(a Account, policy Policy) (options json.RawMessage, challenge []byte, err error) {
	w, err := p.library(policy)
	if err != nil {
		return nil, nil, err
	}
	asked, _, err := w.BeginLogin(user{a}, webauthn.WithUserVerification(policy.verification()))
	if err != nil {
		return nil, nil, fmt.Errorf("ask for a passkey: %w", err)
	}
	options, err = json.Marshal(asked.Response)
	return options, asked.Response.Challenge, err
}

// Challenge is what the browser says that it answers; nil: nothing that can be read.
func (a Credential) Challenge() []byte {
	text, err := base64.RawURLEncoding.DecodeString(a.Response.ClientDataJSON)
	if err != nil {
		return nil
	}
	var c protocol.CollectedClientData
	if err := json.Unmarshal(text, &c); err != nil {
		return nil
	}
	challenge, err := base64.RawURLEncoding.DecodeString(c.Challenge)
	if err != nil {
		return nil
	}
	return challenge
}

// read has the library read an answer.
func read[T any](p *Party, policy Policy, a Credential, parse func([]byte) (T, error)) (w *webauthn.WebAuthn, parsed T, err error) {
	if w, err = p.library(policy); err != nil {
		return nil, parsed, err
	}
	text, err := json.Marshal(a)
	if err != nil {
		return nil, parsed, err
	}
	if parsed, err = parse(text); err != nil {
		return nil, parsed, refused(err)
	}
	return w, parsed, nil
}

// Made is the key that was made as an answer to a challenge, or Refused.
func (p *Party) Made(policy Policy, challenge []byte, a Credential) (k Key, err error) {
	w, parsed, err := read(p, policy, a, protocol.ParseCredentialCreationResponseBytes)
	if err != nil {
		return k, err
	}
	made, err := w.CreateCredential(user{}, p.session(Account{}, policy, challenge), parsed)
	if err != nil {
		return k, refused(err)
	}
	public, err := webauthncose.ParsePublicKey(made.PublicKey)
	if err != nil {
		return k, refused(err)
	}
	if rsa, is := public.(webauthncose.RSAPublicKeyData); is && (len(rsa.Modulus) < leastModulus || len(rsa.Modulus) > mostModulus) {
		return k, &Refused{Why: "the key is shorter or longer than those that are taken"}
	}
	k = Key{
		ID:         made.ID,
		Public:     made.PublicKey,
		Counter:    made.Authenticator.SignCount,
		Copied:     made.Flags.BackupEligible,
		Transports: []string{},
	}
	for _, t := range made.Transport {
		if slices.Contains(transports, t) {
			k.Transports = append(k.Transports, string(t))
		}
	}
	return k, nil
}

// Signed is the account's key that has signed a challenge, with its new counter, or Refused.
func (p *Party) Signed(account Account, policy Policy, challenge []byte, a Credential) (k Key, err error) {
	w, parsed, err := read(p, policy, a, protocol.ParseCredentialRequestResponseBytes)
	if err != nil {
		return k, err
	}
	by, err := w.ValidateLogin(user{account}, p.session(account, policy, challenge), parsed)
	if err != nil {
		return k, refused(err)
	}
	if said := parsed.Response.AuthenticatorData.Counter; by.Authenticator.CloneWarning {
		return k, &Refused{
			Why:    fmt.Sprintf("its counter says %d, and said %d before: there may be a copy of the key", said, by.Authenticator.SignCount),
			Copied: true,
		}
	}
	k = account.Keys[slices.IndexFunc(account.Keys, func(k Key) bool { return bytes.Equal(k.ID, by.ID) })]
	k.Counter = by.Authenticator.SignCount
	return k, nil
}
