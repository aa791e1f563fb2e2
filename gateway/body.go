package gateway

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"
)

const (
	// progressTimeout is for how long a caller may be waited for until the next stretch of a body is there, or until something of
	// an answer is taken.
	progressTimeout = 30 * time.Second
	// progressBytes is in bytes.
	progressBytes = 64 << 10
	// drainTimeout is for how long what nobody read of a body may still come, so that the connection can be used again.
	drainTimeout = time.Second
)

// timedBody gives up on a caller who stops sending, or sends a little now and then. An answer may wait for the rest of its
// request's body, whether or not anybody reads it.
type timedBody struct {
	io.ReadCloser
	ctx             context.Context
	connection      *http.ResponseController
	progressTimeout time.Duration
	remaining       time.Duration // of it, for the stretch that is under way
	bytesRead       int           // of that stretch
	reachedEnd      bool
}

// limitBody puts deadlines on the request's body. What it returns is called after the answer.
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
		_ = b.connection.SetReadDeadline(time.Time{}) // where there is a connection
	}
	return n, err
}

func (b *timedBody) extendDeadline(d time.Duration) {
	_ = b.connection.SetReadDeadline(time.Now().Add(d)) // where there is a connection
}
