package gateway

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"
)

const (
	// progress is for how long a caller may be waited for until the next stretch of a body is there, or until something of
	// an answer is taken.
	progress = 30 * time.Second
	// stretch is in bytes.
	stretch = 64 << 10
	// remainder is for how long what nobody read of a body may still come, so that the connection can be used again.
	remainder = time.Second
)

// body gives up on a caller who stops sending, or sends a little now and then. An answer may wait for the rest of its
// request's body, whether or not anybody reads it.
type body struct {
	io.ReadCloser
	ctx        context.Context
	connection *http.ResponseController
	progress   time.Duration
	left       time.Duration // of it, for the stretch that is under way
	read       int           // of that stretch
	ended      bool
}

// limitBody puts deadlines on the request's body. What it returns is called after the answer.
func (g *Gateway) limitBody(r *http.Request, connection *http.ResponseController) func() {
	if r.Body == nil || r.Body == http.NoBody {
		return func() {}
	}
	b := &body{ReadCloser: r.Body, ctx: r.Context(), connection: connection, progress: g.progress, left: g.progress}
	b.allow(b.progress)
	r.Body = b
	return func() {
		if !b.ended {
			b.allow(remainder)
		}
	}
}

func (b *body) Read(p []byte) (int, error) {
	began := time.Now()
	b.allow(b.left)
	if err := revocation(b.ctx); err != nil {
		return 0, err
	}
	n, err := b.ReadCloser.Read(p)
	b.left -= time.Since(began)
	if b.read += n; b.read >= stretch {
		b.read, b.left = 0, b.progress
	}
	if errors.Is(err, io.EOF) {
		b.ended = true
		_ = b.connection.SetReadDeadline(time.Time{}) // where there is a connection
	}
	return n, err
}

func (b *body) allow(d time.Duration) {
	_ = b.connection.SetReadDeadline(time.Now().Add(d)) // where there is a connection
}
