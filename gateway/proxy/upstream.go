// Package proxy hands requests to the instances of services in other processes, over mTLS, and their answers back.
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
	// progressTimeout is how long a side may take to its next byte: the caller and the service, of the request and of the
	// answer. So it is also how long the first byte of an answer may take from the last of the request on.
	progressTimeout = 30 * time.Second
	// maxBody is the longest body that is passed on, in bytes: the longest upload with what multipart puts around it.
	maxBody = 520 << 20
)

// Upstream is a service in other processes. It serves a request by handing it, with the call that is in the context,
// to one of them and the answer back, both as they come.
//
// A request is sent once: another instance is tried only where one cannot be connected to. A service that does not
// answer costs an Unavailable fault; one that breaks off its answer costs the caller's connection, by a panic with
// http.ErrAbortHandler.
type Upstream struct {
	service         string
	pool            *pool
	log             *slog.Logger
	progressTimeout time.Duration
	maxBody         int64
}

// New reaches the service of this name at the addresses of its instances.
func New(id *mtls.Identity, service string, addresses []string, log *slog.Logger) *Upstream {
	u := &Upstream{service: service, log: log, progressTimeout: progressTimeout, maxBody: maxBody,
		pool: newPool(service, func() *tls.Config { return id.ClientConfig(service) }, log)}
	u.SetAddresses(addresses)
	return u
}

// SetAddresses says where the instances are from now on. What is under way ends where it is.
func (u *Upstream) SetAddresses(addresses []string) { u.pool.setAddresses(addresses) }

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
		problem.Write(w, r, u.log, problem.New(problem.Unavailable, "The service is not available right now.").
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
				"answer broken off",
				"outage",
				"answers of "+u.service,
				"method",
				r.Method,
				"route",
				response.Header.Get(problem.RouteHeader),
				"request_id",
				principal.From(r.Context()).RequestID,
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

// writeError answers a caller whose request got no answer. That is the instance's fault where it is nobody else's.
func (x *exchange) writeError(err error) {
	result := errNotInstanceFault
	defer func() { x.report(result) }()
	// A caller who falls silent within the body ends the context or lets the deadline pass, but is still there.
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
		if problem.Is(err, problem.BadRequest) { // the service's HTTP server says so, and is well
			break
		}
		result = err
		err = problem.New(problem.Unavailable, "The service did not answer. What was asked for may have been done, or not.").
			Because(fmt.Errorf("ask %s at %s: %w", x.service, x.instance.address, err))
	}
	x.closeUnlessRead()
	problem.Write(x.w, x.r, x.log, err)
	_ = x.flushUnlessRead()
}
