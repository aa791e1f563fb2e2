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

const (
	// answerTime is how long Redis may take to answer, and dialing it may.
	answerTime = 250 * time.Millisecond
	// patience is how long it may take for who insists.
	patience = time.Second
	// absence is how long Redis is left alone after it failed.
	absence = time.Second
)

func init() { redis.SetLogger(quiet{}) } // it writes to stderr, again and again; a Link says it once

type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

// Open makes a client that gives up in time. It does not connect yet.
func Open(url secret.String) (*redis.Client, error) {
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
	return redis.NewClient(options), nil
}

// Link is a client that is left alone for a moment after it failed, so that not everybody waits for a Redis that is
// away.
type Link struct {
	client  redis.UniversalClient
	breaker *gobreaker.CircuitBreaker[struct{}]
}

// NewLink makes a link by a client, which Open should have made: the deadlines of another may not hold. user is who
// uses it, for the log.
func NewLink(client redis.UniversalClient, user string, log *slog.Logger) *Link {
	return &Link{client, gobreaker.NewCircuitBreaker[struct{}](gobreaker.Settings{
		Timeout: absence,
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
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerTime) // that a caller leaves says nothing of Redis
		defer cancel()
		return struct{}{}, ask(ctx, l.client)
	})
	return err
}

// Insist asks Redis whether or not it is being left alone, and gives it more time.
func (l *Link) Insist(ctx context.Context, ask func(context.Context, redis.UniversalClient) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return ask(ctx, l.client)
}

// Up tells whether Redis answered when it was last asked.
func (l *Link) Up() bool { return l.breaker.State() == gobreaker.StateClosed }
