package tracing

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	model "github.com/prometheus/client_model/go"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

// begin turns tracing on with a sampler, and returns a request's span and what records the ended spans.
func begin(t *testing.T, sampler sdk.Sampler) (*http.Request, *tracetest.SpanRecorder) {
	t.Helper()
	ended := tracetest.NewSpanRecorder()
	Use(sdk.NewTracerProvider(sdk.WithSampler(sdk.ParentBased(sampler)), sdk.WithSpanProcessor(ended)))
	t.Cleanup(func() { provider = nil })
	return newRequest(t), ended
}

func newRequest(t *testing.T) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://example.com", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	return Receive(r)
}

// Work on what one trace left behind is a part of that trace.
func TestProcessContinuesATrace(t *testing.T) {
	request, ended := begin(t, sdk.AlwaysSample())
	stored := Traceparent(request.Context())
	ctx, end := Process(t.Context(), "jobs mail", stored, "", stored)
	end(errors.New("a secret"))
	spans := ended.Ended()
	if len(spans) != 1 || spans[0].Name() != "process jobs mail" || spans[0].SpanKind() != trace.SpanKindConsumer ||
		spans[0].Parent().TraceID() != trace.SpanContextFromContext(request.Context()).TraceID() {
		t.Fatalf("got %v, want one consumer's span in the trace of the request", spans)
	}
	if is := spans[0].Status(); is.Code != codes.Error || is.Description != "" {
		t.Errorf("got the status %v, want an error without its text", is)
	}
	if !strings.Contains(Traceparent(ctx), spans[0].SpanContext().SpanID().String()) {
		t.Errorf("got %s, want the consumer's span as the cause of what it leaves behind", Traceparent(ctx))
	}
}

// Work on what several traces left behind is a trace of its own, with links to them.
func TestProcessLinksTraces(t *testing.T) {
	first, ended := begin(t, sdk.AlwaysSample())
	one, other := Traceparent(first.Context()), Traceparent(newRequest(t).Context())
	_, end := Process(t.Context(), "changes of pxe", one, other, one, "malformed")
	end(nil)
	spans := ended.Ended()
	if len(spans) != 1 || spans[0].Parent().IsValid() || len(spans[0].Links()) != 2 {
		t.Fatalf("got %v, want one span without a parent and with two links", spans)
	}
	for i, stored := range []string{one, other} {
		linked := spans[0].Links()[i].SpanContext
		if !strings.Contains(stored, linked.TraceID().String()) {
			t.Errorf("got the link %v, want one to %s", linked, stored)
		}
	}
}

// Without a sampled trace nothing is stored, nothing is processed in a span, and no request names one.
func TestUnsampledTraceEnds(t *testing.T) {
	request, ended := begin(t, sdk.NeverSample())
	if stored := Traceparent(request.Context()); stored != "" {
		t.Errorf("got %s, want no traceparent", stored)
	}
	ctx, end := Process(t.Context(), "jobs mail", "")
	end(nil)
	outgoing := newRequest(t).WithContext(Resume(ctx, ""))
	Call(outgoing, "webhook")(http.StatusOK)
	if header := outgoing.Header.Get(traceparent); header != "" || len(ended.Ended()) != 0 {
		t.Errorf("got the header %q and %d spans, want none", header, len(ended.Ended()))
	}
	if found := exemplars(t, request); len(found) != 0 {
		t.Errorf("got the exemplars %v, want none", found)
	}
}

// A request to a program of somebody else names its own span.
func TestCall(t *testing.T) {
	request, ended := begin(t, sdk.AlwaysSample())
	stored := Traceparent(request.Context())
	outgoing := newRequest(t).WithContext(Resume(t.Context(), stored))
	Call(outgoing, "webhook")(http.StatusGone)
	spans := ended.Ended()
	if len(spans) != 1 || spans[0].Name() != "POST webhook" || spans[0].Status().Code != codes.Error {
		t.Fatalf("got %v, want one failed span of a webhook", spans)
	}
	at := spans[0].SpanContext()
	if want := "00-" + at.TraceID().String() + "-" + at.SpanID().String() + "-01"; outgoing.Header.Get(traceparent) != want {
		t.Errorf("got the header %s, want %s", outgoing.Header.Get(traceparent), want)
	}
	if found := exemplars(t, request); len(found) != 1 || !strings.Contains(stored, found[0]) {
		t.Errorf("got the exemplars %v, want the trace in %s", found, stored)
	}
}

// exemplars returns the traces that a histogram names after an observation within a request.
func exemplars(t *testing.T, request *http.Request) (ids []string) {
	t.Helper()
	histogram := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "seconds", Buckets: []float64{1, 2}})
	Observe(request.Context(), histogram, 1.5)
	var written model.Metric
	if err := histogram.Write(&written); err != nil {
		t.Fatal(err)
	}
	if n := written.Histogram.GetSampleCount(); n != 1 {
		t.Errorf("got %d values, want 1", n)
	}
	for _, bucket := range written.Histogram.Bucket {
		for _, label := range bucket.GetExemplar().GetLabel() {
			ids = append(ids, label.GetValue())
		}
	}
	return ids
}
