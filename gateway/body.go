package gateway

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"
)

const (
	// progressTimeout is how long the gateway waits for the next progressBytes of a request body, and for a caller to read more of
	// the response.
	progressTimeout = 30 * time.Second
	// progressBytes is the amount of body, in bytes, that must arrive within progressTimeout.
	progressBytes = 64 << 10
	// drainTimeout is how long the unread rest of a body may keep arriving after the response. Once it has arrived, the connection
	// can serve another request.
	drainTimeout = time.Second
)

// timedBody ends a request body whose caller stops sending, or sends only a trickle. The deadline lies on the connection, so a
// response that waits for the rest of the body does not wait for ever, even if nobody reads that body.
type timedBody struct {
	io.ReadCloser
	ctx             context.Context
	connection      *http.ResponseController
	progressTimeout time.Duration
	remaining       time.Duration // of progressTimeout, for the current progressBytes
	bytesRead       int           // of the current progressBytes
	reachedEnd      bool
}

// limitBody puts deadlines on the request's body. Call the returned function after the response.
func (g *Gateway) limitBody(r *http.Request, connection *http.ResponseController) func() {
	if r.Body == nil || r.Body == http.NoBody {
		return func() {}
	}
	b := &timedBody{
		ReadCloser:      r.Body,
		ctx:             r.Context(),
		connection:      connection,
		progressTimeout: g.progressTimeout,
		remaining:       g.progressTimeout,
	}
	b.extendDeadline(b.progressTimeout)
	r.Body = b
	return func() {
		if !b.reachedEnd {
			b.extendDeadline(drainTimeout)
		}
	}
}

func (b *timedBody) Read(p []byte) (int, error) {
	began := time.Now()
	b.extendDeadline(b.remaining)
	if err := revocationCause(b.ctx); err != nil {
		return 0, err
	}
	n, err := b.ReadCloser.Read(p)
	b.remaining -= time.Since(began)
	if b.bytesRead += n; b.bytesRead >= progressBytes {
		b.bytesRead, b.remaining = 0, b.progressTimeout
	}
	if errors.Is(err, io.EOF) {
		b.reachedEnd = true
		_ = b.connection.SetReadDeadline(time.Time{}) // a request without a connection has no deadlines
	}
	return n, err
}

// extendDeadline gives the caller this long to send more. A request without a connection, as in tests, has no deadlines.
func (b *timedBody) extendDeadline(d time.Duration) {
	_ = b.connection.SetReadDeadline(time.Now().Add(d)) // a request without a connection has no deadlines
}
