package process

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"net/http/httptest"

	"github.com/ironplane/ironplane/pkg/runtime/health"
)

func getReadiness(t *testing.T, o *Operations) (int, readiness) {
	t.Helper()
	w := httptest.NewRecorder()
	o.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/readyz", http.NoBody))
	var is readiness
	if err := json.Unmarshal(w.Body.Bytes(), &is); err != nil {
		t.Fatal(err, w.Body)
	}
	return w.Code, is
}

func TestReadiness(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		var database, cache, writable error
		o := NewOperations("test")
		o.Check(health.Check{Name: "database", Ask: func(context.Context) error { asked.Add(1); return database }},
			health.Check{Name: "cache", Ask: func(context.Context) error { return cache }, Optional: true},
			health.Check{Name: "writable", Ask: func(context.Context) error { return writable }, ForChanges: true})
		want := func(code int, status, message string) {
			t.Helper()
			time.Sleep(checkTTL)
			if got, is := getReadiness(
				t,
				o,
			); got != code || is.Status != status ||
				!strings.Contains(is.Checks["database"]+is.Checks["cache"]+is.Checks["process"]+is.Checks["writable"], message) {
				t.Errorf("got %d %+v, want %d %s %q", got, is, code, status, message)
			}
		}
		want(503, notReady, "the process is starting")
		o.Started()
		want(200, ready, "okokok")
		cache = errors.New("the cache is gone")
		want(200, degraded, "okthe cache is goneok")
		writable = errors.New("it is read-only")
		want(200, readOnly, "okthe cache is goneit is read-only")
		database = errors.New("the database is gone")
		want(503, notReady, "the database is gonethe cache is goneit is read-only")
		database, cache, writable = nil, nil, nil
		want(200, ready, "okokok")

		before := asked.Load()
		for range 100 {
			getReadiness(t, o)
		}
		if now := asked.Load(); now != before {
			t.Errorf("got %d more questions to the database, want none", now-before)
		}
		// A load balancer with a timeout of a second must not lose the process because of an optional check.
		hung := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		o.Check(health.Check{Name: "hung", Ask: hung, Optional: true})
		began := time.Now()
		if code, is := getReadiness(t, o); code != 200 || is.Checks["hung"] == "ok" || time.Since(began) > time.Second/2 {
			t.Errorf("an optional check that hangs: got %d %+v after %s, want 200 and its failure within 500ms", code, is, time.Since(began))
		}
		o.Check(health.Check{Name: "needed", Ask: hung})
		if code, is := getReadiness(t, o); code != 503 || is.Checks["needed"] == "ok" {
			t.Errorf("a check that hangs: got %d %+v, want 503 and a failed check", code, is)
		}
	})
}

func TestOperationsOutliveWork(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := "http://" + listener.Addr().String()
	get := func(path string) (int, string) {
		response, err := http.Get(at + path)
		if err != nil {
			return 0, err.Error()
		}
		defer response.Body.Close()
		body, _ := io.ReadAll(response.Body)
		return response.StatusCode, string(body)
	}
	o := NewOperations("test")
	ctx, stop := context.WithCancel(t.Context())
	drained := errors.New("drained")
	err = o.runServing(ctx, listener, slog.New(slog.DiscardHandler), func(working context.Context) error {
		if code, body := get("/readyz"); code != 503 {
			t.Errorf("/readyz before the start: got %d %s, want 503", code, body)
		}
		o.Started()
		if code, body := get("/readyz"); code != 200 {
			t.Errorf("/readyz after the start: got %d %s, want 200", code, body)
		}
		if code, body := get("/metrics"); code != 200 || !strings.Contains(body, "ironplane_build_info{") {
			t.Errorf("/metrics: got %d %s, want 200 and ironplane_build_info", code, body)
		}
		stop()
		<-working.Done()
		for { // a goroutine of its own changes the phase
			if code, body := get("/readyz"); code == 503 && strings.Contains(body, "is stopping") {
				break
			}
		}
		if code, _ := get("/healthz"); code != 200 {
			t.Errorf("/healthz of a process that drains: got %d, want 200", code)
		}
		return drained
	})
	if !errors.Is(err, drained) {
		t.Errorf("got %v, want %v", err, drained)
	}
	if code, _ := get("/healthz"); code != 0 {
		t.Errorf("/healthz after the work is done: got %d, want no answer", code)
	}
}

// A stopping process accepts connections for the drain delay, and asks callers to close them.
func TestDrainDelay(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := "http://" + listener.Addr().String()
	o := NewOperations("test")
	o.drainDelay = 5 * time.Second
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		ended <- o.Serve(ctx, listener, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), func() {})
	}()
	closes := func() bool {
		response, err := http.Get(at)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		return response.Close
	}
	if closes() {
		t.Error("before the stop: got a closed connection, want it kept")
	}
	stop()
	for range 2 {
		if !closes() {
			t.Error("after the stop: got a connection that is kept, want it closed")
		}
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if response, err := http.Get(at); err == nil {
		_ = response.Body.Close()
		t.Error("after the end: got an answer, want none")
	}
}
