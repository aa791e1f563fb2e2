package gateway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/ironplane/ironplane/pkg/problem"
)

const (
	// largestKept is the longest body, in bytes, that the gateway reads to its end before anybody else sees the request.
	// What is longer is an upload, or too long.
	largestKept = 1 << 20
	// uncounted is how much of each of them need not be reserved, and keptInAll how much may be reserved for all.
	uncounted, keptInAll = 4 << 10, 64 << 20
	// roomTime is how long a body waits for others to make room for it.
	roomTime = 2 * time.Second
)

// readBody reads a body to its end, unless it is longer than largestKept: then what was read is put before the rest. What
// it returns is called when nobody needs the body any more.
func (g *Gateway) readBody(r *http.Request) (free func(), err error) {
	free = func() {}
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength > largestKept {
		return free, nil
	}
	room := &room{all: g.bodies}
	first := int64(uncounted)
	if r.ContentLength >= 0 {
		first = min(first, r.ContentLength+1)
	}
	text := make([]byte, 0, first)
	for {
		if len(text) == cap(text) {
			larger := min(2*cap(text), largestKept+1)
			if err := room.reserve(r.Context(), int64(larger-cap(text))); err != nil {
				room.free()
				return free, err
			}
			text = append(make([]byte, 0, larger), text...)
		}
		n, err := r.Body.Read(text[len(text):cap(text)])
		text = text[:len(text)+n]
		switch {
		case errors.Is(err, io.EOF):
			r.Header.Del("Expect")
			r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(text)), int64(len(text)), nil
			if len(text) == 0 {
				r.Body = http.NoBody
			}
			return room.free, nil
		case err != nil:
			room.free()
			return free, problem.New(problem.BadRequest, "The body could not be read to its end.").Because(err)
		case len(text) > largestKept:
			r.Header.Del("Expect") // it was told to go on
			r.Body = rest{io.MultiReader(bytes.NewReader(text), r.Body), r.Body}
			return room.free, nil
		}
	}
}

type rest struct {
	io.Reader
	io.Closer
}

// room is what one body takes of what there is for all.
type room struct {
	all *semaphore.Weighted
	has int64
}

func (m *room) reserve(ctx context.Context, bytes int64) error {
	ctx, cancel := context.WithTimeout(ctx, roomTime)
	defer cancel()
	if err := m.all.Acquire(ctx, bytes); err != nil {
		return problem.New(problem.Unavailable, "There are too many bodies at once.").Because(err)
	}
	m.has += bytes
	return nil
}

func (m *room) free() {
	m.all.Release(m.has)
	m.has = 0
}
