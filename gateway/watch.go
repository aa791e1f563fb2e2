package gateway

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/problem"
)

const (
	// watchInterval is how often requests under way are looked through, and maxWatchedAge how old a decision is that is made anew:
	// so none is older than both together and the look-up, which is to be less than memoryLife.
	watchInterval = 20 * time.Millisecond
	maxWatchedAge = 30 * time.Millisecond
	// stopGrace is left to a refused request: one that revokes its own key is about to be answered.
	stopGrace = 15 * time.Millisecond
	// maxWatchLookups bounds how many keys are looked up for it at the same time.
	maxWatchLookups = 64
)

// requestWatcher decides requests that are under way again and again, by one look-up for all of a key, and stops those whose key
// is gone or may do less than before. Where nobody can tell, they go on.
type requestWatcher struct {
	keys  *keys
	stop  context.CancelFunc
	tasks sync.WaitGroup

	added chan struct{} // holds one value where a request has begun since there was none

	mu       sync.Mutex
	requests map[*watchedRequest]struct{}
	lookups  map[[32]byte]struct{} // under way, by the key's hash
}

// watchedRequest is a request that is under way. All but stop belongs to the watch's lock.
type watchedRequest struct {
	decision
	initial   *principal.Principal
	refusal   error     // by the last decision
	refusedAt time.Time // when that was made
	stop      func(cause error)
}

// newRequestWatcher works until Close.
func newRequestWatcher(k *keys) *requestWatcher {
	ctx, stop := context.WithCancel(context.Background())
	w := &requestWatcher{
		keys:     k,
		stop:     stop,
		added:    make(chan struct{}, 1),
		requests: map[*watchedRequest]struct{}{},
		lookups:  map[[32]byte]struct{}{},
	}
	w.tasks.Go(func() {
		for {
			select {
			case <-w.added:
				w.watchUntilIdle(ctx)
			case <-ctx.Done():
				return
			}
		}
	})
	return w
}

// watchUntilIdle looks through the requests again and again until there is none.
func (w *requestWatcher) watchUntilIdle(ctx context.Context) {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if !w.checkRequests(ctx) {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// Close ends it, and what it asks.
func (w *requestWatcher) Close() {
	w.stop()
	w.tasks.Wait()
}

// add watches a request until remove. The function stop is called at most once, and not after remove.
func (w *requestWatcher) add(d decision, stop func(cause error)) *watchedRequest {
	r := &watchedRequest{decision: d, initial: d.principal, stop: stop}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.requests) == 0 {
		select {
		case w.added <- struct{}{}:
		default:
		}
	}
	w.requests[r] = struct{}{}
	return r
}

func (w *requestWatcher) remove(r *watchedRequest) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.requests, r)
}

// renew is for a request that was decided anew by itself.
func (w *requestWatcher) renew(r *watchedRequest, d decision) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r.decision, r.initial, r.refusal = d, d.principal, nil
}

// checkRequests stops the requests that were refused, and begins to look up the keys of those whose decisions are old. It returns
// whether there are any.
func (w *requestWatcher) checkRequests(ctx context.Context) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	old := map[[32]byte][]*watchedRequest{}
	for r := range w.requests {
		if r.refusal != nil {
			if time.Since(r.refusedAt) >= stopGrace {
				delete(w.requests, r)
				r.stop(r.refusal)
			}
			continue
		}
		if _, pending := w.lookups[r.hash]; !pending && time.Since(r.asOf) >= maxWatchedAge {
			old[r.hash] = append(old[r.hash], r)
		}
	}
	for hash, requests := range old {
		if len(w.lookups) == maxWatchLookups {
			return true
		}
		w.lookups[hash] = struct{}{}
		w.tasks.Go(func() {
			ctx := principal.With(ctx, &principal.Call{Peer: principal.Gateway, RequestID: rand.Text()})
			f, err := w.keys.find(ctx, hash, known)
			w.applyLookup(requests, decision{hash, f}, err)
		})
	}
	return len(w.requests) > 0
}

// applyLookup goes by what was found of a key.
func (w *requestWatcher) applyLookup(requests []*watchedRequest, current decision, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.lookups, current.hash)
	if err != nil {
		return
	}
	for _, r := range requests {
		if current.asOf.Before(r.asOf) {
			continue
		}
		if r.refusal = current.checkStillAllowed(r.initial); r.refusal != nil {
			r.refusedAt = time.Now()
		} else {
			r.decision = current
		}
	}
}

// checkStillAllowed says why a request may not go on that began with the rights of a principal.
func (d decision) checkStillAllowed(initial *principal.Principal) error {
	switch {
	case !d.isValid():
		return problem.New(problem.Unauthenticated, "The API key is not valid any more. What was asked for may have been done, or not.").
			Because(errRevoked)
	case d.principal.Owner != initial.Owner || !d.principal.Grants.Holds(initial.Grants):
		return problem.New(problem.Forbidden, "The API key may do less than when the request began. What was asked for may have been "+
			"done, or not.").
			Because(errRevoked)
	}
	return nil
}

// errRevoked ends what is done for the request as if its caller had left.
var errRevoked = revokedError{}

type revokedError struct{}

func (revokedError) Error() string        { return "the key was revoked while the request was under way" }
func (revokedError) Is(target error) bool { return target == context.Canceled }

// revocationCause is why the watch stopped a request, nil where it did not.
func revocationCause(ctx context.Context) error {
	if cause := context.Cause(ctx); errors.Is(cause, errRevoked) {
		return cause
	}
	return nil
}
