// Package throttle makes unauthenticated callers wait for each other, and for nobody else. Guesses use at most a quarter
// of one processor, however many there are and however many addresses they come from.
package throttle

import (
	"context"
	"time"

	"github.com/ironplane/ironplane/pkg/problem"
)

const (
	waitTimeout = 10 * time.Second
	// restFactor is the length of the rest after a guess, as a multiple of the guess's own duration. The guess also
	// costs other processes time, which is not measured here, so a rest has a minimal length.
	restFactor       = 3
	minRest, maxRest = 2 * time.Millisecond, time.Second
)

// Queue runs the work of unauthenticated callers one at a time.
type Queue struct{ waiting, running chan struct{} } // semaphores

// NewQueue returns a Queue in which at most this many callers wait.
func NewQueue(maxWaiting int) *Queue {
	return &Queue{waiting: make(chan struct{}, maxWaiting), running: make(chan struct{}, 1)}
}

// Do runs work when its turn comes. work tells whether the caller proved something; if it did not, it was a guess, and
// the next turn starts after a rest. If too many callers wait, or the turn does not come in time, the error is a 503.
func (q *Queue) Do(ctx context.Context, work func() (proved bool, err error)) (proved bool, err error) {
	if err := q.wait(ctx); err != nil {
		return false, err
	}
	began := time.Now()
	defer func() {
		rest := time.Duration(0)
		if !proved {
			rest = max(minRest, min(restFactor*time.Since(began), maxRest))
		}
		time.AfterFunc(rest, func() { <-q.running })
	}()
	return work()
}

func (q *Queue) wait(ctx context.Context) error {
	select {
	case q.waiting <- struct{}{}:
		defer func() { <-q.waiting }()
	default:
		return errBusy(nil)
	}
	ctx, cancel := context.WithTimeout(ctx, waitTimeout)
	defer cancel()
	select {
	case q.running <- struct{}{}:
		return nil
	case <-ctx.Done():
		return errBusy(ctx.Err())
	}
}

func errBusy(cause error) error {
	busy := problem.New(problem.Unavailable, "Too many sign-in attempts are in progress. Try again in 5 seconds.").Because(cause)
	busy.RetryAfter = 5 * time.Second
	return busy
}
