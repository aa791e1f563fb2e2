// Package license knows licenses: texts that say what an installation may, signed with EdDSA, and checked without asking
// anybody. They are JSON web tokens.
package license

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// The states that a license can be in.
const (
	Valid        = "valid"
	Expired      = "expired"
	NotYet       = "not_yet"
	BadSignature = "bad_signature"
	None         = "none"
)

// clockSkew is how far this machine's clock and that of who signs may be apart.
const clockSkew = 5 * time.Minute

// Terms are what a license says.
type Terms struct {
	jwt.RegisteredClaims
	Enterprise bool `json:"enterprise"`
}

// Sign makes a license.
func Sign(t Terms, key ed25519.PrivateKey) (string, error) {
	return jwt.NewWithClaims(jwt.SigningMethodEdDSA, t).SignedString(key)
}

// Check tells the state of a license, and what it says where the one who signs has said so.
func Check(text string, signer ed25519.PublicKey) (Terms, string) {
	if text == "" {
		return Terms{}, None
	}
	var t Terms
	_, err := jwt.ParseWithClaims(text, &t, func(*jwt.Token) (any, error) { return signer, nil },
		jwt.WithValidMethods([]string{jwt.SigningMethodEdDSA.Alg()}), jwt.WithLeeway(clockSkew))
	switch {
	case err == nil:
		return t, Valid
	case errors.Is(err, jwt.ErrTokenExpired):
		return t, Expired
	case errors.Is(err, jwt.ErrTokenNotValidYet):
		return t, NotYet
	default:
		return Terms{}, BadSignature
	}
}

// NewKey makes a pair of keys to sign with and to check by.
func NewKey() (private ed25519.PrivateKey, err error) {
	_, private, err = ed25519.GenerateKey(nil)
	return private, err
}

// EncodeKey is a key as ParseSigner and ParseKey read it.
func EncodeKey(key []byte) string { return base64.StdEncoding.EncodeToString(key) }

// ParseSigner reads the public key of who signs.
func ParseSigner(text string) (ed25519.PublicKey, error) { return parse(text, ed25519.PublicKeySize) }

// ParseKey reads the private key of who signs.
func ParseKey(text string) (ed25519.PrivateKey, error) {
	seed, err := parse(text, ed25519.SeedSize)
	if err != nil {
		return nil, err
	}
	return ed25519.NewKeyFromSeed(seed), nil
}

func parse(text string, size int) ([]byte, error) {
	key, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(key) != size {
		return nil, fmt.Errorf("it is not a key: %d bytes in base64", size)
	}
	return key, nil
}

// Source is where a license is read from: a file, or an address.
type Source string

const (
	readTimeout = 10 * time.Second
	maxBytes    = 16 << 10 // bytes of a license
)

// Check fails where a license can be read from nowhere that is named so.
func (s Source) Check() error {
	if u, err := url.Parse(string(s)); err == nil && u.Scheme == "http" {
		return errors.New("it is an address that nobody vouches for: https://… does")
	}
	return nil
}

// Read answers the license that is there now; an empty source has none.
func (s Source) Read(ctx context.Context) (text string, err error) {
	if s == "" {
		return "", nil
	}
	var from io.ReadCloser
	if strings.HasPrefix(string(s), "https://") {
		ctx, cancel := context.WithTimeout(ctx, readTimeout)
		defer cancel()
		from, err = s.fetch(ctx)
	} else {
		from, err = os.Open(string(s))
	}
	if err != nil {
		return "", err
	}
	defer from.Close()
	content, err := io.ReadAll(io.LimitReader(from, maxBytes+1))
	if err != nil {
		return "", err
	}
	text = strings.TrimSpace(string(content))
	if _, _, err := jwt.NewParser().ParseUnverified(text, &Terms{}); err != nil || len(content) > maxBytes {
		return "", errors.New("what is there is no license")
	}
	return text, nil
}

func (s Source) fetch(ctx context.Context) (io.ReadCloser, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, string(s), http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		_ = response.Body.Close()
		return nil, fmt.Errorf("the answer is %s", response.Status)
	}
	return response.Body, nil
}

// client goes nowhere else than it is sent: who answers could have it ask within the operator's own network.
var client = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
