// Package tracing follows requests through the gateway, the services, Postgres and Redis in OpenTelemetry traces. Without an
// endpoint it is off, and costs next to nothing.
//
// A span has the method, the route, the request's id and the statement. It has no path, query or argument, because these may
// contain secrets. The changes, messages and jobs that a request leaves behind continue its trace. Other background work is not
// traced.
package tracing

import (
	"context"
	"net/http"
	"strings"

	"github.com/redis/go-redis/extra/redisotel/v9"
	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// provider creates the spans; nil: tracing is off. It is set before anything is served.
var provider trace.TracerProvider

// Use turns tracing on. The caller shuts the provider down.
func Use(p trace.TracerProvider) { provider = requestProvider{p} }

// requestProvider starts traces only for requests, and for work on what several of them left behind.
type requestProvider struct{ trace.TracerProvider }

func (p requestProvider) Tracer(name string, options ...trace.TracerOption) trace.Tracer {
	return requestTracer{p.TracerProvider.Tracer(name, options...)}
}

type requestTracer struct{ trace.Tracer }

func (t requestTracer) Start(ctx context.Context, name string, options ...trace.SpanStartOption) (context.Context, trace.Span) {
	config := trace.NewSpanStartConfig(options...)
	isRoot := config.SpanKind() == trace.SpanKindServer || config.SpanKind() == trace.SpanKindConsumer
	if isRoot || trace.SpanContextFromContext(ctx).IsValid() {
		return t.Tracer.Start(ctx, name, options...)
	}
	return ctx, trace.SpanFromContext(ctx)
}

// headers reads and writes the headers that carry a trace from one process to another.
var headers = propagation.TraceContext{}

const (
	instrumentation = "github.com/ironplane/ironplane/pkg/runtime/tracing"
	requestIDKey    = attribute.Key("ironplane.request_id")
)

// Receive starts a trace and its first span for a request from outside. Finish ends the span.
func Receive(r *http.Request) *http.Request {
	if provider == nil {
		return r
	}
	ctx, _ := provider.Tracer(instrumentation).Start(r.Context(), r.Method, trace.WithSpanKind(trace.SpanKindServer), trace.WithNewRoot())
	return r.WithContext(ctx)
}

// Continue traces requests from other processes that belong to a trace. The handler names the route in the response header
// routeHeader.
func Continue(next http.Handler, routeHeader string) http.Handler {
	if provider == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := headers.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
		if !trace.SpanContextFromContext(ctx).IsValid() {
			next.ServeHTTP(w, r)
			return
		}
		ctx, _ = provider.Tracer(instrumentation).Start(ctx, r.Method, trace.WithSpanKind(trace.SpanKindServer))
		answered := &statusRecorder{ResponseWriter: w}
		defer func() { Finish(ctx, r.Method, w.Header().Get(routeHeader), "", answered.status) }()
		next.ServeHTTP(answered, r.WithContext(ctx))
	})
}

// statusRecorder notes the status of a response.
type statusRecorder struct {
	http.ResponseWriter
	status int
}

// Unwrap supports http.ResponseController.
func (a *statusRecorder) Unwrap() http.ResponseWriter { return a.ResponseWriter }

func (a *statusRecorder) WriteHeader(status int) {
	if a.status == 0 && status >= http.StatusOK {
		a.status = status
	}
	a.ResponseWriter.WriteHeader(status)
}

func (a *statusRecorder) Write(p []byte) (int, error) {
	if a.status == 0 {
		a.status = http.StatusOK
	}
	return a.ResponseWriter.Write(p)
}

// Finish ends the span of a request. The status is 0 if the caller got no response.
func Finish(ctx context.Context, method, route, requestID string, status int) {
	if provider == nil {
		return
	}
	span := trace.SpanFromContext(ctx)
	defer span.End()
	if !span.IsRecording() {
		return
	}
	span.SetName(strings.TrimSpace(method + " " + route))
	span.SetAttributes(semconv.HTTPRequestMethodKey.String(method), semconv.HTTPRoute(route), semconv.HTTPResponseStatusCode(status))
	if requestID != "" {
		span.SetAttributes(requestIDKey.String(requestID))
	}
	if status == 0 || status >= http.StatusInternalServerError {
		span.SetStatus(codes.Error, http.StatusText(status))
	}
}

// Ask starts the span of a request to a service in another process. The returned function ends it.
func Ask(r *http.Request, service string) (*http.Request, func()) {
	if provider == nil || !trace.SpanContextFromContext(r.Context()).IsValid() {
		return r, func() {}
	}
	ctx, span := provider.Tracer(instrumentation).
		Start(r.Context(), r.Method+" "+service, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(semconv.ServicePeerName(service)))
	return r.WithContext(ctx), func() { span.End() }
}

// Step starts the span of a slow step within a process. The returned function ends it.
func Step(ctx context.Context, name string) func() {
	if provider == nil {
		return func() {}
	}
	_, span := provider.Tracer(instrumentation).Start(ctx, name)
	return func() { span.End() }
}

// Inject calls write with the headers by which another process continues the trace.
func Inject(ctx context.Context, write func(name, value string)) {
	if provider != nil {
		headers.Inject(ctx, writer(write))
	}
}

type writer func(name, value string)

func (w writer) Get(string) string      { return "" }
func (w writer) Set(name, value string) { w(name, value) }
func (w writer) Keys() []string         { return nil }

// Provider returns the provider for libraries that create spans; nil: tracing is off.
func Provider() trace.TracerProvider { return provider }

// Redis traces a client's commands.
func Redis(client *redis.Client) error {
	if provider == nil {
		return nil
	}
	return redisotel.InstrumentTracing(
		client,
		redisotel.WithTracerProvider(provider),
		redisotel.WithDBStatement(false),
		redisotel.WithCallerEnabled(false),
		redisotel.WithDialFilter(true),
	)
}
