package gateway

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/keycache"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/auth/throttle"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/runtime/mesh"
)

const (
	// originTimeout is how long a service may take to return an entry.
	originTimeout = 3 * time.Second
	// originRetryInterval is how long a service that did not respond is left alone, if a stale entry can stand in.
	originRetryInterval = time.Second
	// maxOriginRequests bounds the simultaneous questions to a service about known keys.
	maxOriginRequests = 8
	// maxUnknownKeys bounds how many unknown keys wait. If all of them are guesses, about as many are asked about in time.
	maxUnknownKeys = 500
)

// ownerServices maps the type of an owner to the service that knows what such an owner may do.
var ownerServices = map[string]string{"admin": "identity", "client": "clients", "integration": "system"}

// origin is the service that fills entries, and is asked if Redis has none.
type origin struct {
	service     string
	peers       mesh.Peers
	startedAt   time.Time
	pausedUntil atomic.Int64 // nanoseconds since startedAt; 0: the service responds

	knownKeySlots chan struct{} // a semaphore
	unknownKeys   *throttle.Queue
}

func newOrigin(service string, peers mesh.Peers) *origin {
	return &origin{
		service:       service,
		peers:         peers,
		startedAt:     time.Now(),
		knownKeySlots: make(chan struct{}, maxOriginRequests),
		unknownKeys:   throttle.NewQueue(maxUnknownKeys, 0),
	}
}

// isPaused reports whether the service failed to respond a moment ago. When the pause is over, it returns false to the first
// caller, which then tries the service, and true to the others until that caller knows.
func (o *origin) isPaused() bool {
	until, now := o.pausedUntil.Load(), time.Since(o.startedAt)
	if until == 0 || time.Duration(until) <= now && o.pausedUntil.CompareAndSwap(until, int64(now+originTimeout+originRetryInterval)) {
		return false
	}
	return true
}

// askOrigin asks the service for an entry. The error is mesh.ErrUnavailable if the service cannot be reached.
func askOrigin[T keycache.Value](ctx context.Context, o *origin, path string, s keyStatus) (value T, err error) {
	ctx, cancel := o.peers.Limit(ctx, originTimeout)
	defer cancel()
	if s == known {
		select {
		case o.knownKeySlots <- struct{}{}:
			defer func() { <-o.knownKeySlots }()
		case <-ctx.Done():
			return value, o.errBusy()
		}
		err = o.fetch(ctx, path, &value)
		return value, err
	}
	_, err = o.unknownKeys.Do(ctx, principal.FromContext(ctx).IP, func() (bool, error) {
		err := o.fetch(ctx, path, &value)
		return err == nil && value.Exists(), err
	})
	if problem.Is(err, problem.Unavailable) { // the queue refused the question
		err = o.errBusy()
	}
	return value, err
}

func (o *origin) errBusy() error {
	return fmt.Errorf("ask %s: too many questions at once: %w", o.service, mesh.ErrUnavailable)
}

// fetch asks the service. If the service is unavailable, the origin pauses for originRetryInterval.
func (o *origin) fetch(ctx context.Context, path string, into any) error {
	err := o.peers.Ask(ctx, o.service, path, into)
	switch {
	case errors.Is(err, mesh.ErrUnavailable):
		o.pausedUntil.Store(int64(time.Since(o.startedAt) + originRetryInterval))
	case err == nil:
		o.pausedUntil.Store(0)
	}
	return err
}
