package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/ironplane/ironplane/pkg/testkit"
)

// collector receives the traces of the processes.
type collector struct {
	url string

	mu    sync.Mutex
	spans []span
}

// span is a span with the name of the process that sent it.
type span struct {
	*otlp.Span
	process string
}

func newCollector(t *testing.T) *collector {
	r := &collector{}
	served := httptest.NewServer(r)
	t.Cleanup(served.Close)
	r.url = served.URL
	return r
}

// variable returns the variable that has processes send their traces here.
func (r *collector) variable() string { return "OTEL_EXPORTER_OTLP_ENDPOINT=" + r.url }

func (r *collector) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(request.Body)
	var sent otlp.TracesData
	if err != nil || request.URL.Path != "/v1/traces" || proto.Unmarshal(body, &sent) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, resource := range sent.ResourceSpans {
		process := ""
		for _, attribute := range resource.Resource.Attributes {
			if attribute.Key == "service.name" {
				process = attribute.Value.GetStringValue()
			}
		}
		for _, scope := range resource.ScopeSpans {
			for _, s := range scope.Spans {
				r.spans = append(r.spans, span{s, process})
			}
		}
	}
}

func (r *collector) all() []span {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.spans)
}

func (r *collector) text() string {
	var text strings.Builder
	for _, s := range r.all() {
		fmt.Fprintln(&text, s.process, s.Span)
	}
	return text.String()
}

// path returns the name of the span, after those of the spans that contain it.
func (s span) path(all []span) string {
	for _, other := range all {
		if string(other.SpanId) == string(s.ParentSpanId) {
			return other.path(all) + " > " + s.process + ": " + s.Name
		}
	}
	return s.process + ": " + s.Name
}

// TestTraces tests that a request is one trace through all processes, with an id that the caller cannot choose. The
// background work of processes is not traced.
func TestTraces(t *testing.T) {
	t.Parallel()
	traces := newCollector(t)
	r := start(t, traces.variable(), "OTEL_BSP_SCHEDULE_DELAY=50")
	const foreign = "4bf92f3577b34da6a3ce929d0e0e4736"
	r.client.Do(
		"POST", "/group", map[string]any{"name": "traced"}, "X-Request-Id", "traced", "Traceparent", "00-"+foreign+"-00f067aa0ba902b7-01",
	).
		Want(200)

	want := []string{
		"gateway: POST /group",
		"gateway: POST /group > gateway: POST network > network: POST /group",
		"gateway: POST /group > gateway: POST network > network: POST /group > network: batch start > network: INSERT", // into ip_group
	}
	var paths []string
	trace := func() (id string) {
		all := traces.all()
		paths = nil
		for _, s := range all {
			if strings.Contains(s.String(), `"traced"`) {
				id = string(s.TraceId)
			}
		}
		for _, s := range all {
			if string(s.TraceId) == id {
				paths = append(paths, s.path(all))
			}
		}
		return id
	}
	var id string
	var missing []string
	testkit.Eventually(t, "the trace is complete", func() bool {
		id = trace()
		missing = slices.DeleteFunc(slices.Clone(want), func(path string) bool {
			return slices.ContainsFunc(paths, func(p string) bool { return strings.HasPrefix(p, path) })
		})
		return len(missing) == 0
	}, func() string { return fmt.Sprintf("got\n%s\nwant %q in it, too", strings.Join(paths, "\n"), missing) })
	if fmt.Sprintf("%x", id) == foreign {
		t.Errorf("got the trace %s, which the caller named, want one of the gateway's own", foreign)
	}
	for _, s := range traces.all() {
		if len(s.ParentSpanId) == 0 && s.Kind != otlp.Span_SPAN_KIND_SERVER {
			t.Errorf("%s: got a trace that begins with %s, want one that begins with a request to a server", s.process, s.Name)
		}
	}
	t.Log(strings.Join(paths, "\n"))
}
