package tracing

import (
	"context"
	"net/http"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// traceparent is the name of the header that names a span.
const traceparent = "traceparent"

// Traceparent returns the current span as a header's value, or "" if it is not sampled. A change stores the value with what
// follows from it: its record, messages and jobs.
func Traceparent(ctx context.Context) string {
	if provider == nil || !trace.SpanContextFromContext(ctx).IsSampled() {
		return ""
	}
	carrier := propagation.MapCarrier{}
	headers.Inject(ctx, carrier)
	return carrier[traceparent]
}

// Resume returns a context in which the trace of a stored traceparent goes on. An empty or malformed one changes nothing.
func Resume(ctx context.Context, stored string) context.Context {
	if provider == nil || stored == "" {
		return ctx
	}
	return headers.Extract(ctx, propagation.MapCarrier{traceparent: stored})
}

// Process starts the span of work on what was stored with traceparents, such as a change, a message or a job. The work
// continues the trace if there is a single one. Otherwise it begins a trace of its own with links to them, as
// OpenTelemetry's conventions for messaging ask. If nothing was traced, neither is the work. The returned function ends the
// span.
func Process(ctx context.Context, source string, stored ...string) (context.Context, func(failed error)) {
	parents := distinctTraces(stored)
	if len(parents) == 0 {
		return ctx, func(error) {}
	}
	options := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(
		semconv.MessagingSystemKey.String("ironplane"),
		semconv.MessagingOperationTypeProcess,
		semconv.MessagingOperationName("process"),
		semconv.MessagingDestinationName(source),
		semconv.MessagingBatchMessageCount(len(stored)),
	)}
	if len(parents) == 1 {
		ctx = trace.ContextWithRemoteSpanContext(ctx, parents[0])
	} else {
		options = append(options, trace.WithNewRoot())
		for _, parent := range parents {
			options = append(options, trace.WithLinks(trace.Link{SpanContext: parent}))
		}
	}
	ctx, span := provider.Tracer(instrumentation).Start(ctx, "process "+source, options...)
	return ctx, func(failed error) {
		if failed != nil {
			span.SetStatus(codes.Error, "") // the error may quote what must not be in a trace
		}
		span.End()
	}
}

// distinctTraces returns the first stored span of each trace.
func distinctTraces(stored []string) (parents []trace.SpanContext) {
	for _, one := range stored {
		parent := trace.SpanContextFromContext(Resume(context.Background(), one))
		isKnown := slices.ContainsFunc(parents, func(earlier trace.SpanContext) bool { return earlier.TraceID() == parent.TraceID() })
		if parent.IsValid() && !isKnown {
			parents = append(parents, parent)
		}
	}
	return parents
}

// Call starts the span of a request to a program of somebody else, and names it in the request's headers. The returned
// function ends it. The status is 0 if there was no response.
func Call(r *http.Request, receiver string) func(status int) {
	if provider == nil || !trace.SpanContextFromContext(r.Context()).IsValid() {
		return func(int) {}
	}
	ctx, span := provider.Tracer(instrumentation).Start(
		r.Context(),
		r.Method+" "+receiver,
		trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(semconv.HTTPRequestMethodKey.String(r.Method)),
	)
	headers.Inject(ctx, propagation.HeaderCarrier(r.Header))
	return func(status int) {
		if status > 0 {
			span.SetAttributes(semconv.HTTPResponseStatusCode(status))
		}
		if status == 0 || status >= http.StatusBadRequest {
			span.SetStatus(codes.Error, "")
		}
		span.End()
	}
}

// Observe adds a value to a histogram, with the current trace as its exemplar if that is sampled.
func Observe(ctx context.Context, histogram prometheus.Observer, value float64) {
	span := trace.SpanContextFromContext(ctx)
	with, ok := histogram.(prometheus.ExemplarObserver)
	if !ok || !span.IsSampled() {
		histogram.Observe(value)
		return
	}
	with.ObserveWithExemplar(value, prometheus.Labels{"trace_id": span.TraceID().String()})
}
