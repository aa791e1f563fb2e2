package openid

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/ironplane/ironplane/pkg/egress"
	"github.com/ironplane/ironplane/pkg/secret"
)

const (
	// requestTimeout bounds how long a provider may take to answer, and maxResponse the answer in bytes.
	requestTimeout = 10 * time.Second
	maxResponse    = 1 << 20
	// providerTTL is how long a provider's configuration is kept. Its signing keys are read again whenever one is missing.
	providerTTL  = 10 * time.Minute
	maxProviders = 100
)

// Client speaks OpenID Connect with identity providers: the code flow, with PKCE and a nonce.
type Client struct {
	http *http.Client

	mu        sync.Mutex
	providers map[string]cachedProvider // by issuer
}

// cachedProvider is a provider's configuration with the time when it was read.
type cachedProvider struct {
	*oidc.Provider
	since time.Time
}

// NewClient returns a client. allowed are the private networks in which providers may be.
func NewClient(allowed egress.Networks) *Client {
	client := allowed.Client()
	client.Timeout = requestTimeout
	client.Transport = limitedTransport{client.Transport}
	return &Client{http: client, providers: map[string]cachedProvider{}}
}

// limitedTransport reads at most maxResponse bytes of a response.
type limitedTransport struct{ http.RoundTripper }

func (b limitedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		response.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(response.Body, maxResponse), response.Body}
	}
	return response, err
}

// Settings are the values that a provider and this installation have agreed on.
type Settings struct {
	Issuer, ClientID string
	ClientSecret     secret.String
	Callback         string // the address that the provider sends browsers back to
}

// Attempt is a sign-in that has begun.
type Attempt struct {
	Nonce    string
	Verifier secret.String // of PKCE
}

// NewAttempt returns an attempt with random values.
func NewAttempt() Attempt {
	return Attempt{oauth2.GenerateVerifier(), secret.New(oauth2.GenerateVerifier())}
}

// Identity is a user as the provider identifies it.
type Identity struct {
	Subject string
	Email   string // verified by the provider; "": none
}

// ErrRefused says that a provider's response proves nobody's identity.
var ErrRefused = errors.New("the identity provider's response is refused")

// provider returns a provider's configuration.
func (c *Client) provider(ctx context.Context, issuer string) (*oidc.Provider, error) {
	c.mu.Lock()
	k, exists := c.providers[issuer]
	c.mu.Unlock()
	if exists && time.Since(k.since) < providerTTL {
		return k.Provider, nil
	}
	p, err := oidc.NewProvider(ctx, issuer)
	if err != nil {
		return nil, fmt.Errorf("read an identity provider's configuration: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.providers) >= maxProviders {
		clear(c.providers)
	}
	c.providers[issuer] = cachedProvider{p, time.Now()}
	return p, nil
}

// oauth returns the configuration of the OAuth library. It chooses how this installation authenticates at the provider.
func (s *Settings) oauth(p *oidc.Provider) oauth2.Config {
	var metadata struct {
		Methods []string `json:"token_endpoint_auth_methods_supported"`
	}
	_ = p.Claims(&metadata) // without metadata the default below applies
	endpoint := p.Endpoint()
	endpoint.AuthStyle = oauth2.AuthStyleInHeader // the library would try both, but a code works only once
	if s.ClientSecret.IsZero() ||
		slices.Contains(metadata.Methods, "client_secret_post") && !slices.Contains(metadata.Methods, "client_secret_basic") {
		endpoint.AuthStyle = oauth2.AuthStyleInParams
	}
	return oauth2.Config{
		ClientID:     s.ClientID,
		ClientSecret: s.ClientSecret.Reveal(),
		Endpoint:     endpoint,
		RedirectURL:  s.Callback,
		Scopes:       []string{oidc.ScopeOpenID, "email", "profile"},
	}
}

// SignInURL returns the address to which a browser is sent to sign in.
func (c *Client) SignInURL(ctx context.Context, s Settings, state secret.String, a Attempt) (string, error) {
	p, err := c.provider(oidc.ClientContext(ctx, c.http), s.Issuer)
	if err != nil {
		return "", err
	}
	config := s.oauth(p)
	return config.AuthCodeURL(state.Reveal(), oidc.Nonce(a.Nonce), oauth2.S256ChallengeOption(a.Verifier.Reveal())), nil
}

// claims are the claims that go-oidc does not check.
type claims struct {
	Email         string `json:"email"`
	EmailVerified any    `json:"email_verified"` // some providers send a string
	Party         string `json:"azp"`
}

// Finish exchanges the provider's code for the user's identity. The error is ErrRefused if the response proves nothing.
func (c *Client) Finish(ctx context.Context, s Settings, code secret.String, a Attempt) (identity Identity, err error) {
	ctx = oidc.ClientContext(ctx, c.http)
	p, err := c.provider(ctx, s.Issuer)
	if err != nil {
		return identity, err
	}
	config := s.oauth(p)
	token, err := config.Exchange(ctx, code.Reveal(), oauth2.VerifierOption(a.Verifier.Reveal()))
	if failed, ok := errors.AsType[*oauth2.RetrieveError](err); ok { // its text has the whole response, which must not be logged
		if status := failed.Response.StatusCode; status >= http.StatusInternalServerError || status == http.StatusTooManyRequests {
			return identity, fmt.Errorf("exchange an identity provider's code: status %d", status)
		}
		return identity, fmt.Errorf("%w: status %d for the code", ErrRefused, failed.Response.StatusCode)
	}
	if err != nil {
		return identity, fmt.Errorf("exchange an identity provider's code: %s", egress.Describe(err))
	}
	raw, _ := token.Extra("id_token").(string)
	id, err := p.Verifier(&oidc.Config{ClientID: s.ClientID}).Verify(ctx, raw)
	if err != nil {
		return identity, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	var claimed claims
	if err := id.Claims(&claimed); err != nil {
		return identity, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	switch {
	case subtle.ConstantTimeCompare([]byte(id.Nonce), []byte(a.Nonce)) != 1:
		return identity, fmt.Errorf("%w: the nonce is another sign-in's", ErrRefused)
	case claimed.Party != "" && claimed.Party != s.ClientID, len(id.Audience) > 1 && claimed.Party == "":
		return identity, fmt.Errorf("%w: the token is for another client", ErrRefused)
	case id.Subject == "":
		return identity, fmt.Errorf("%w: the token has no subject", ErrRefused)
	}
	identity.Subject = id.Subject
	if slices.Contains([]any{true, "true"}, claimed.EmailVerified) {
		identity.Email = claimed.Email
	}
	return identity, nil
}
