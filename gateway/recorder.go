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

// recorder is the http.ResponseWriter of a request. It notes what the access log and the metrics need.
//
// The route is the one that the service matched, which it names in a header that is removed from the response. The path itself
// would put ids into the metrics' labels, and secrets (the token of a password reset) into the log. Until the service names the
// route, it is the path's first element.
type recorder struct {
	http.ResponseWriter
	connection             *http.ResponseController
	progressTimeout        time.Duration
	method, service, route string
	startedAt              time.Time
	status                 int // 0: no response yet
	bytesWritten           int64
	isComplete             bool // false if the response was aborted
	isStream               bool
	onStream               func()       // called when the response turns out to be a stream; nil without a key
	confirm                func() error // decides about the key of a stream before each write
	headAfter              time.Duration
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
	case r.URL.Path == rootPath:
		e.service, e.route = principal.Gateway, rootPath
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

// Unwrap serves http.ResponseController.
func (e *recorder) Unwrap() http.ResponseWriter { return e.ResponseWriter }

// stop ends the request: it blocks further writes, cancels the request's context, and ends reads and writes that wait for the
// caller. The order matters: otherwise others would be first to write a response.
func (e *recorder) stop(cancel context.CancelCauseFunc, cause error) {
	e.isStopped.Store(true)
	cancel(cause)
	// The errors of a request without a connection, as in tests, do not matter.
	_ = e.connection.SetReadDeadline(time.Unix(1, 0))
	_ = e.connection.SetWriteDeadline(time.Unix(1, 0))
}

// resume lets the gateway write its own response after stop. It removes the headers that the service set.
func (e *recorder) resume() {
	e.isStopped.Store(false)
	for name := range e.Header() {
		if !gatewayHeaders[name] {
			delete(e.Header(), name)
		}
	}
	e.Header()["Connection"] = []string{"close"}
}

// gatewayHeaders are the response headers that the gateway sets before the service does.
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

// WriteHeader records the status and the route, removes the route's header, and passes the status on. It drops interim responses.
func (e *recorder) WriteHeader(status int) {
	if e.isStopped.Load() {
		return
	}
	if status < http.StatusOK {
		return // an interim response would carry headers that the gateway has to remove
	}
	if e.status == 0 {
		e.status = status
		if route := e.Header()[problem.RouteHeader]; len(route) > 0 {
			e.route = route[0]
			delete(e.Header(), problem.RouteHeader)
		}
		if e.onStream != nil && isEventStream(e.Header().Get("Content-Type")) {
			e.isStream, e.headAfter = true, time.Since(e.startedAt)
			e.onStream()
		}
		e.extendDeadline()
	}
	e.ResponseWriter.WriteHeader(status)
}

// extendDeadline gives the caller time to read what is written next. net/http removes the deadline after the response.
func (e *recorder) extendDeadline() { _ = e.SetWriteDeadline(time.Now().Add(e.progressTimeout)) }

// SetWriteDeadline serves http.ResponseController.
func (e *recorder) SetWriteDeadline(at time.Time) error {
	err := e.connection.SetWriteDeadline(at)
	if e.isStopped.Load() {
		_ = e.connection.SetWriteDeadline(time.Unix(1, 0))
		return errRevoked
	}
	return err
}

// FlushError serves http.ResponseController.
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
	if e.isStream {
		if err := e.confirm(); err != nil {
			return 0, err
		}
	}
	n, err := e.ResponseWriter.Write(p)
	e.bytesWritten += int64(n)
	return n, err
}

// finish writes the metrics and the line of the access log.
func (g *Gateway) finish(ctx context.Context, e *recorder, call *principal.Call) {
	elapsed := time.Since(e.startedAt)
	if e.isStream { // the metric is about how long callers wait
		g.metrics.observe(ctx, e, e.headAfter)
	} else {
		g.metrics.observe(ctx, e, elapsed)
	}
	tracing.Finish(ctx, e.method, e.route, call.RequestID, e.status)
	if !g.log.Enabled(ctx, slog.LevelInfo) {
		return
	}
	attributes := []slog.Attr{
		slog.String("method", e.method), slog.String("upstream", e.service), slog.String("route", e.route),
		slog.Int("status", e.status), slog.Int64("bytes", e.bytesWritten), slog.Duration("duration", elapsed),
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
