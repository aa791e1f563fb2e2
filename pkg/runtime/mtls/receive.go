package mtls

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/problem"

	"github.com/ironplane/ironplane/pkg/runtime/peers"
	"github.com/ironplane/ironplane/pkg/runtime/tracing"
)

// Receive authenticates requests from other processes. It puts into the context which process sent the request and, if that
// is the gateway, who is calling. Use it behind an Identity's Listener.
func Receive(next http.Handler, log *slog.Logger) http.Handler {
	next = tracing.Continue(next, problem.RouteHeader)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		call, err := parseCaller(r)
		if err != nil {
			log.Warn(
				"refused a request from another process",
				"outage",
				"requests of "+call.Peer,
				"request_id",
				call.RequestID,
				"peer",
				call.Peer,
				"from",
				r.RemoteAddr,
				"method",
				r.Method,
				"error",
				err,
			)
			problem.Write(w, r, log, problem.New(problem.Forbidden, "This process may not send this request.").Because(err))
			return
		}
		r.Header.Del(peers.CallHeader)
		w.Header()["Date"] = nil // the gateway sets it
		r = r.WithContext(principal.NewContext(r.Context(), call))
		if r.ContentLength == 0 {
			next.ServeHTTP(w, r)
			return
		}
		e := &earlyResponse{ResponseWriter: w, body: &trackedBody{ReadCloser: r.Body}}
		r.Body = e.body
		next.ServeHTTP(e, r)
		e.begin()
	})
}

// lateBodyTimeout is how long a caller may go on sending once the response begins. If the connection were closed at once,
// the caller might not read the response.
const lateBodyTimeout = 500 * time.Millisecond

// earlyResponse is the response to a request with a body. net/http reads the rest of the body before it sends the response;
// earlyResponse sets a deadline for that.
type earlyResponse struct {
	http.ResponseWriter
	body  *trackedBody
	begun bool
}

// Unwrap supports http.ResponseController.
func (e *earlyResponse) Unwrap() http.ResponseWriter { return e.ResponseWriter }

func (e *earlyResponse) begin() {
	if !e.begun && !e.body.ended {
		_ = http.NewResponseController(e.ResponseWriter).
			SetReadDeadline(time.Now().Add(lateBodyTimeout))
		// net/http resets it after the response
	}
	e.begun = true
}

func (e *earlyResponse) WriteHeader(status int) {
	if status >= http.StatusOK {
		e.begin()
	}
	e.ResponseWriter.WriteHeader(status)
}

func (e *earlyResponse) Write(p []byte) (int, error) {
	e.begin()
	return e.ResponseWriter.Write(p)
}

// trackedBody is a body that notes whether it was read to its end.
type trackedBody struct {
	io.ReadCloser
	ended bool
}

func (u *trackedBody) Read(p []byte) (int, error) {
	n, err := u.ReadCloser.Read(p)
	u.ended = u.ended || err == io.EOF
	return n, err
}

// parseCaller returns the caller of a request. With an error, it returns what is known.
func parseCaller(r *http.Request) (*principal.Call, error) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return &principal.Call{}, errors.New("the connection has no client certificate")
	}
	is, err := parseName(r.TLS.PeerCertificates[0])
	peer := &principal.Call{Peer: is.process, RequestID: r.Header.Get(peers.RequestHeader)}
	if err != nil {
		return peer, err
	}
	headers := r.Header[peers.CallHeader]
	switch {
	case is.process != principal.Gateway && len(headers) == 0:
		return peer, nil
	case is.process != principal.Gateway:
		return peer, errors.New("only the gateway may send the header of the caller")
	case len(headers) != 1:
		return peer, fmt.Errorf("got %d headers of the caller, want one", len(headers))
	}
	call, err := peers.ParseCall(headers[0])
	if err != nil {
		return peer, err
	}
	call.Agent = r.UserAgent()
	return call, nil
}
