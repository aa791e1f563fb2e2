package gateway

import (
	"bytes"
	"context"
	"crypto/rand"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/problem"
)

// Refuse returns the response to a request that net/http refuses by itself, before its key, path and request id are read.
func (g *Gateway) Refuse(status int, reason string) *http.Response {
	w := &bufferedResponse{header: http.Header{}}
	id := rand.Text()
	setCommonHeaders(w.header, id)
	ctx := principal.NewContext(context.Background(), &principal.Call{Peer: principal.Gateway, RequestID: id})
	problem.Write(
		w,
		(&http.Request{URL: &url.URL{}}).WithContext(ctx),
		g.log,
		problem.New(problem.Kind(status), "%s", refusalDetail(status, reason)),
	)
	return &http.Response{
		StatusCode: w.status, ProtoMajor: 1, ProtoMinor: 1, Header: w.header, Close: true,
		ContentLength: int64(w.body.Len()), Body: io.NopCloser(&w.body),
	}
}

// refusalDetail returns the text for a request that net/http refuses with this status and reason.
func refusalDetail(status int, reason string) string {
	switch status {
	case http.StatusRequestHeaderFieldsTooLarge:
		return "The request line and headers are too large."
	case http.StatusExpectationFailed:
		return "The Expect header can only be 100-continue."
	case http.StatusNotImplemented:
		return "The Transfer-Encoding header can only be chunked."
	}
	if _, detail, ok := strings.Cut(reason, ": "); ok {
		return "The request is not valid HTTP/1.1: " + detail + "."
	}
	return "The request is not valid HTTP/1.1."
}

// bufferedResponse is an http.ResponseWriter that keeps the response in memory.
type bufferedResponse struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (k *bufferedResponse) Header() http.Header         { return k.header }
func (k *bufferedResponse) WriteHeader(status int)      { k.status = status }
func (k *bufferedResponse) Write(p []byte) (int, error) { return k.body.Write(p) }
