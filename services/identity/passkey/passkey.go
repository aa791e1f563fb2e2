// Package passkey creates and verifies security keys and passkeys, by WebAuthn. A key proves its possession by signing a challenge.
// The package accepts keys of every vendor, and asks for no attestation.
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

// Party is the relying party, as WebAuthn calls it: the domain that keys are created for, and the origins below it that may ask.
type Party struct {
	Domain  string
	pages   []string
	timeout time.Duration // of the dialogs that browsers show
}

// Parse reads the domain and its origins, which commas or spaces separate. It returns nil if both are empty. timeout is how long
// browsers ask.
func Parse(domain, origins string, timeout time.Duration) (*Party, error) {
	pages := strings.FieldsFunc(origins, func(r rune) bool { return r == ',' || r == ' ' })
	if domain == "" && len(pages) == 0 {
		return nil, nil
	}
	if domain == "" || len(pages) == 0 {
		return nil, errors.New("set both the domain and the origins, or neither")
	}
	if _, err := netip.ParseAddr(domain); err == nil {
		return nil, fmt.Errorf("%s is an IP address, not a domain", domain)
	}
	for _, page := range pages {
		u, err := url.Parse(page)
		if err != nil || u.Hostname() == "" || strings.Contains(u.Host, "*") || page != strings.ToLower(u.Scheme+"://"+u.Host) ||
			strings.HasSuffix(u.Host, ":") ||
			u.Scheme+u.Port() == "https443" {
			return nil, fmt.Errorf("%q is not an origin such as https://panel.example.com", page)
		}
		if u.Scheme != "https" && (u.Scheme != "http" || u.Hostname() != "localhost") { // as browsers require
			return nil, fmt.Errorf("%s must begin with https://, unless its host is localhost", page)
		}
		if u.Hostname() != domain && !strings.HasSuffix(u.Hostname(), "."+domain) {
			return nil, fmt.Errorf("%s does not belong to the domain %q", page, domain)
		}
	}
	return &Party{domain, pages, timeout}, nil
}

// Key is a stored key.
type Key struct {
	ID         []byte
	Public     []byte   // in COSE format
	Counter    uint32   // of its signatures; 0: the key does not count
	Copied     bool     // the key may also be on other devices
	Transports []string // by which browsers reach the key
}

// Account is an account with its keys.
type Account struct {
	Handle []byte // random, and the same for all keys of the account
	Name   string
	Keys   []Key
}

// Policy is what keys are asked for.
type Policy struct {
	Site   string // the name of the site, for people
	Verify bool   // keys ask for a PIN or a fingerprint, and not only for a touch
}

// verification returns whether browsers have to verify the user.
func (p Policy) verification() protocol.UserVerificationRequirement {
	if p.Verify {
		return protocol.VerificationRequired
	}
	return protocol.VerificationDiscouraged // "preferred" would make browsers ask people to choose a PIN
}

// Credential is a browser's response to options, as PublicKeyCredential.toJSON() returns it.
type Credential struct {
	ID       string `json:"id" max:"1400" doc:"The key's id, in base64url."`
	RawID    string `json:"rawId" max:"1400" doc:"The same as id."`
	Type     string `json:"type" max:"20" doc:"Always public-key."`
	Response struct {
		ClientDataJSON    string   `json:"clientDataJSON" max:"10000" doc:"The browser's client data, in base64url."`
		AttestationObject string   `json:"attestationObject" max:"20000" doc:"Of a new key: the attestation object, in base64url."`
		Transports        []string `json:"transports" doc:"Of a new key: how browsers reach it."`
		AuthenticatorData string   `json:"authenticatorData" max:"20000" doc:"Of a signature: the authenticator data, in base64url."`
		Signature         string   `json:"signature" max:"10000" doc:"The signature, in base64url."`
		UserHandle        *string  `json:"userHandle" max:"100" doc:"Of a signature: the account's handle, if the key stores it."`
	} `json:"response" doc:"The browser's response."`
}

// Refused is the error of a credential that does not count.
type Refused struct {
	Reason string
	Detail string // for the log
	Copied bool   // there may be a copy of the key
}

func (r *Refused) Error() string { return r.Reason }

// newRefused returns the refusal for an error of the library.
func newRefused(err error) error {
	var libraryErr *protocol.Error
	if !errors.As(err, &libraryErr) {
		return &Refused{Reason: "it cannot be parsed", Detail: err.Error()}
	}
	r := &Refused{Reason: libraryErr.Details, Detail: libraryErr.DevInfo}
	if strings.Contains(r.Reason, "challenge") { // the detail has the challenge, which must not be logged
		r.Detail = ""
	}
	return r
}

// algorithms are the accepted algorithms, in the order of preference.
var algorithms = []protocol.CredentialParameter{
	{Type: protocol.PublicKeyCredentialType, Algorithm: webauthncose.AlgES256},
	{Type: protocol.PublicKeyCredentialType, Algorithm: webauthncose.AlgEdDSA},
	{Type: protocol.PublicKeyCredentialType, Algorithm: webauthncose.AlgRS256},
}

// The accepted lengths of an RSA key's modulus, in bytes.
const minModulus, maxModulus = 2048 / 8, 4096 / 8

// transports are the known ways in which browsers reach a key.
var transports = []protocol.AuthenticatorTransport{
	protocol.USB,
	protocol.NFC,
	protocol.BLE,
	protocol.SmartCard,
	protocol.Hybrid,
	protocol.Internal,
}

// library returns go-webauthn, configured for a policy.
func (p *Party) library(policy Policy) (*webauthn.WebAuthn, error) {
	timeout := webauthn.TimeoutConfig{Timeout: p.timeout, TimeoutUVD: p.timeout}
	w, err := webauthn.New(&webauthn.Config{
		RPID: p.Domain, RPDisplayName: policy.Site, RPOrigins: p.pages, AttestationPreference: protocol.PreferNoAttestation,
		Timeouts: webauthn.TimeoutsConfig{Login: timeout, Registration: timeout},
	})
	if err != nil {
		return nil, fmt.Errorf("set up passkeys for %s: %w", p.Domain, err)
	}
	return w, nil
}

// session returns the state that the library would have kept since it created the options.
func (p *Party) session(account Account, policy Policy, challenge []byte) webauthn.SessionData {
	session := webauthn.SessionData{
		Challenge: base64.RawURLEncoding.EncodeToString(challenge), RelyingPartyID: p.Domain, UserID: account.Handle,
		UserVerification: policy.verification(), CredParams: algorithms,
	}
	for _, k := range account.Keys {
		session.AllowedCredentialIDs = append(session.AllowedCredentialIDs, k.ID)
	}
	return session
}

// user adapts an account to the library.
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

// CreationOptions returns the options by which a browser creates a key, and their challenge. Devices that hold one of the
// account's keys are excluded.
func (p *Party) CreationOptions(a Account, policy Policy) (options json.RawMessage, challenge []byte, err error) {
	w, err := p.library(policy)
	if err != nil {
		return nil, nil, err
	}
	created, _, err := w.BeginRegistration(user{a}, webauthn.WithCredentialParameters(algorithms),
		webauthn.WithExclusions(webauthn.Credentials(user{a}.WebAuthnCredentials()).CredentialDescriptors()),
		webauthn.WithAuthenticatorSelection(protocol.AuthenticatorSelection{
			ResidentKey:      protocol.ResidentKeyRequirementDiscouraged,
			UserVerification: policy.verification(), // no resident key: security keys store only a few
		}))
	if err != nil {
		return nil, nil, fmt.Errorf("create the options of a new passkey: %w", err)
	}
	options, err = json.Marshal(created.Response)
	return options, created.Response.Challenge, err
}

// RequestOptions returns the options by which a browser has one of the account's keys sign, and their challenge.
func (p *Party) RequestOptions(a Account, policy Policy) (options json.RawMessage, challenge []byte, err error) {
	w, err := p.library(policy)
	if err != nil {
		return nil, nil, err
	}
	request, _, err := w.BeginLogin(user{a}, webauthn.WithUserVerification(policy.verification()))
	if err != nil {
		return nil, nil, fmt.Errorf("create the options of a signature: %w", err)
	}
	options, err = json.Marshal(request.Response)
	return options, request.Response.Challenge, err
}

// Challenge returns the challenge that the browser claims to answer, or nil if it cannot be read. The caller of the package has to
// verify the credential.
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

// parse reads a credential with one of the library's parsers.
func parse[T any](p *Party, policy Policy, a Credential, parseText func([]byte) (T, error)) (w *webauthn.WebAuthn, parsed T, err error) {
	if w, err = p.library(policy); err != nil {
		return nil, parsed, err
	}
	text, err := json.Marshal(a)
	if err != nil {
		return nil, parsed, err
	}
	if parsed, err = parseText(text); err != nil {
		return nil, parsed, newRefused(err)
	}
	return w, parsed, nil
}

// VerifyNew returns the key that was created for a challenge. The error is a Refused if the credential does not count.
func (p *Party) VerifyNew(policy Policy, challenge []byte, a Credential) (k Key, err error) {
	w, parsed, err := parse(p, policy, a, protocol.ParseCredentialCreationResponseBytes)
	if err != nil {
		return k, err
	}
	created, err := w.CreateCredential(user{}, p.session(Account{}, policy, challenge), parsed)
	if err != nil {
		return k, newRefused(err)
	}
	public, err := webauthncose.ParsePublicKey(created.PublicKey)
	if err != nil {
		return k, newRefused(err)
	}
	if rsa, isRSA := public.(webauthncose.RSAPublicKeyData); isRSA && (len(rsa.Modulus) < minModulus || len(rsa.Modulus) > maxModulus) {
		return k, &Refused{Reason: "an RSA key must have 2048 to 4096 bits"}
	}
	k = Key{
		ID:         created.ID,
		Public:     created.PublicKey,
		Counter:    created.Authenticator.SignCount,
		Copied:     created.Flags.BackupEligible,
		Transports: []string{},
	}
	for _, t := range created.Transport {
		if slices.Contains(transports, t) {
			k.Transports = append(k.Transports, string(t))
		}
	}
	return k, nil
}

// VerifySignature returns the account's key that has signed a challenge, with its new counter. The error is a Refused if the
// credential does not count.
func (p *Party) VerifySignature(account Account, policy Policy, challenge []byte, a Credential) (k Key, err error) {
	w, parsed, err := parse(p, policy, a, protocol.ParseCredentialRequestResponseBytes)
	if err != nil {
		return k, err
	}
	credential, err := w.ValidateLogin(user{account}, p.session(account, policy, challenge), parsed)
	if err != nil {
		return k, newRefused(err)
	}
	if counter := parsed.Response.AuthenticatorData.Counter; credential.Authenticator.CloneWarning {
		return k, &Refused{
			Reason: fmt.Sprintf(
				"its counter says %d, and said %d before: there may be a copy of the key",
				counter,
				credential.Authenticator.SignCount,
			),
			Copied: true,
		}
	}
	k = account.Keys[slices.IndexFunc(account.Keys, func(k Key) bool { return bytes.Equal(k.ID, credential.ID) })]
	k.Counter = credential.Authenticator.SignCount
	return k, nil
}
