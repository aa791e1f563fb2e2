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

// Receive puts into the context what is known of a request: the process that it came from and, from the gateway alone,
// who is calling. It stands behind an Identity's Listener.
func Receive(next http.Handler, log *slog.Logger) http.Handler {
	next = tracing.Continue(next, problem.RouteHeader)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		call, err := parseCaller(r)
		if err != nil {
			log.Warn(
				"refused a request of another process",
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
			problem.Write(w, r, log, problem.New(problem.Forbidden, "The request is not one that this process may send.").Because(err))
			return
		}
		r.Header.Del(peers.CallHeader)
		w.Header()["Date"] = nil // the gateway says it
		r = r.WithContext(principal.With(r.Context(), call))
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

// lateBodyTimeout is how long a caller may go on sending once the answer begins: were the connection closed on what it sends, it
// might not get to read the answer.
const lateBodyTimeout = 500 * time.Millisecond

// earlyResponse is the answer to a request with a body. net/http reads what is left of the body before it sends the answer; it
// does not have for ever.
type earlyResponse struct {
	http.ResponseWriter
	body  *trackedBody
	begun bool
}

// Unwrap is for http.ResponseController.
func (e *earlyResponse) Unwrap() http.ResponseWriter { return e.ResponseWriter }

func (e *earlyResponse) begin() {
	if !e.begun && !e.body.ended {
		_ = http.NewResponseController(e.ResponseWriter).
			SetReadDeadline(time.Now().Add(lateBodyTimeout))
		// net/http takes it back after the answer
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

// trackedBody is a body that knows whether it was read to its end.
type trackedBody struct {
	io.ReadCloser
	ended bool
}

func (u *trackedBody) Read(p []byte) (int, error) {
	n, err := u.ReadCloser.Read(p)
	u.ended = u.ended || err == io.EOF
	return n, err
}

// parseCaller is the call of a request. With an error, it is as much as is known of it.
func parseCaller(r *http.Request) (*principal.Call, error) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return &principal.Call{}, errors.New("it came over a connection without a certificate")
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
		return peer, errors.New("it says who is calling, which the gateway alone may")
	case len(headers) != 1:
		return peer, fmt.Errorf("it says %d times who is calling", len(headers))
	}
	call, err := peers.ParseCall(headers[0])
	if err != nil {
		return peer, err
	}
	call.Agent = r.UserAgent()
	return call, nil
}
