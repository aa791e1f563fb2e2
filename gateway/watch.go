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
	// watchTick is how often requests under way are looked through, and watchAge how old a decision is that is made anew:
	// so none is older than both together and the look-up, which is to be less than memoryLife.
	watchTick = 20 * time.Millisecond
	watchAge  = 30 * time.Millisecond
	// watchGrace is left to a refused request: one that revokes its own key is about to be answered.
	watchGrace = 15 * time.Millisecond
	// watchLookups bounds how many keys are looked up for it at the same time.
	watchLookups = 64
)

// watch decides requests that are under way again and again, by one look-up for all of a key, and stops those whose key
// is gone or may do less than before. Where nobody can tell, they go on.
type watch struct {
	keys *keys
	stop context.CancelFunc
	work sync.WaitGroup

	begun chan struct{} // holds one value where a request has begun since there was none

	mu       sync.Mutex
	requests map[*watched]struct{}
	lookups  map[[32]byte]struct{} // under way, by the key's hash
}

// watched is a request that is under way. All but stop belongs to the watch's lock.
type watched struct {
	decision
	began   *principal.Principal
	refusal error     // by the last decision
	refused time.Time // when that was made
	stop    func(cause error)
}

// newWatch works until Close.
func newWatch(k *keys) *watch {
	ctx, stop := context.WithCancel(context.Background())
	w := &watch{keys: k, stop: stop, begun: make(chan struct{}, 1), requests: map[*watched]struct{}{}, lookups: map[[32]byte]struct{}{}}
	w.work.Go(func() {
		for {
			select {
			case <-w.begun:
				w.lookOn(ctx)
			case <-ctx.Done():
				return
			}
		}
	})
	return w
}

// lookOn looks through the requests again and again until there is none.
func (w *watch) lookOn(ctx context.Context) {
	tick := time.NewTicker(watchTick)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if !w.lookThrough(ctx) {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// Close ends it, and what it asks.
func (w *watch) Close() {
	w.stop()
	w.work.Wait()
}

// add watches a request until remove. The function stop is called at most once, and not after remove.
func (w *watch) add(d decision, stop func(cause error)) *watched {
	r := &watched{decision: d, began: d.principal, stop: stop}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.requests) == 0 {
		select {
		case w.begun <- struct{}{}:
		default:
		}
	}
	w.requests[r] = struct{}{}
	return r
}

func (w *watch) remove(r *watched) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.requests, r)
}

// renew is for a request that was decided anew by itself.
func (w *watch) renew(r *watched, d decision) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r.decision, r.began, r.refusal = d, d.principal, nil
}

// lookThrough stops the requests that were refused, and begins to look up the keys of those whose decisions are old. It returns
// whether there are any.
func (w *watch) lookThrough(ctx context.Context) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	old := map[[32]byte][]*watched{}
	for r := range w.requests {
		if r.refusal != nil {
			if time.Since(r.refused) >= watchGrace {
				delete(w.requests, r)
				r.stop(r.refusal)
			}
			continue
		}
		if _, asked := w.lookups[r.hash]; !asked && time.Since(r.since) >= watchAge {
			old[r.hash] = append(old[r.hash], r)
		}
	}
	for hash, requests := range old {
		if len(w.lookups) == watchLookups {
			return true
		}
		w.lookups[hash] = struct{}{}
		w.work.Go(func() {
			ctx := principal.With(ctx, &principal.Call{Peer: principal.Gateway, RequestID: rand.Text()})
			f, err := w.keys.find(ctx, hash, known)
			w.decide(requests, decision{hash, f}, err)
		})
	}
	return len(w.requests) > 0
}

// decide goes by what was found of a key.
func (w *watch) decide(requests []*watched, now decision, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.lookups, now.hash)
	if err != nil {
		return
	}
	for _, r := range requests {
		if now.since.Before(r.since) {
			continue
		}
		if r.refusal = now.refuse(r.began); r.refusal != nil {
			r.refused = time.Now()
		} else {
			r.decision = now
		}
	}
}

// refuse says why a request may not go on that began with the rights of a principal.
func (d decision) refuse(began *principal.Principal) error {
	switch {
	case !d.valid():
		return problem.New(problem.Unauthenticated, "The API key is not valid any more. What was asked for may have been done, or not.").
			Because(errRevoked)
	case d.principal.Owner != began.Owner || !d.principal.Grants.Holds(began.Grants):
		return problem.New(problem.Forbidden, "The API key may do less than when the request began. What was asked for may have been "+
			"done, or not.").
			Because(errRevoked)
	}
	return nil
}

// errRevoked ends what is done for the request as if its caller had left.
var errRevoked = revoked{}

type revoked struct{}

func (revoked) Error() string        { return "the key was revoked while the request was under way" }
func (revoked) Is(target error) bool { return target == context.Canceled }

// revocation is why the watch stopped a request, nil where it did not.
func revocation(ctx context.Context) error {
	if cause := context.Cause(ctx); errors.Is(cause, errRevoked) {
		return cause
	}
	return nil
}
