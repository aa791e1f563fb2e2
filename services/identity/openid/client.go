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
	// askTimeout bounds how long a provider may take to answer, and maxAnswer the answer in bytes.
	askTimeout = 10 * time.Second
	maxAnswer  = 1 << 20
	// knownTTL is how long a provider's configuration is kept. Its keys are asked for again whenever one is missing.
	knownTTL = 10 * time.Minute
	maxKnown = 100
)

// Client speaks OpenID Connect with identity providers: the code flow, with PKCE and a nonce.
type Client struct {
	http *http.Client

	mu    sync.Mutex
	known map[string]known // by issuer
}

type known struct {
	*oidc.Provider
	since time.Time
}

// NewClient returns a client. allowed are the operator's own networks in which a provider may be.
func NewClient(allowed egress.Networks) *Client {
	asking := allowed.Client()
	asking.Timeout = askTimeout
	asking.Transport = bounded{asking.Transport}
	return &Client{http: asking, known: map[string]known{}}
}

// bounded reads no more than maxAnswer of an answer.
type bounded struct{ http.RoundTripper }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		response.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(response.Body, maxAnswer), response.Body}
	}
	return response, err
}

// Settings are what a provider and this installation have agreed on.
type Settings struct {
	Issuer, ClientID string
	ClientSecret     secret.String
	Callback         string // where the provider sends browsers back to
}

// Attempt is a sign-in that has begun.
type Attempt struct {
	Nonce    string
	Verifier secret.String // of PKCE
}

// NewAttempt returns an attempt that nobody can guess.
func NewAttempt() Attempt {
	return Attempt{oauth2.GenerateVerifier(), secret.New(oauth2.GenerateVerifier())}
}

// Person is the person who has signed in at the provider.
type Person struct {
	Subject string
	Email   string // that the provider has verified; empty: none
}

// ErrRefused says that a provider's answer proves nobody's identity.
var ErrRefused = errors.New("the identity provider's answer is refused")

// provider returns a provider's configuration.
func (c *Client) provider(ctx context.Context, issuer string) (*oidc.Provider, error) {
	c.mu.Lock()
	k, there := c.known[issuer]
	c.mu.Unlock()
	if there && time.Since(k.since) < knownTTL {
		return k.Provider, nil
	}
	p, err := oidc.NewProvider(ctx, issuer)
	if err != nil {
		return nil, fmt.Errorf("ask an identity provider about itself: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.known) >= maxKnown {
		clear(c.known)
	}
	c.known[issuer] = known{p, time.Now()}
	return p, nil
}

func (s *Settings) oauth(p *oidc.Provider) oauth2.Config {
	var said struct {
		Methods []string `json:"token_endpoint_auth_methods_supported"`
	}
	_ = p.Claims(&said) // else what goes for those that say nothing
	endpoint := p.Endpoint()
	endpoint.AuthStyle = oauth2.AuthStyleInHeader // and not tried out, for a code is good once
	if s.ClientSecret.IsZero() ||
		slices.Contains(said.Methods, "client_secret_post") && !slices.Contains(said.Methods, "client_secret_basic") {
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

// SignInAt returns the address to which a browser is sent to sign in.
func (c *Client) SignInAt(ctx context.Context, s Settings, state secret.String, a Attempt) (string, error) {
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
	EmailVerified any    `json:"email_verified"` // some providers send a text
	Party         string `json:"azp"`
}

// Finish exchanges the code that the provider has sent, and returns who has signed in. The error is ErrRefused where the answer proves
// nothing.
func (c *Client) Finish(ctx context.Context, s Settings, code secret.String, a Attempt) (who Person, err error) {
	ctx = oidc.ClientContext(ctx, c.http)
	p, err := c.provider(ctx, s.Issuer)
	if err != nil {
		return who, err
	}
	config := s.oauth(p)
	token, err := config.Exchange(ctx, code.Reveal(), oauth2.VerifierOption(a.Verifier.Reveal()))
	if failed, ok := errors.AsType[*oauth2.RetrieveError](err); ok { // whose text has the whole answer
		if status := failed.Response.StatusCode; status >= http.StatusInternalServerError || status == http.StatusTooManyRequests {
			return who, fmt.Errorf("exchange an identity provider's code: it answers %d", status)
		}
		return who, fmt.Errorf("%w: it answers %d to the code", ErrRefused, failed.Response.StatusCode)
	}
	if err != nil {
		return who, fmt.Errorf("exchange an identity provider's code: %s", egress.Reason(err))
	}
	raw, _ := token.Extra("id_token").(string)
	id, err := p.Verifier(&oidc.Config{ClientID: s.ClientID}).Verify(ctx, raw)
	if err != nil {
		return who, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	var said claims
	if err := id.Claims(&said); err != nil {
		return who, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	switch {
	case subtle.ConstantTimeCompare([]byte(id.Nonce), []byte(a.Nonce)) != 1:
		return who, fmt.Errorf("%w: it is to another sign-in", ErrRefused)
	case said.Party != "" && said.Party != s.ClientID, len(id.Audience) > 1 && said.Party == "":
		return who, fmt.Errorf("%w: it is for another party", ErrRefused)
	case id.Subject == "":
		return who, fmt.Errorf("%w: it names nobody", ErrRefused)
	}
	who.Subject = id.Subject
	if slices.Contains([]any{true, "true"}, said.EmailVerified) {
		who.Email = said.Email
	}
	return who, nil
}
