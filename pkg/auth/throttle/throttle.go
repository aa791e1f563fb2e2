// Package throttle makes unauthenticated callers wait for each other, and for nobody else. Guesses use at most a quarter
// of one processor, however many there are and however many addresses they come from.
package throttle

import (
	"context"
	"math"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/ironplane/ironplane/pkg/problem"
)

const (
	waitTimeout = 15 * time.Second
	// restFactor is the length of the rest after a guess, as a multiple of the guess's own duration. The guess also
	// costs other processes time, which is not measured here, so a rest has a minimal length.
	restFactor       = 3
	minRest, maxRest = 2 * time.Millisecond, time.Second
)

// Queue runs the work of unauthenticated callers one at a time. The next one is the caller whose address and networks
// have guessed least, so a network waits behind itself.
type Queue struct {
	maxWaiting  int
	waitTimeout time.Duration

	mu         sync.Mutex
	isBusy     bool
	isLastNext bool      // of equal callers; otherwise the first is next
	waiting    []*waiter // in the order of arrival
	networks   history
}

// waiter is a caller that waits for its turn.
type waiter struct {
	turn     chan error // nil: it is the caller's turn
	networks networks
}

// NewQueue returns a Queue in which at most this many callers wait, each for 15 seconds or minTimeout, whichever is longer. Tests
// set minTimeout, so that no caller is refused because the machine is busy.
func NewQueue(maxWaiting int, minTimeout time.Duration) *Queue {
	return &Queue{maxWaiting: maxWaiting, waitTimeout: max(waitTimeout, minTimeout), networks: newHistory(time.Now())}
}

// Do runs work when the caller's turn comes. work tells whether the caller proved something; if it did not, it was a
// guess, and the next turn starts after a rest. The error is a 503 if the turn does not come in time, or if too many
// callers wait whose networks have guessed less.
func (q *Queue) Do(ctx context.Context, from netip.Addr, work func() (proved bool, err error)) (proved bool, err error) {
	w := q.enter(from)
	if err := q.wait(ctx, w); err != nil {
		return false, err
	}
	began := time.Now()
	defer func() {
		if proved {
			q.end(w, 0)
			q.next()
			return
		}
		q.end(w, 1)
		time.AfterFunc(max(minRest, min(restFactor*time.Since(began), maxRest)), q.next)
	}()
	return work()
}

// enter adds a caller to the queue. If the queue is full, the caller whose networks have guessed most leaves it, and of equal ones the
// new one.
func (q *Queue) enter(from netip.Addr) *waiter {
	q.mu.Lock()
	defer q.mu.Unlock()
	w := &waiter{make(chan error, 1), q.networks.enter(from)}
	if !q.isBusy {
		q.isBusy = true
		w.turn <- nil
		return w
	}
	q.waiting = append(q.waiting, w)
	if len(q.waiting) > q.maxWaiting {
		last := w
		for _, other := range q.waiting {
			if other.networks.weight() > last.networks.weight() {
				last = other
			}
		}
		q.remove(last)
		q.networks.leave(last.networks, 0)
		last.turn <- errBusy(nil)
	}
	return w
}

// wait waits for the caller's turn.
func (q *Queue) wait(ctx context.Context, w *waiter) error {
	ctx, cancel := context.WithTimeout(ctx, q.waitTimeout)
	defer cancel()
	select {
	case err := <-w.turn:
		return err
	case <-ctx.Done():
	}
	q.mu.Lock()
	isWaiting := slices.Contains(q.waiting, w)
	if isWaiting {
		q.remove(w)
		q.networks.leave(w.networks, 0)
	}
	q.mu.Unlock()
	if !isWaiting && <-w.turn == nil { // its turn came at the same moment
		q.end(w, 0)
		q.next()
	}
	return errBusy(ctx.Err())
}

// remove takes a caller off the waiting ones.
func (q *Queue) remove(w *waiter) {
	q.waiting = slices.DeleteFunc(q.waiting, func(other *waiter) bool { return other == w })
}

// end ends a caller's turn, in which it made this many guesses.
func (q *Queue) end(w *waiter, guesses int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.networks.leave(w.networks, guesses)
}

// tolerance is how much more than the least weight a caller may have to be equal to the one that has it.
const tolerance = 1.1

// next gives the turn to the caller whose networks have guessed least. Among equal callers it alternates between the first and
// the last. Many new networks at once may belong to one attacker. So a caller who arrives after them does not wait for all of
// them, and a caller who arrived before them gets a turn, too.
func (q *Queue) next() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 {
		q.isBusy = false
		return
	}
	least := math.Inf(1)
	for _, w := range q.waiting {
		least = min(least, w.networks.weight())
	}
	var equal []*waiter
	for _, w := range q.waiting {
		if w.networks.weight() <= least*tolerance {
			equal = append(equal, w)
		}
	}
	chosen := equal[0]
	if q.isLastNext {
		chosen = equal[len(equal)-1]
	}
	q.isLastNext = !q.isLastNext
	q.remove(chosen)
	chosen.turn <- nil
}

func errBusy(cause error) error {
	busy := problem.New(problem.Unavailable, "Too many sign-in attempts are in progress. Try again in 5 seconds.").Because(cause)
	busy.RetryAfter = 5 * time.Second
	return busy
}
