package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/pkg/auth/apikey"
	"github.com/ironplane/ironplane/pkg/catalog"
	"github.com/ironplane/ironplane/pkg/problem"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/ironplane/ironplane/pkg/rest/openapi"
)

func TestAccessLog(t *testing.T) {
	t.Parallel()
	d := newTestGateway(t, unlimited)
	var log bytes.Buffer
	d.gateway.log = slog.New(slog.NewJSONHandler(&log, nil))
	key, invalid := d.identity.issue(7), apikey.New().Reveal()
	line := func() map[string]any {
		t.Helper()
		text := log.String()
		log.Reset()
		if strings.Count(text, "\n") != 1 {
			t.Fatalf("got %s, want one line", text)
		}
		if strings.Contains(text, key) || strings.Contains(text, invalid) || strings.Contains(text, "token") {
			t.Fatalf("got a secret in the log, want none: %s", text)
		}
		var line map[string]any
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatal(err)
		}
		return line
	}
	d.want(200, key, "/port-speed/3?key="+key, "X-Request-Id", "mine")
	got := line()
	for name, want := range map[string]any{"msg": "request", "method": "GET", "upstream": "network", "route": "/port-speed/{port_speed_id}",
		"status": 200., "bytes": 4., "request_id": "mine", "ip": "192.0.2.7", "key_id": 7., "owner": "/admin/1"} {
		if got[name] != want {
			t.Errorf("got %s %v, want %v", name, got[name], want)
		}
	}
	if elapsed, ok := got["duration"].(float64); !ok || elapsed <= 0 {
		t.Errorf("got duration %v, want more than 0", got["duration"])
	}
	d.want(401, invalid, "/auth/password-reset/token?key="+invalid)
	if got := line(); got["status"] != 401. || got["route"] != "/auth" || got["owner"] != nil {
		t.Errorf("got %v, want status 401 and the route /auth without an owner", got)
	}
	d.want(404, key, "/"+invalid+"/token")
	if got := line(); got["route"] != "" || got["upstream"] != "" {
		t.Errorf("got %v, want neither a route nor an upstream", got)
	}
}

type failingService struct{ *Gateway }

func (f failingService) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	problem.Write(w, r, f.log, errors.New("the inside"))
}

// Failures are logged with the route, because a path may contain a secret.
func TestFailuresAreLoggedByRoute(t *testing.T) {
	t.Parallel()
	d := newTestGateway(t, unlimited)
	var log bytes.Buffer
	d.gateway.log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	d.gateway.upstreams["network"] = failingService{d.gateway}
	key := d.identity.issue(7)
	fail := func(status int, key string) {
		t.Helper()
		log.Reset()
		d.want(status, key, "/port-speed/token?q=token")
		if text := log.String(); strings.Count(text, "route=/port-speed ") != 1 || strings.Contains(text, "token") ||
			strings.Contains(text, key) {
			t.Errorf("got the log %s, want route=/port-speed once and no secret", text)
		}
	}
	fail(500, key)
	d.identity.set(func(w http.ResponseWriter) bool { w.WriteHeader(503); return true }, nil)
	fail(503, d.identity.issue(8))
}

type abortingService struct{}

func (abortingService) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	_, _ = w.Write([]byte("[1"))
	panic(http.ErrAbortHandler)
}

func TestAbortedAnswer(t *testing.T) {
	t.Parallel()
	d := newTestGateway(t, unlimited)
	var log bytes.Buffer
	d.gateway.log = slog.New(slog.NewTextHandler(&log, nil))
	d.gateway.upstreams["network"] = abortingService{}
	func() {
		defer func() {
			if recover() != http.ErrAbortHandler { //nolint:errorlint // net/http compares it so
				t.Error("got a panic other than http.ErrAbortHandler, or none, want that one")
			}
		}()
		get(d.gateway, testAddress, "", "/port-speed")
	}()
	if !strings.Contains(log.String(), "aborted=true") || !strings.Contains(log.String(), "bytes=2") {
		t.Errorf("got the log %s, want aborted=true and bytes=2", &log)
	}
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	d := newTestGateway(t, unlimited)
	key := d.identity.issue(7)
	d.want(200, key, "/port-speed/3")
	d.want(200, key, "/port-speed/4")
	d.want(404, "", "/made/up")
	r := httptest.NewRequest("BREW", "/port-speed", http.NoBody)
	d.gateway.ServeHTTP(httptest.NewRecorder(), r)
	w := httptest.NewRecorder()
	registry := prometheus.NewRegistry()
	registry.MustRegister(d.gateway.Metrics()...)
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", http.NoBody))
	for _, want := range []string{
		`ironplane_gateway_request_seconds_count{method="GET",route="/port-speed/{port_speed_id}",service="network",status="2xx"} 2`,
		`ironplane_gateway_request_seconds_count{method="GET",route="",service="",status="4xx"} 1`,
		`ironplane_gateway_request_seconds_count{method="other",route="/port-speed/{port_speed_id}",service="network",status="2xx"} 1`,
		`ironplane_gateway_lookups_total{from="memory"} `,
		`ironplane_gateway_lookups_total{from="owner"} `, // 2, where Redis answers in time
		`ironplane_gateway_limit_total{decision="allowed",limit="owner"} 2`,
		`ironplane_gateway_limit_total{decision="allowed",limit="address"} 3`,
		`ironplane_gateway_redis_up `,
	} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("got no %s, want it in\n%s", want, w.Body)
		}
	}
}

func BenchmarkService(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if path := "/port-speed/12345"; catalog.Owner(path, openapi.FirstElement(path)) != "network" {
			b.Fatal("got another service, want network")
		}
	}
}

type emptyService struct{}

func (emptyService) ServeHTTP(http.ResponseWriter, *http.Request) {}

// BenchmarkGateway measures all that the gateway adds to a request.
func BenchmarkGateway(b *testing.B) {
	d := newTestGateway(b, unlimited)
	d.gateway.upstreams["network"] = emptyService{}
	key := d.identity.issue(7)
	b.ReportAllocs()
	for b.Loop() {
		r := &http.Request{
			Method:     "GET",
			URL:        benchmarkURL,
			Header:     http.Header{"Authorization": {"Bearer " + key}},
			RemoteAddr: testAddress,
			Body:       http.NoBody,
		}
		d.gateway.ServeHTTP(httptest.NewRecorder(), r)
	}
}

var benchmarkURL = httptest.NewRequest("GET", "/port-speed/12345", http.NoBody).URL
