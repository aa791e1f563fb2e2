// Package throttle has callers who have proved nothing wait for one another, and for nobody else: guesses take a quarter of one processor,
// however
// many there are, and from however many addresses.
package throttle

import (
	"context"
	"time"

	"github.com/ironplane/ironplane/pkg/problem"
)

const (
	waitTimeout = 10 * time.Second
	// restFactor is how many times as long as a guess the rest after it takes. Other processes cost more than is
	// measured here, so a rest has a minimal length.
	restFactor       = 3
	minRest, maxRest = 2 * time.Millisecond, time.Second
)

// Queue is where they wait for what takes work.
type Queue struct{ waiting, running chan struct{} } // semaphores

// NewQueue makes one where so many wait at most.
func NewQueue(maxWaiting int) *Queue {
	return &Queue{waiting: make(chan struct{}, maxWaiting), running: make(chan struct{}, 1)}
}

// Do does the work of one of them in his turn, and tells whether it proved anything: if not, it was a guess, and the next one's turn comes
// after
// a rest. Whose turn does not come, because too many wait or for too long, is told to try again: the error is Unavailable.
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
	busy := problem.New(problem.Unavailable, "Too many callers wait who have proved nothing yet.").Because(cause)
	busy.RetryAfter = 5 * time.Second
	return busy
}
