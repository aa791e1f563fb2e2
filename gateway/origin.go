package gateway

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/keycache"
	"github.com/ironplane/ironplane/pkg/auth/throttle"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/runtime/mesh"
)

const (
	// originTime is how long a service may take to answer for an entry.
	originTime = 3 * time.Second
	// originPause is how long a service that did not answer is not asked where a stale entry can stand in.
	originPause = time.Second
	// originQuestions bounds how many entries a service is asked for at the same time, besides those of strangers.
	originQuestions = 8
	// mostStrangers is how many keys that are not known wait: where all of them are guesses, about as many as are asked for in time.
	mostStrangers = 500
)

// origin is the service that entries come from where Redis has none.
type origin struct {
	service     string
	peers       mesh.Peers
	start       time.Time
	pausedUntil atomic.Int64 // since start; 0: it answered

	known     chan struct{}   // a semaphore
	strangers *throttle.Queue // with keys that are not known
}

func newOrigin(service string, peers mesh.Peers) *origin {
	return &origin{
		service:   service,
		peers:     peers,
		start:     time.Now(),
		known:     make(chan struct{}, originQuestions),
		strangers: throttle.NewQueue(mostStrangers),
	}
}

// paused tells whether it failed to answer a moment ago. When the pause is over, it is false for the first who asks, who
// then finds out.
func (o *origin) paused() bool {
	until, now := o.pausedUntil.Load(), time.Since(o.start)
	if until == 0 || time.Duration(until) <= now && o.pausedUntil.CompareAndSwap(until, int64(now+originTime+originPause)) {
		return false
	}
	return true
}

// ask gets an entry. The error is mesh.ErrAway where the service cannot be reached.
func ask[T keycache.Value](ctx context.Context, o *origin, path string, s keyStatus) (told T, err error) {
	ctx, cancel := o.peers.Limit(ctx, originTime)
	defer cancel()
	if s == known {
		select {
		case o.known <- struct{}{}:
			defer func() { <-o.known }()
		case <-ctx.Done():
			return told, o.errBusy()
		}
		err = o.getNow(ctx, path, &told)
		return told, err
	}
	_, err = o.strangers.Do(ctx, func() (bool, error) {
		err := o.getNow(ctx, path, &told)
		return err == nil && told.Exists(), err
	})
	if problem.Is(err, problem.Unavailable) { // it was not asked
		err = o.errBusy()
	}
	return told, err
}

func (o *origin) errBusy() error {
	return fmt.Errorf("ask %s: too many ask it at once: %w", o.service, mesh.ErrAway)
}

func (o *origin) getNow(ctx context.Context, path string, into any) error {
	err := o.peers.Ask(ctx, o.service, path, into)
	switch {
	case errors.Is(err, mesh.ErrAway):
		o.pausedUntil.Store(int64(time.Since(o.start) + originPause))
	case err == nil:
		o.pausedUntil.Store(0)
	}
	return err
}
