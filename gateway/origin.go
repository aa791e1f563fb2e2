package gateway

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/ironplane/ironplane/pkg/mesh"
)

const (
	// originTime is how long a service may take to answer for an entry.
	originTime = 3 * time.Second
	// originPause is how long a service that did not answer is not asked where a stale entry can stand in.
	originPause = time.Second
	// originQuestions bounds how many entries a service is asked for at the same time. Keys that are not known have half
	// as many of their own: however many they are, they hold up nobody else.
	originQuestions = 8
)

// origin is the service that entries come from where Redis has none.
type origin struct {
	service     string
	get         func(ctx context.Context, service, path string, into any) error
	start       time.Time
	pausedUntil atomic.Int64 // since start; 0: it answered

	known, unknown chan struct{} // semaphores
}

func newOrigin(service string, get func(ctx context.Context, service, path string, into any) error) *origin {
	return &origin{service: service, get: get, start: time.Now(),
		known: make(chan struct{}, originQuestions), unknown: make(chan struct{}, originQuestions/2)}
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
func (o *origin) ask(ctx context.Context, path string, s keyStatus, into any) error {
	ctx, cancel := context.WithTimeout(ctx, originTime)
	defer cancel()
	semaphore := o.known
	if s != known {
		semaphore = o.unknown
	}
	select {
	case semaphore <- struct{}{}:
		defer func() { <-semaphore }()
	case <-ctx.Done():
		return fmt.Errorf("ask %s: too many ask it at once: %w", o.service, mesh.ErrAway)
	}
	err := o.get(ctx, o.service, path, into)
	switch {
	case errors.Is(err, mesh.ErrAway):
		o.pausedUntil.Store(int64(time.Since(o.start) + originPause))
	case err == nil:
		o.pausedUntil.Store(0)
	}
	return err
}
