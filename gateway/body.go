package gateway

import (
	"errors"
	"io"
	"net/http"
	"time"
)

const (
	// progress is for how long a caller may send nothing of a body, or take nothing of an answer.
	progress = 30 * time.Second
	// remainder is for how long what nobody read of a body may still come, so that the connection can be used again.
	remainder = time.Second
)

// body gives up on a caller who stops sending. An answer may wait for the rest of its request's body, whether or not
// anybody reads it.
type body struct {
	io.ReadCloser
	connection *http.ResponseController
	progress   time.Duration
	ended      bool
}

// limitBody puts deadlines on the request's body. What it returns is called after the answer.
func (g *Gateway) limitBody(r *http.Request, connection *http.ResponseController) func() {
	if r.Body == nil || r.Body == http.NoBody {
		return func() {}
	}
	b := &body{ReadCloser: r.Body, connection: connection, progress: g.progress}
	b.allow(b.progress)
	r.Body = b
	return func() {
		if !b.ended {
			b.allow(remainder)
		}
	}
}

func (b *body) Read(p []byte) (int, error) {
	b.allow(b.progress)
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		b.ended = true
		_ = b.connection.SetReadDeadline(time.Time{}) // where there is a connection
	}
	return n, err
}

func (b *body) allow(d time.Duration) {
	_ = b.connection.SetReadDeadline(time.Now().Add(d)) // where there is a connection
}
