package gateway

import (
	"context"
	"errors"
	"strings"
	"time"
)

// A stream is a response of server-sent events, which stays open for hours. Looking up its key every 30 ms, as for other requests,
// would keep an idle installation busy. So the key is looked up before each write. In between, the services that revoke something
// wake the gateway, which then checks streams as closely as other requests for a while.

// closelyTimeout is how long streams are checked after a revocation. Services announce it before they remove entries from Redis,
// which takes about as long as entries are trusted if Redis cannot be reached.
const closelyTimeout = 7 * time.Second

// errDraining ends streams when the process ends.
var errDraining = errors.New("the process is about to end")

// isEventStream reports whether a response of this type is a stream.
func isEventStream(contentType string) bool {
	return strings.HasPrefix(contentType, "text/event-stream")
}

// followRevocations checks streams closely whenever woken has a value, until ctx ends.
func (w *requestWatcher) followRevocations(ctx context.Context, woken <-chan struct{}) {
	for {
		select {
		case <-woken:
			w.checkStreams()
		case <-ctx.Done():
			return
		}
	}
}

// checkStreams checks streams as closely as other requests, for closelyTimeout.
func (w *requestWatcher) checkStreams() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closelyUntil = time.Now().Add(closelyTimeout)
	w.signal()
}

// markStream makes a request a stream.
func (w *requestWatcher) markStream(r *watchedRequest) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.isStream = true; w.isDraining {
		r.end()
	}
}

// confirmStream decides again about the key of a stream that is about to send something, unless that was done a moment ago. It
// stops the stream if the key was revoked, or lost permissions, or if nobody can tell.
func (w *requestWatcher) confirmStream(ctx context.Context, r *watchedRequest) error {
	w.mu.Lock()
	current, refusal := r.decision, r.refusal
	w.mu.Unlock()
	for refusal == nil && time.Since(current.asOf) > maxReuseAge {
		asked := time.Now()
		found, err := w.keys.find(ctx, current.hash, known)
		if err != nil {
			return errLookupUnavailable(err)
		}
		current = decision{current.hash, found}
		if refusal = current.checkStillAllowed(r.initial); !found.asOf.Before(asked) {
			break
		}
	}
	w.mu.Lock()
	if r.decision.asOf.Before(current.asOf) {
		r.decision = current
	}
	w.mu.Unlock()
	if refusal != nil {
		r.stop(refusal)
		return errRevoked
	}
	return nil
}

// Drain ends all streams, which would keep the process from ending.
func (g *Gateway) Drain() {
	g.watcher.mu.Lock()
	defer g.watcher.mu.Unlock()
	g.watcher.isDraining = true
	for r := range g.watcher.requests {
		if r.isStream {
			r.end()
		}
	}
}
