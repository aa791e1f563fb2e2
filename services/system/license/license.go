// Package license reads and verifies licenses. A license is a JSON web token, signed with EdDSA, that says which features
// an installation may use. It is verified offline.
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

// clockSkew is how far the clocks of this machine and of the signer may differ.
const clockSkew = 5 * time.Minute

// Terms are the claims of a license.
type Terms struct {
	jwt.RegisteredClaims
	Enterprise bool `json:"enterprise"`
}

// Sign returns a signed license.
func Sign(t Terms, key ed25519.PrivateKey) (string, error) {
	return jwt.NewWithClaims(jwt.SigningMethodEdDSA, t).SignedString(key)
}

// Check returns the state of a license. It returns the terms only if the signature is valid.
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

// NewKey generates a key pair.
func NewKey() (private ed25519.PrivateKey, err error) {
	_, private, err = ed25519.GenerateKey(nil)
	return private, err
}

// EncodeKey returns a key, or its seed, as the text that ParseSigner and ParseKey accept.
func EncodeKey(key []byte) string { return base64.StdEncoding.EncodeToString(key) }

// ParseSigner parses the signer's public key.
func ParseSigner(text string) (ed25519.PublicKey, error) { return parse(text, ed25519.PublicKeySize) }

// ParseKey parses the signer's private key.
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
		return nil, fmt.Errorf("must be a key: %d bytes in base64", size)
	}
	return key, nil
}

// Source is where a license is read from: the path of a file or an https:// URL. The empty Source has no license.
type Source string

const (
	readTimeout = 10 * time.Second
	maxBytes    = 16 << 10 // bytes of a license
)

// Check returns an error if the source is an insecure URL.
func (s Source) Check() error {
	if u, err := url.Parse(string(s)); err == nil && u.Scheme == "http" {
		return errors.New("must begin with https://, because plain HTTP can be altered on the way")
	}
	return nil
}

// Read returns the source's current license. It is empty for the empty Source.
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
		return "", errors.New("the source has no license in it")
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
		return nil, fmt.Errorf("read the license: got status %s", response.Status)
	}
	return response.Body, nil
}

// client follows no redirects, because the server could redirect it into the operator's private network.
var client = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
