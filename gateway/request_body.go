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
	// maxBufferedBody is the size, in bytes, up to which the gateway reads a body completely before it forwards the request.
	// maxAnonymousBufferedBody is the same for callers without a key. A larger body is an upload, or too large.
	maxBufferedBody, maxAnonymousBufferedBody = 1 << 20, 64 << 10
	// uncountedBodyBytes is the part of each body that counts against no budget.
	uncountedBodyBytes = 4 << 10
)

// The memory, in bytes, that buffered bodies may use: in all, of one owner, of one key, of all callers without a key together,
// and of one of their addresses.
const (
	bodyBudget          = 64 << 20
	ownerBodyBudget     = bodyBudget / 8
	keyBodyBudget       = ownerBodyBudget / 2
	anonymousBodyBudget = bodyBudget / 8
	addressBodyBudget   = 8 * maxAnonymousBufferedBody
)

// These types are keys of the budget's shares: of all callers together, of all callers without a key, and of one key.
type (
	allCallers       struct{}
	anonymousCallers struct{}
	keyID            int64
)

// bodyShares returns the shares of the budget that a caller's bodies count against.
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

// bufferBody reads the request's body completely, unless it is larger than the caller's maximum. Of a larger body, the part that
// was read is put back in front of the rest. The claim on the budget is released when the service has read the buffered part, and
// by the returned function, which must be called after the response.
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
	size := maxSize + 1 // one more byte than allowed, to see the end
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
			r.Header.Del("Expect") // the caller was told to go on already
			r.Body = readCloser{io.MultiReader(&bufferedBody{bytes.NewReader(content), claim}, r.Body), r.Body}
			return claim.Release, nil
		}
	}
}

// discardBody reads the body of a method that has no use for one, so that nothing waits for it later.
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

// errIncompleteBody returns the 400 for a body that could not be read, unless cause already is one.
func errIncompleteBody(cause error) error {
	if problem.Is(cause, problem.BadRequest) {
		return cause
	}
	return problem.New(problem.BadRequest, "The body ended early or arrived too slowly. Send it again.").Because(cause)
}

// bufferedBody is a body in memory. It releases its claim once it is read.
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

// readCloser is the body of an upload: its buffered beginning followed by the rest.
type readCloser struct {
	io.Reader
	io.Closer
}
