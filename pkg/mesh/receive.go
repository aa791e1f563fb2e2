package mesh

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/ironplane/ironplane/pkg/fault"
	"github.com/ironplane/ironplane/pkg/principal"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/tracing"
)

// Receive puts into the context what is known of a request: the process that it came from and, from the gateway alone,
// who is calling. It stands behind an Identity's Listener.
func Receive(next http.Handler, log *slog.Logger) http.Handler {
	next = tracing.Continue(next, rest.RouteHeader)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		call, err := received(r)
		if err != nil {
			log.Warn("refused a request of another process", "peer", call.Peer, "from", r.RemoteAddr, "method", r.Method, "error", err)
			rest.WriteError(w, r, log, fault.New(fault.Forbidden, "The request is not one that this process may send.").Because(err))
			return
		}
		r.Header.Del(callHeader)
		w.Header()["Date"] = nil // the gateway says it
		next.ServeHTTP(w, r.WithContext(principal.With(r.Context(), call)))
	})
}

// received is the call of a request. With an error, it is as much as is known of it.
func received(r *http.Request) (*principal.Call, error) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return &principal.Call{}, errors.New("it came over a connection without a certificate")
	}
	is, err := nameOf(r.TLS.PeerCertificates[0])
	peer := &principal.Call{Peer: is.process}
	if err != nil {
		return peer, err
	}
	told := r.Header[callHeader]
	switch {
	case is.process != principal.Gateway && len(told) == 0:
		return peer, nil
	case is.process != principal.Gateway:
		return peer, errors.New("it says who is calling, which the gateway alone may")
	case len(told) != 1:
		return peer, fmt.Errorf("it says %d times who is calling", len(told))
	}
	call, err := parseCall(told[0])
	if err != nil {
		return peer, err
	}
	return call, nil
}
