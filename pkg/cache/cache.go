// Package cache is the way to the Redis that gateways and services share. Nothing in it is the only copy of anything,
// so nobody waits long for it: what Redis does not say at once is found out without it.
package cache

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sony/gobreaker/v2"

	"github.com/ironplane/ironplane/pkg/secret"
)

// breakTimeout is how long Redis is left alone after it failed.
const breakTimeout = time.Second

// Client is a client of Redis that gives up in time.
type Client struct {
	*redis.Client
	OptionalTimeout time.Duration // of a question whose answer can be found out elsewhere; 250 ms
	RequiredTimeout time.Duration // of a question that has to be answered; a second
}

func init() { redis.SetLogger(quiet{}) } // it writes to stderr, again and again; a Link says it once

type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

// Open makes a client. It does not connect yet.
func Open(url secret.String) (*Client, error) {
	options, err := redis.ParseURL(url.Reveal())
	if err != nil {
		return nil, errors.New("not a URL of a Redis such as redis://localhost:6379/0") // err would show the password
	}
	options.CredentialsProviderContext = func(context.Context) (user, password string, err error) { // it may have been changed
		if now, err := redis.ParseURL(url.Reveal()); err == nil {
			return now.Username, now.Password, nil
		}
		return options.Username, options.Password, nil
	}
	options.DialTimeout, options.ReadTimeout, options.WriteTimeout, options.PoolTimeout = time.Second, time.Second, time.Second, time.Second
	options.ContextTimeoutEnabled = true
	options.DisableIdentity = true // CLIENT SETINFO, which no user of ours may
	options.DialerRetries = 1
	options.MaxRetries = 1 // once: a connection of the pool may have been cut since
	return &Client{redis.NewClient(options), 250 * time.Millisecond, time.Second}, nil
}

// Link is a client that is left alone for a moment after it failed, so that not everybody waits for a Redis that is
// away.
type Link struct {
	client  *Client
	breaker *gobreaker.CircuitBreaker[struct{}]
}

// NewLink makes a link by a client. user is who uses it, for the log.
func NewLink(client *Client, user string, log *slog.Logger) *Link {
	return &Link{client, gobreaker.NewCircuitBreaker[struct{}](gobreaker.Settings{
		Timeout: breakTimeout,
		OnStateChange: func(_ string, before, now gobreaker.State) {
			switch {
			case before == gobreaker.StateClosed:
				log.Warn("Redis does not answer", "for", user)
			case now == gobreaker.StateClosed:
				log.Warn("Redis answers again", "for", user)
			}
		},
		ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures > 0 },
	})}
}

// Do asks Redis, unless it is being left alone. An error says that Redis is away.
func (l *Link) Do(ctx context.Context, ask func(context.Context, redis.UniversalClient) error) error {
	_, err := l.breaker.Execute(func() (struct{}, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.client.OptionalTimeout) // that a caller leaves says nothing of Redis
		defer cancel()
		return struct{}{}, ask(ctx, l.client)
	})
	return err
}

// DoRequired asks Redis whether or not it is being left alone, and gives it more time.
func (l *Link) DoRequired(ctx context.Context, ask func(context.Context, redis.UniversalClient) error) error {
	ctx, cancel := context.WithTimeout(ctx, l.client.RequiredTimeout)
	defer cancel()
	return ask(ctx, l.client)
}

// IsUp tells whether Redis answered when it was last asked.
func (l *Link) IsUp() bool { return l.breaker.State() == gobreaker.StateClosed }
