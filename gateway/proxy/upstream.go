// Package proxy forwards requests to the instances of services in other processes, over mTLS.
package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/problem"

	"github.com/ironplane/ironplane/pkg/runtime/mtls"
	"github.com/ironplane/ironplane/pkg/runtime/tracing"
)

const (
	// progressTimeout is how long the caller and the service may each take to their next byte, of the request and of the response.
	// It also bounds the time from the end of the request to the first byte of the response.
	progressTimeout = 30 * time.Second
	// maxBody is the largest body that is forwarded, in bytes: the largest upload plus what multipart adds.
	maxBody = 520 << 20
)

// Upstream is a service in other processes. It serves a request by forwarding it, with the call in the request's context, to one
// instance. Request and response are streamed.
//
// A request is sent once: another instance is tried only if no connection can be made. A service that does not respond costs a
// 503. A service that breaks off its response costs the caller's connection, by a panic with http.ErrAbortHandler.
type Upstream struct {
	service         string
	pool            *pool
	log             *slog.Logger
	progressTimeout time.Duration
	maxBody         int64
}

// New returns an upstream for the service of this name, with instances at the addresses.
func New(id *mtls.Identity, service string, addresses []string, log *slog.Logger) *Upstream {
	u := &Upstream{service: service, log: log, progressTimeout: progressTimeout, maxBody: maxBody,
		pool: newPool(service, func() *tls.Config { return id.ClientConfig(service) }, log)}
	u.SetAddresses(addresses)
	return u
}

// SetAddresses replaces the addresses of the instances. Requests in progress end where they are.
func (u *Upstream) SetAddresses(addresses []string) { u.pool.setAddresses(addresses) }

// OnUnreachable calls report when no connection to an instance can be made, or when no instance is known. Call it before the
// first request.
func (u *Upstream) OnUnreachable(report func()) { u.pool.reportUnreachable = report }

// ServeHTTP forwards one request.
func (u *Upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength > u.maxBody {
		problem.Write(w, r, u.log, u.errTooLarge())
		return
	}
	r, endSpan := tracing.Ask(r, u.service)
	defer endSpan()
	c, err := u.pool.connect(r.Context())
	if err != nil {
		if r.Context().Err() != nil {
			panic(http.ErrAbortHandler)
		}
		problem.Write(w, r, u.log, problem.New(problem.Unavailable, "The service is not available. Try again.").
			Because(fmt.Errorf("reach %s: %w", u.service, err)))
		return
	}
	x := &exchange{connection: c, Upstream: u, w: w, r: r, caller: http.NewResponseController(w)}
	stopAbort := context.AfterFunc(r.Context(), c.abort)
	defer func() {
		bodySent := x.waitForBody()
		u.pool.release(c, stopAbort() && bodySent && x.keepConnection)
	}()
	response, err := x.roundTrip()
	if err != nil {
		x.writeError(err)
		return
	}
	c.report(nil)
	if err := x.writeResponse(response); err != nil {
		if r.Context().Err() == nil {
			u.log.Error(
				"response broken off",
				"outage",
				"responses of "+u.service,
				"method",
				r.Method,
				"route",
				response.Header.Get(problem.RouteHeader),
				"request_id",
				principal.FromContext(r.Context()).RequestID,
				"error",
				err,
			)
		}
		panic(http.ErrAbortHandler)
	}
}

func (u *Upstream) errTooLarge() error {
	return problem.New(problem.TooLarge, "The body is larger than %d bytes.", u.maxBody)
}

// writeError responds to a request that the service did not respond to. It counts as the instance's failure unless the caller is
// at fault.
func (x *exchange) writeError(err error) {
	result := errNotInstanceFault
	defer func() { x.report(result) }()
	// A caller that stops within its body ends the context or lets the deadline pass, but is still there.
	if x.r.Context().Err() != nil || errors.Is(err, os.ErrDeadlineExceeded) && x.sendDone != nil && !x.isRead.Load() {
		x.waitForBody()
	}
	select {
	case callerErr := <-x.callerErr:
		err = callerErr
	default:
		if x.r.Context().Err() != nil {
			panic(http.ErrAbortHandler)
		}
		if problem.Is(err, problem.BadRequest) { // the service's HTTP server refused the request, and is well
			break
		}
		result = err
		err = problem.New(problem.Unavailable, "The service did not respond. The request may or may not have been completed.").
			Because(fmt.Errorf("ask %s at %s: %w", x.service, x.instance.address, err))
	}
	x.closeUnlessRead()
	problem.Write(x.w, x.r, x.log, err)
	_ = x.flushUnlessRead()
}
