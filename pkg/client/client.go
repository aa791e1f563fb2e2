// Package client calls Ironplane's API.
//
//	c, err := client.New("https://api.example.com", client.WithKey(key))
//	group, err := c.Groups.Create(ctx, client.GroupCreate{Name: "Frankfurt 1"})
//	for entity, err := range c.Entities.List(ctx, client.EntityList{GroupID: group.ID}) {
//		…
//	}
//
// A resource has a service with plain methods. Methods return an *Error for what the API refuses: test it with errors.Is, such
// as errors.Is(err, client.ErrConflict). The client sends a request again when that is safe, and sends an Idempotency-Key with
// each POST. A Client is safe for concurrent use. It uses nothing but the standard library.
package client

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Client calls the API with one key.
type Client struct {
	services // generated: a service for each resource

	base          string
	key           string
	http          *http.Client
	userAgent     string
	hook          Hook
	maxRetries    int
	maxRetryAfter time.Duration
	idleTimeout   time.Duration
}

// Option changes how a client works.
type Option func(*Client)

// WithKey sets the API key. Some operations, such as a sign-in, need none.
func WithKey(key string) Option { return func(c *Client) { c.key = key } }

// WithTransport sets how requests are sent. The default is http.DefaultTransport.
func WithTransport(t http.RoundTripper) Option { return func(c *Client) { c.http.Transport = t } }

// WithUserAgent sets the User-Agent header. The default is ironplane-go.
func WithUserAgent(name string) Option { return func(c *Client) { c.userAgent = name } }

// WithRetries sets how often a request is sent again. The default is 4, and 0 turns retries off.
func WithRetries(n int) Option { return func(c *Client) { c.maxRetries = n } }

// WithMaxRetryAfter sets the longest Retry-After that the client waits for. A longer one makes the call fail at once. The
// default is a minute.
func WithMaxRetryAfter(d time.Duration) Option { return func(c *Client) { c.maxRetryAfter = d } }

// WithIdleTimeout sets how long the API may send nothing before an attempt fails. The default is a minute.
func WithIdleTimeout(d time.Duration) Option { return func(c *Client) { c.idleTimeout = d } }

// WithHook sets a function that is told of each call, such as one that records a span.
func WithHook(h Hook) Option { return func(c *Client) { c.hook = h } }

// New returns a client of the API at base, such as https://api.example.com.
func New(base string, options ...Option) (*Client, error) {
	u, err := url.Parse(base)
	if err != nil {
		return nil, fmt.Errorf("parse the API's URL: %w", errors.Unwrap(err)) // the error itself would show a password in the URL
	}
	if (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("the API's URL must have the form http://host or https://host")
	}
	c := &Client{
		base:          strings.TrimSuffix(base, "/"),
		http:          &http.Client{CheckRedirect: refuseRedirect},
		userAgent:     "ironplane-go",
		maxRetries:    4,
		maxRetryAfter: time.Minute,
		idleTimeout:   time.Minute,
	}
	for _, option := range options {
		option(c)
	}
	c.services = newServices(c)
	return c, nil
}

// refuseRedirect keeps a redirect from turning a POST into a GET, and from carrying the key elsewhere.
func refuseRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
