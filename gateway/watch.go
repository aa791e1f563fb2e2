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
	// watchInterval is how often running requests are checked, and maxWatchedAge how old a decision may be before it is renewed.
	// Both together with the look-up must be less than maxDecisionAge.
	watchInterval = 20 * time.Millisecond
	maxWatchedAge = 30 * time.Millisecond
	// stopGrace is the time between a refusal and the request's end: a request that revokes its own key is about to be answered.
	stopGrace = 15 * time.Millisecond
	// maxWatchLookups bounds how many keys the watcher looks up at the same time.
	maxWatchLookups = 64
)

// requestWatcher checks the keys of running requests again and again, with one look-up for all requests of a key. It stops
// requests whose key was revoked or lost permissions. If no service can tell, requests go on.
type requestWatcher struct {
	keys  *keys
	stop  context.CancelFunc
	tasks sync.WaitGroup

	added chan struct{} // holds one value if requests may have to be checked

	mu           sync.Mutex
	requests     map[*watchedRequest]struct{}
	lookups      map[[32]byte]struct{} // in progress, by the key's hash
	closelyUntil time.Time             // until then streams are checked as often as other requests
	isDraining   bool                  // streams end
}

// watchedRequest is a running request. The watcher's mutex guards all fields but stop.
type watchedRequest struct {
	decision
	initial   *principal.Principal // when the request was admitted
	refusal   error                // by the last decision
	refusedAt time.Time
	stop      func(cause error)
	end       func() // ends a stream as if its caller had left
	isStream  bool
}

// newRequestWatcher returns a watcher that works until Close. revoked have a value when a service has revoked something.
func newRequestWatcher(k *keys, revoked ...<-chan struct{}) *requestWatcher {
	ctx, stop := context.WithCancel(context.Background())
	w := &requestWatcher{
		keys:     k,
		stop:     stop,
		added:    make(chan struct{}, 1),
		requests: map[*watchedRequest]struct{}{},
		lookups:  map[[32]byte]struct{}{},
	}
	for _, woken := range revoked {
		w.tasks.Go(func() { w.followRevocations(ctx, woken) })
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

// watchUntilIdle checks the requests until there is none but streams.
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

// Close ends the watcher and its look-ups.
func (w *requestWatcher) Close() {
	w.stop()
	w.tasks.Wait()
}

// add watches a request until remove. stop is called at most once, and not after remove. end ends the request if it is a stream.
func (w *requestWatcher) add(d decision, stop func(cause error), end func()) *watchedRequest {
	r := &watchedRequest{decision: d, initial: d.principal, stop: stop, end: end}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.requests[r] = struct{}{}
	w.signal()
	return r
}

// signal makes the watcher check the requests.
func (w *requestWatcher) signal() {
	select {
	case w.added <- struct{}{}:
	default:
	}
}

func (w *requestWatcher) remove(r *watchedRequest) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.requests, r)
}

// renew replaces the decision of a request that has just checked its key by itself.
func (w *requestWatcher) renew(r *watchedRequest, d decision) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r.decision, r.initial, r.refusal = d, d.principal, nil
}

// checkRequests stops refused requests, and starts look-ups for those with an old decision. It returns whether it has to be called
// again soon.
func (w *requestWatcher) checkRequests(ctx context.Context) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	old := map[[32]byte][]*watchedRequest{}
	closely, isBusy := time.Now().Before(w.closelyUntil), false
	for r := range w.requests {
		if r.isStream && r.refusal == nil && !closely {
			continue
		}
		isBusy = true
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
			ctx := principal.NewContext(ctx, &principal.Call{Peer: principal.Gateway, RequestID: rand.Text()})
			f, err := w.keys.find(ctx, hash, known)
			w.applyLookup(requests, decision{hash, f}, err)
		})
	}
	return isBusy
}

// applyLookup applies the result of a look-up to the requests of its key.
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

// checkStillAllowed returns the reason why a request that began with the rights of initial may not go on.
func (d decision) checkStillAllowed(initial *principal.Principal) error {
	switch {
	case !d.isValid():
		return problem.New(
			problem.Unauthenticated,
			"The API key was revoked or expired during the request, which may or may not have been completed.",
		).Because(errRevoked)
	case d.principal.Owner != initial.Owner || !d.principal.Grants.Holds(initial.Grants):
		return problem.New(problem.Forbidden, "The API key lost permissions during the request, which may or may not have been completed.").
			Because(errRevoked)
	}
	return nil
}

// errRevoked ends the work for a request as if its caller had left.
var errRevoked = revokedError{}

type revokedError struct{}

func (revokedError) Error() string        { return "the key was revoked during the request" }
func (revokedError) Is(target error) bool { return target == context.Canceled }

// revocationCause returns why the watcher stopped a request, or nil if it did not.
func revocationCause(ctx context.Context) error {
	if cause := context.Cause(ctx); errors.Is(cause, errRevoked) {
		return cause
	}
	return nil
}
