package main

import (
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/ironplane/ironplane/deploy/internal/ports"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/pkg/testkit/mailbox"
)

// collector receives the traces of the processes.
type collector struct {
	url string

	mu      sync.Mutex
	spans   []span
	refused int // requests without the header in traceHeader
}

// The collector wants this header.
const traceHeader, traceToken = "Api-Key", "tok en,with=signs"

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

// variables return the variables that have processes send their traces here, soon.
func (r *collector) variables() []string {
	return []string{
		"OTEL_EXPORTER_OTLP_ENDPOINT=" + r.url,
		"OTEL_EXPORTER_OTLP_HEADERS=tenant=a, api-key=" + url.PathEscape(traceToken),
		"OTEL_BSP_SCHEDULE_DELAY=50",
	}
}

func (r *collector) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(request.Body)
	var sent otlp.TracesData
	if err != nil || request.URL.Path != "/v1/traces" || proto.Unmarshal(body, &sent) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if request.Header.Get(traceHeader) != traceToken || request.Header.Get("Tenant") != "a" {
		r.refused++
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
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

// wantAllowed fails the test if a process has sent spans without the headers.
func (r *collector) wantAllowed(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refused > 0 {
		t.Errorf("got %d requests without the headers in OTEL_EXPORTER_OTLP_HEADERS, want none", r.refused)
	}
}

// ofTrace returns the paths of a trace's spans.
func (r *collector) ofTrace(id string) (paths []string) {
	all := r.all()
	for _, s := range all {
		if hex.EncodeToString(s.TraceId) == id {
			paths = append(paths, s.path(all))
		}
	}
	return paths
}

// ofRequest returns the trace of a request.
func (r *collector) ofRequest(id string) string {
	for _, s := range r.all() {
		for _, attribute := range s.Attributes {
			if attribute.Key == "ironplane.request_id" && attribute.Value.GetStringValue() == id {
				return hex.EncodeToString(s.TraceId)
			}
		}
	}
	return ""
}

// await waits until the trace of a request has these spans, and returns its id.
func (r *collector) await(t *testing.T, request string, want ...string) (id string) {
	t.Helper()
	var paths, missing []string
	testkit.Eventually(t, "the trace is complete", func() bool {
		id = r.ofRequest(request)
		paths = r.ofTrace(id)
		missing = slices.DeleteFunc(slices.Clone(want), func(path string) bool {
			return slices.ContainsFunc(paths, func(p string) bool { return strings.HasPrefix(p, path) })
		})
		return len(missing) == 0
	}, func() string { return fmt.Sprintf("got\n%s\nwant %q in it, too", strings.Join(paths, "\n"), missing) })
	t.Log(strings.Join(paths, "\n"))
	return id
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

// TestTraces tests that a request is one trace through all processes, with an id that the caller cannot choose. What the
// request leaves behind is a part of it: in other services the change, the message, the job, the mail and the webhook. Other
// work of processes is not traced.
func TestTraces(t *testing.T) {
	t.Parallel()
	traces, box := newCollector(t), mailbox.Start(t, mailbox.Options{})
	operations, err := ports.Free(1)
	if err != nil {
		t.Fatal(err)
	}
	hooks := make(chan string, 100) // the traceparents of deliveries
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) {
		hooks <- request.Header.Get("Traceparent")
	}))
	t.Cleanup(receiver.Close)
	r := start(t, append(traces.variables(), "IRONPLANE_OPERATIONS_LISTEN="+operations[0], "IRONPLANE_ALLOWED_NETWORKS=127.0.0.1",
		"IRONPLANE_SMTP=smtp+plain://"+box.Addr, "IRONPLANE_MAIL_FROM=noreply@example.com")...)
	const foreign = "4bf92f3577b34da6a3ce929d0e0e4736"
	r.client.Do(
		"POST", "/group", map[string]any{"name": "traced"}, "X-Request-Id", "traced", "Traceparent", "00-"+foreign+"-00f067aa0ba902b7-01",
	).
		Want(200)
	group := traces.await(
		t,
		"traced",
		"gateway: POST /group",
		"gateway: POST /group > gateway: POST network > network: POST /group",
		"gateway: POST /group > gateway: POST network > network: POST /group > network: batch start > network: INSERT", // into ip_group
	)
	if group == foreign {
		t.Errorf("got the trace %s, which the caller named, want one of the gateway's own", foreign)
	}

	r.client.Do("POST", "/webhook", map[string]any{"url": receiver.URL, "types": []string{"client.*"}}).Want(200)
	client := r.client.Do("POST", "/client", map[string]any{
		"first": "Ann", "last": "Lee", "email": "ann@example.com", "integration": nil,
	}).Want(200).ID()
	first := nextHook(t, hooks) // the new client is no part of the batch with its edit
	r.client.Do("PATCH", fmt.Sprintf("/client/%d", client), map[string]any{"email": "lee@example.com"}, "X-Request-Id", "edited").Want(200)
	const change = "gateway: PATCH /client/{client_id} > gateway: PATCH clients > clients: PATCH /client/{client_id} > "
	edited := traces.await(
		t,
		"edited",
		change+"network: process changes of clients > network: ",
		change+"system: process changes of clients > system: ",
		change+"system: process changes of clients/webhooks > system: ",
		change+"system: process messages of clients > system: process jobs mail > system: send a mail by SMTP",
		change+"system: POST webhook",
	)
	second := nextHook(t, hooks)
	for _, s := range traces.all() {
		traceparent := fmt.Sprintf("00-%x-%x-01", s.TraceId, s.SpanId)
		if s.Name == "POST webhook" && traceparent == second && hex.EncodeToString(s.TraceId) != edited {
			t.Errorf("got the header %s, want one of the trace %s", second, edited)
		}
		isRoot := s.Kind == otlp.Span_SPAN_KIND_SERVER || s.Kind == otlp.Span_SPAN_KIND_CONSUMER && len(s.Links) > 1
		if len(s.ParentSpanId) == 0 && !isRoot {
			t.Errorf("%s: got a trace that begins with %s, want one that begins with a request, or links to several", s.process, s.Name)
		}
	}
	if !strings.HasPrefix(second, "00-"+edited) || strings.HasPrefix(first, "00-"+edited) {
		t.Errorf("got the headers %q and %q of deliveries, want the trace %s in the second alone", first, second, edited)
	}
	traces.wantAllowed(t)
	wantExemplars(t, "http://"+operations[0]+"/metrics", group, edited)
}

// nextHook returns the traceparent of the next delivery.
func nextHook(t *testing.T, hooks <-chan string) string {
	t.Helper()
	select {
	case header := <-hooks:
		return header
	case <-time.After(startTimeout):
		t.Fatal("got no delivery to the webhook, want one")
		return ""
	}
}

// exemplar matches a bucket of a histogram with an exemplar, as OpenMetrics writes it.
var exemplar = regexp.MustCompile(
	`^ironplane_\w+_bucket\{(?:\w+="[^"]*",)*le="([^"]+)"\} \d+ # \{trace_id="([0-9a-f]{32})"\} ([0-9.e+-]+) [0-9.e+]+$`)

// wantExemplars fails the test if metrics in the form of OpenMetrics lack these traces. The old form has no exemplars.
func wantExemplars(t *testing.T, address string, traces ...string) {
	t.Helper()
	old, _ := scrape(t, address, "text/plain")
	if strings.Contains(old, "trace_id") || !strings.Contains(old, "ironplane_gateway_request_seconds_bucket") {
		t.Errorf("got\n%s\nwant metrics without exemplars", old)
	}
	text, kind := scrape(t, address, "application/openmetrics-text;version=1.0.0")
	if !strings.HasPrefix(kind, "application/openmetrics-text") || !strings.HasSuffix(text, "\n# EOF\n") {
		t.Errorf("got %s without an end, want OpenMetrics", kind)
	}
	for line := range strings.Lines(text) {
		found := exemplar.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if found == nil {
			if strings.Contains(line, " # ") {
				t.Errorf("got %s, want an exemplar", line)
			}
			continue
		}
		limit, failed := strconv.ParseFloat(found[1], 64)
		value, invalid := strconv.ParseFloat(found[3], 64)
		if failed != nil || invalid != nil || value > limit {
			t.Errorf("got %s, want an exemplar of the bucket", line)
		}
		traces = slices.DeleteFunc(traces, func(id string) bool { return id == found[2] })
	}
	if len(traces) > 0 {
		t.Errorf("got no exemplar with the traces %q in\n%s\nwant them there", traces, text)
	}
}

// scrape returns the metrics in a form, and their media type.
func scrape(t *testing.T, address, accept string) (text, kind string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept", accept)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body), response.Header.Get("Content-Type")
}
