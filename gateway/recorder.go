package gateway

import (
	"context"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/catalog"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest/openapi"
	"github.com/ironplane/ironplane/pkg/runtime/tracing"
)

// recorder is the http.ResponseWriter of a request. It notes what the access log and the metrics say of it.
//
// The route is what the service says that it matched, in a header field that goes no further: a path would put ids
// into the metrics' labels, and secrets (a token of a password reset) into the log. Until the service says more, it is
// the path's first element.
type recorder struct {
	http.ResponseWriter
	connection             *http.ResponseController
	progressTimeout        time.Duration
	method, service, route string
	startedAt              time.Time
	status                 int // 0: the caller got none
	bytesWritten           int64
	isComplete             bool // not aborted
	isStopped              atomic.Bool
}

func newRecorder(w http.ResponseWriter, r *http.Request, progress time.Duration) *recorder {
	first := openapi.FirstElement(r.URL.Path)
	e := &recorder{
		ResponseWriter:  w,
		connection:      http.NewResponseController(w),
		progressTimeout: progress,
		method:          r.Method,
		service:         catalog.Owner(r.URL.Path, first),
		startedAt:       time.Now(),
	}
	switch {
	case first == "-":
		e.service, e.route = principal.Gateway, ownRoute(r.URL.Path)
	case e.service != "":
		e.route = r.URL.Path[:len("/")+len(first)]
	}
	if e.route != "" {
		w.Header()[problem.RouteHeader] = []string{e.route}
	}
	if !methods[r.Method] {
		e.method = "other"
	}
	return e
}

// Unwrap is for http.ResponseController.
func (e *recorder) Unwrap() http.ResponseWriter { return e.ResponseWriter }

// stop lets nothing more through, ends the request's context, and ends what waits for the caller: in this order, or others
// would be first to say why.
func (e *recorder) stop(cancel context.CancelCauseFunc, cause error) {
	e.isStopped.Store(true)
	cancel(cause)
	_ = e.connection.SetReadDeadline(time.Unix(1, 0))  // where there is a connection
	_ = e.connection.SetWriteDeadline(time.Unix(1, 0)) // where there is a connection
}

// resume is for what the gateway has to say itself once it was stopped: what was to be said is forgotten.
func (e *recorder) resume() {
	e.isStopped.Store(false)
	for name := range e.Header() {
		if !gatewayHeaders[name] {
			delete(e.Header(), name)
		}
	}
	e.Header()["Connection"] = []string{"close"}
}

// gatewayHeaders are the headers of an answer that the gateway says before the service says anything.
var gatewayHeaders = map[string]bool{
	"X-Content-Type-Options":        true,
	"Cache-Control":                 true,
	"X-Request-Id":                  true,
	"Api-Version":                   true,
	"Ratelimit":                     true,
	"Ratelimit-Policy":              true,
	"Vary":                          true,
	"Access-Control-Allow-Origin":   true,
	"Access-Control-Expose-Headers": true,
	problem.RouteHeader:             true,
}

func (e *recorder) WriteHeader(status int) {
	if e.isStopped.Load() {
		return
	}
	if status < http.StatusOK {
		return // it announces an answer, with headers that are ours to take away
	}
	if e.status == 0 {
		e.status = status
		if route := e.Header()[problem.RouteHeader]; len(route) > 0 {
			e.route = route[0]
			delete(e.Header(), problem.RouteHeader)
		}
		e.extendDeadline()
	}
	e.ResponseWriter.WriteHeader(status)
}

// extendDeadline gives the caller time to take what is written next. net/http takes it back after the answer.
func (e *recorder) extendDeadline() { _ = e.SetWriteDeadline(time.Now().Add(e.progressTimeout)) } // where there is a connection

// SetWriteDeadline is for http.ResponseController.
func (e *recorder) SetWriteDeadline(at time.Time) error {
	err := e.connection.SetWriteDeadline(at)
	if e.isStopped.Load() {
		_ = e.connection.SetWriteDeadline(time.Unix(1, 0))
		return errRevoked
	}
	return err
}

// FlushError is for http.ResponseController.
func (e *recorder) FlushError() error {
	if e.isStopped.Load() {
		return errRevoked
	}
	if e.status == 0 {
		e.WriteHeader(http.StatusOK)
	}
	return e.connection.Flush()
}

func (e *recorder) Write(p []byte) (int, error) {
	if e.isStopped.Load() {
		return 0, errRevoked
	}
	if e.status == 0 {
		e.WriteHeader(http.StatusOK)
	} else if e.bytesWritten > 0 {
		e.extendDeadline()
	}
	n, err := e.ResponseWriter.Write(p)
	e.bytesWritten += int64(n)
	return n, err
}

// finish writes the line of the access log.
func (g *Gateway) finish(ctx context.Context, e *recorder, call *principal.Call) {
	elapsed := time.Since(e.startedAt)
	g.metrics.observe(e, elapsed)
	tracing.Finish(ctx, e.method, e.route, call.RequestID, e.status)
	if !g.log.Enabled(ctx, slog.LevelInfo) {
		return
	}
	attributes := []slog.Attr{
		slog.String("method", e.method), slog.String("upstream", e.service), slog.String("route", e.route),
		slog.Int("status", e.status), slog.Int64("bytes", e.bytesWritten), slog.Duration("took", elapsed),
		slog.String("request_id", call.RequestID), slog.String("ip", call.IP.String()),
	}
	if p := call.Principal; p != nil {
		attributes = append(attributes, slog.Int64("key_id", p.KeyID), slog.String("owner", p.Owner.URL()))
	}
	if !e.isComplete {
		attributes = append(attributes, slog.Bool("aborted", true))
	}
	g.log.LogAttrs(ctx, slog.LevelInfo, "request", attributes...)
}
