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
	// maxBufferedBody is the longest body, in bytes, that the gateway reads to its end before anybody else sees the request,
	// and maxAnonymousBufferedBody the same without a key. What is longer is an upload, or too long.
	maxBufferedBody, maxAnonymousBufferedBody = 1 << 20, 64 << 10
	// uncountedBodyBytes is how much of each of them counts against no budget.
	uncountedBodyBytes = 4 << 10
)

// What bodies may take of the gateway's memory, in bytes: in all, by owner, by key, by all callers without a key together, and
// by each of their addresses.
const (
	bodyBudget          = 64 << 20
	ownerBodyBudget     = bodyBudget / 8
	keyBodyBudget       = ownerBodyBudget / 2
	anonymousBodyBudget = bodyBudget / 8
	addressBodyBudget   = 8 * maxAnonymousBufferedBody
)

// allCallers and anonymousCallers have shares of the budget for bodies, too.
type (
	allCallers       struct{}
	anonymousCallers struct{}
	keyID            int64
)

func bodyShares(call *principal.Call) []limits.Share {
	all := limits.Share{Key: allCallers{}, Max: bodyBudget, Kind: problem.Unavailable}
	if p := call.Principal; p != nil {
		return []limits.Share{
			{Key: keyID(p.KeyID), Max: keyBodyBudget, Kind: problem.TooManyRequests},
			{Key: p.Owner, Max: ownerBodyBudget, Kind: problem.TooManyRequests},
			all,
		}
	}
	return []limits.Share{
		{Key: callerNetwork(call.IP), Max: addressBodyBudget, Kind: problem.TooManyRequests},
		{Key: anonymousCallers{}, Max: anonymousBodyBudget, Kind: problem.Unavailable},
		all,
	}
}

// bufferBody reads a body to its end, unless it is longer than is kept of its caller's: then what was read is put before the
// rest. The body's claim on the budget is freed once it is read again, and by the
// function that is returned, which is called after the answer.
func (g *Gateway) bufferBody(r *http.Request, call *principal.Call) (release func(), err error) {
	release = func() {}
	maxSize := int64(maxBufferedBody)
	if call.Principal == nil {
		maxSize = maxAnonymousBufferedBody
	}
	switch {
	case r.Body == nil, r.Body == http.NoBody:
		return release, nil
	case r.Method == http.MethodGet, r.Method == http.MethodHead:
		return release, discardBody(r)
	case r.ContentLength > maxSize:
		return release, nil
	}
	size := maxSize + 1 // one more than there may be, to see the end
	if r.ContentLength >= 0 {
		size = r.ContentLength + 1
	}
	claim := g.bodyBudget.Claim(bodyShares(call)...)
	content := make([]byte, 0, min(size, uncountedBodyBytes))
	for {
		if len(content) == cap(content) {
			if claim.Bytes() == 0 {
				if err := claim.Acquire(r.Context(), size-uncountedBodyBytes); err != nil {
					return release, err
				}
			}
			grown := size
			if r.ContentLength < 0 {
				grown = min(2*int64(cap(content)), size)
			}
			content = append(make([]byte, 0, grown), content...)
		}
		n, err := r.Body.Read(content[len(content):cap(content)])
		content = content[:len(content)+n]
		switch {
		case errors.Is(err, io.EOF):
			claim.ShrinkTo(int64(cap(content)) - uncountedBodyBytes)
			replaceBody(r, &bufferedBody{bytes.NewReader(content), claim}, len(content))
			return claim.Release, nil
		case err != nil:
			claim.Release()
			return release, errIncompleteBody(err)
		case int64(len(content)) > maxSize:
			r.Header.Del("Expect") // it was told to go on
			r.Body = readCloser{io.MultiReader(&bufferedBody{bytes.NewReader(content), claim}, r.Body), r.Body}
			return claim.Release, nil
		}
	}
}

// discardBody reads the body of a request that has no use for one, so that nobody waits for it later.
func discardBody(r *http.Request) error {
	n, err := io.Copy(io.Discard, io.LimitReader(r.Body, maxBufferedBody+1))
	switch {
	case err != nil:
		return errIncompleteBody(err)
	case n > maxBufferedBody:
		return problem.New(problem.TooLarge, "The body is larger than %d bytes.", maxBufferedBody)
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

func errIncompleteBody(cause error) error {
	if problem.Is(cause, problem.BadRequest) {
		return cause
	}
	return problem.New(problem.BadRequest, "The body could not be read to its end.").Because(cause)
}

// bufferedBody is a body that was read. It frees its claim once it is read again.
type bufferedBody struct {
	content *bytes.Reader
	claim   *limits.Claim
}

func (b *bufferedBody) Read(p []byte) (int, error) {
	n, err := b.content.Read(p)
	if b.content.Len() == 0 {
		b.content.Reset(nil)
		b.claim.Release()
	}
	return n, err
}

func (b *bufferedBody) Close() error { return nil }

type readCloser struct {
	io.Reader
	io.Closer
}
