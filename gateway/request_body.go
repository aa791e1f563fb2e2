package gateway

import (
	"bytes"
	"errors"
	"io"
	"net/http"

	"github.com/ironplane/ironplane/gateway/limits"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/problem"
)

const (
	// largestKept is the longest body, in bytes, that the gateway reads to its end before anybody else sees the request,
	// and largestAnonymous the same without a key. What is longer is an upload, or too long.
	largestKept, largestAnonymous = 1 << 20, 64 << 10
	// uncounted is how much of each of them counts against no budget.
	uncounted = 4 << 10
)

// What bodies may take of the gateway's memory, in bytes: in all, by owner, by key, by all callers without a key together, and
// by each of their addresses.
const (
	bodyBudget          = 64 << 20
	ownerBodyBudget     = bodyBudget / 8
	keyBodyBudget       = ownerBodyBudget / 2
	anonymousBodyBudget = bodyBudget / 8
	addressBodyBudget   = 8 * largestAnonymous
)

// everybody and anonymousCallers have shares of the budget for bodies, too.
type (
	everybody        struct{}
	anonymousCallers struct{}
	keyID            int64
)

func bodyShares(call *principal.Call) []limits.Share {
	all := limits.Share{Of: everybody{}, Max: bodyBudget, Kind: problem.Unavailable}
	if p := call.Principal; p != nil {
		return []limits.Share{
			{Of: keyID(p.KeyID), Max: keyBodyBudget, Kind: problem.TooManyRequests},
			{Of: p.Owner, Max: ownerBodyBudget, Kind: problem.TooManyRequests},
			all,
		}
	}
	return []limits.Share{
		{Of: networkOf(call.IP), Max: addressBodyBudget, Kind: problem.TooManyRequests},
		{Of: anonymousCallers{}, Max: anonymousBodyBudget, Kind: problem.Unavailable},
		all,
	}
}

// readBody reads a body to its end, unless it is longer than is kept of its caller's: then what was read is put before the
// rest. The body's claim on the budget is freed once it is read again, and by the
// function that is returned, which is called after the answer.
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
	claim := g.bodies.Claim(bodyShares(call)...)
	text := make([]byte, 0, min(size, uncounted))
	for {
		if len(text) == cap(text) {
			if claim.Bytes() == 0 {
				if err := claim.Take(r.Context(), size-uncounted); err != nil {
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
			claim.Keep(int64(cap(text)) - uncounted)
			replaceBody(r, &keptBody{bytes.NewReader(text), claim}, len(text))
			return claim.Free, nil
		case err != nil:
			claim.Free()
			return free, errHalfBody(err)
		case int64(len(text)) > longest:
			r.Header.Del("Expect") // it was told to go on
			r.Body = rest{io.MultiReader(&keptBody{bytes.NewReader(text), claim}, r.Body), r.Body}
			return claim.Free, nil
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

// keptBody is a body that was read. It frees its claim once it is read again.
type keptBody struct {
	text  *bytes.Reader
	claim *limits.Claim
}

func (b *keptBody) Read(p []byte) (int, error) {
	n, err := b.text.Read(p)
	if b.text.Len() == 0 {
		b.text.Reset(nil)
		b.claim.Free()
	}
	return n, err
}

func (b *keptBody) Close() error { return nil }

type rest struct {
	io.Reader
	io.Closer
}
