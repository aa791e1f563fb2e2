// Package cache connects gateways and services to the Redis that they share. Redis never has the only copy of anything,
// so nobody waits long for it: what it does not answer at once is looked up elsewhere.
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

// breakTimeout is how long Redis is not asked after a failure.
const breakTimeout = time.Second

// Client is a client of Redis with short timeouts.
type Client struct {
	*redis.Client
	OptionalTimeout time.Duration // for Do; default 250 ms
	RequiredTimeout time.Duration // for DoRequired; default 1 s
}

func init() { redis.SetLogger(quiet{}) } // it would write each failure to stderr; a Link logs changes alone

type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

// Open returns a client for a URL. It does not connect yet.
func Open(url secret.String) (*Client, error) {
	options, err := redis.ParseURL(url.Reveal())
	if err != nil {
		return nil, errors.New("not a Redis URL such as redis://localhost:6379/0") // err would show the password
	}
	options.CredentialsProviderContext = func(context.Context) (user, password string, err error) { // the file may have a new password
		if now, err := redis.ParseURL(url.Reveal()); err == nil {
			return now.Username, now.Password, nil
		}
		return options.Username, options.Password, nil
	}
	options.DialTimeout, options.ReadTimeout, options.WriteTimeout, options.PoolTimeout = time.Second, time.Second, time.Second, time.Second
	options.ContextTimeoutEnabled = true
	options.DisableIdentity = true // it would use CLIENT SETINFO, which Ironplane's users lack
	options.DialerRetries = 1
	options.MaxRetries = 1 // a pooled connection may be broken
	return &Client{redis.NewClient(options), 250 * time.Millisecond, time.Second}, nil
}

// Link is a client that is not used for a while after a failure, so that not every caller waits for a Redis that is
// down.
type Link struct {
	client  *Client
	breaker *gobreaker.CircuitBreaker[struct{}]
}

// NewLink returns a link. user names its purpose in the log.
func NewLink(client *Client, user string, log *slog.Logger) *Link {
	return &Link{client, gobreaker.NewCircuitBreaker[struct{}](gobreaker.Settings{
		Timeout: breakTimeout,
		OnStateChange: func(_ string, before, now gobreaker.State) {
			switch {
			case before == gobreaker.StateClosed:
				log.Warn("redis is unavailable", "for", user)
			case now == gobreaker.StateClosed:
				log.Warn("redis is available again", "for", user)
			}
		},
		ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures > 0 },
	})}
}

// Do runs ask, or fails at once while Redis is not used because of an earlier failure. Every error means that Redis is
// unavailable.
func (l *Link) Do(ctx context.Context, ask func(context.Context, redis.UniversalClient) error) error {
	_, err := l.breaker.Execute(func() (struct{}, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.client.OptionalTimeout) // a caller that leaves is no failure of Redis
		defer cancel()
		return struct{}{}, ask(ctx, l.client)
	})
	return err
}

// DoRequired runs ask even after an earlier failure, with a longer timeout. It is for questions that only Redis can
// answer.
func (l *Link) DoRequired(ctx context.Context, ask func(context.Context, redis.UniversalClient) error) error {
	ctx, cancel := context.WithTimeout(ctx, l.client.RequiredTimeout)
	defer cancel()
	return ask(ctx, l.client)
}

// IsUp tells whether the last Do succeeded.
func (l *Link) IsUp() bool { return l.breaker.State() == gobreaker.StateClosed }
