package gateway

import (
	"bytes"
	"errors"
	"io"
	"net/http"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/problem"
)

const (
	// largestKept is the longest body, in bytes, that the gateway reads to its end before anybody else sees the request,
	// and largestAnonymous the same without a key. What is longer is an upload, or too long.
	largestKept, largestAnonymous = 1 << 20, 64 << 10
	// uncounted is how much of each of them takes no room.
	uncounted = 4 << 10
)

// readBody reads a body to its end, unless it is longer than is kept of its caller's: then what was read is put before the
// rest. The body gives its room back once it is read again, and by what is returned, which is called after the answer.
func (g *Gateway) readBody(r *http.Request, call *principal.Call) (free func(), err error) {
	free = func() {}
	longest := int64(largestKept)
	if call.Principal == nil {
		longest = largestAnonymous
	}
	switch {
	case r.Body == nil, r.Body == http.NoBody:
		return free, nil
	case r.Method == http.MethodGet, r.Method == http.MethodHead:
		return free, discardBody(r)
	case r.ContentLength > longest:
		return free, nil
	}
	size := longest + 1 // one more than there may be, to see the end
	if r.ContentLength >= 0 {
		size = r.ContentLength + 1
	}
	taken := &taking{room: g.bodies, shares: sharesOf(call)}
	text := make([]byte, 0, min(size, uncounted))
	for {
		if len(text) == cap(text) {
			if taken.bytes == 0 {
				if err := taken.take(r.Context(), size-uncounted); err != nil {
					return free, err
				}
			}
			larger := size
			if r.ContentLength < 0 {
				larger = min(2*int64(cap(text)), size)
			}
			text = append(make([]byte, 0, larger), text...)
		}
		n, err := r.Body.Read(text[len(text):cap(text)])
		text = text[:len(text)+n]
		switch {
		case errors.Is(err, io.EOF):
			taken.keep(int64(cap(text)) - uncounted)
			replaceBody(r, &keptBody{bytes.NewReader(text), taken}, len(text))
			return taken.free, nil
		case err != nil:
			taken.free()
			return free, errHalfBody(err)
		case int64(len(text)) > longest:
			r.Header.Del("Expect") // it was told to go on
			r.Body = rest{io.MultiReader(&keptBody{bytes.NewReader(text), taken}, r.Body), r.Body}
			return taken.free, nil
		}
	}
}

// discardBody reads the body of a request that has no use for one, so that nobody waits for it later.
func discardBody(r *http.Request) error {
	n, err := io.Copy(io.Discard, io.LimitReader(r.Body, largestKept+1))
	switch {
	case err != nil:
		return errHalfBody(err)
	case n > largestKept:
		return problem.New(problem.TooLarge, "The body is larger than %d bytes.", largestKept)
	}
	replaceBody(r, nil, 0)
	return nil
}

func replaceBody(r *http.Request, body io.ReadCloser, length int) {
	r.Header.Del("Expect")
	r.Body, r.ContentLength, r.TransferEncoding = body, int64(length), nil
	if length == 0 {
		r.Body = http.NoBody
	}
}

func errHalfBody(cause error) error {
	if problem.Is(cause, problem.BadRequest) {
		return cause
	}
	return problem.New(problem.BadRequest, "The body could not be read to its end.").Because(cause)
}

// keptBody is a body that was read. It gives its room back once it is read again.
type keptBody struct {
	text  *bytes.Reader
	taken *taking
}

func (b *keptBody) Read(p []byte) (int, error) {
	n, err := b.text.Read(p)
	if b.text.Len() == 0 {
		b.text.Reset(nil)
		b.taken.free()
	}
	return n, err
}

func (b *keptBody) Close() error { return nil }

type rest struct {
	io.Reader
	io.Closer
}
