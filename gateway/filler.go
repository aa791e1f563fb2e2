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
	// fillTime is how long a service may take to answer for an entry.
	fillTime = 3 * time.Second
	// absence is for how long a service that did not answer counts as away where a stale entry can stand in.
	absence = time.Second
	// fills bounds how many entries a service is asked for at the same time. Strangers have turns of their own, and
	// fewer: however many they are, they hold up nobody else.
	fills = 8
)

// filler is a service that fills entries.
type filler struct {
	service string
	get     func(ctx context.Context, service, path string, into any) error
	start   time.Time
	until   atomic.Int64 // when it counts as away no more, since start

	turns, strangersTurns chan struct{}
}

func newFiller(service string, get func(ctx context.Context, service, path string, into any) error) *filler {
	return &filler{service: service, get: get, start: time.Now(),
		turns: make(chan struct{}, fills), strangersTurns: make(chan struct{}, fills/2)}
}

// away tells whether it failed to answer a moment ago. When that moment is over, it is false for the first who asks,
// who then finds out.
func (f *filler) away() bool {
	until, now := f.until.Load(), time.Since(f.start)
	if until == 0 || time.Duration(until) <= now && f.until.CompareAndSwap(until, int64(now+fillTime+absence)) {
		return false
	}
	return true
}

// ask gets an entry. The error is mesh.ErrAway where the service cannot be reached.
func (f *filler) ask(ctx context.Context, path string, s standing, into any) error {
	ctx, cancel := context.WithTimeout(ctx, fillTime)
	defer cancel()
	turns := f.turns
	if s != familiar {
		turns = f.strangersTurns
	}
	select {
	case turns <- struct{}{}:
		defer func() { <-turns }()
	case <-ctx.Done():
		return fmt.Errorf("ask %s: too many ask it at once: %w", f.service, mesh.ErrAway)
	}
	err := f.get(ctx, f.service, path, into)
	switch {
	case errors.Is(err, mesh.ErrAway):
		f.until.Store(int64(time.Since(f.start) + absence))
	case err == nil:
		f.until.Store(0)
	}
	return err
}
