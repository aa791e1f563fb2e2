package process

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/ironplane/ironplane/pkg/runtime/health"
	"github.com/ironplane/ironplane/pkg/secret"
)

// OperationsConfig configures what operators see of a process.
type OperationsConfig struct {
	Operations string        `env:"IRONPLANE_OPERATIONS_LISTEN" required:"ready" doc:"an address to serve /healthz, /readyz and /metrics on; it should not be public"`
	DrainDelay time.Duration `env:"IRONPLANE_DRAIN_DELAY" default:"0s" doc:"how long a stopping process accepts connections while /readyz says not ready, so that load balancers notice"`
	Traces     string        `env:"OTEL_EXPORTER_OTLP_ENDPOINT" doc:"where traces of requests are sent, by OTLP over HTTP: http://collector:4318; OTEL_TRACES_SAMPLER and OTEL_RESOURCE_ATTRIBUTES apply, too"`

	TraceHeaders secret.String `env:"OTEL_EXPORTER_OTLP_HEADERS" doc:"headers that the receiver of traces requires: name=value,name2=value2, with values percent-encoded"`
}

const (
	// checkTimeout bounds a check, and optionalTimeout an optional check, which must not delay the response for long.
	checkTimeout, optionalTimeout = 2 * time.Second, 500 * time.Millisecond
	// checkTTL is how long an outcome is reused, however often it is requested.
	checkTTL = time.Second
)

// Operations serves a process's health, readiness and metrics to operators.
type Operations struct {
	*prometheus.Registry
	process string       // its name
	address net.Addr     // the address that operators use; nil: none
	phase   atomic.Int32 // starting, then serving, then leaving

	drainDelay time.Duration

	mu      sync.Mutex
	log     *slog.Logger
	checks  []health.Check
	outcome *readiness // of the last checks; nil: outdated
	looked  time.Time
	failing map[string]bool // checks, by their names
}

// readiness is the body of /readyz.
type readiness struct {
	Status string            `json:"status"` // ready, degraded (an optional check fails), read-only (changes are refused) or not ready
	Checks map[string]string `json:"checks"` // checkOK, or what is wrong
}

const checkOK = "ok"

const ready, degraded, readOnly, notReady = "ready", "degraded", "read-only", "not ready"

const (
	starting = iota
	serving
	leaving
)

// NewOperations returns Operations with the metrics that every process has. The name is the process's.
func NewOperations(name string) *Operations {
	o := &Operations{Registry: prometheus.NewRegistry(), process: name, log: slog.New(slog.DiscardHandler), failing: map[string]bool{}}
	o.MustRegister(
		readyCollector{o},
		clock(),
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		buildInfo(),
	)
	return o
}

// Check adds checks.
func (o *Operations) Check(checks ...health.Check) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.checks = append(o.checks, checks...)
	o.outcome = nil
}

// Started makes the process ready, as far as its checks pass.
func (o *Operations) Started() {
	if o.phase.CompareAndSwap(starting, serving) {
		o.notify(isReady)
	}
}

// Drainer is a handler with responses that go on until they are ended, such as streams. Drain ends them.
type Drainer interface{ Drain() }

// Serve answers on a listener until ctx ends. Then it keeps answering, with Connection: close, until the drain delay is over
// and deregister has returned. Finally it lets open requests finish.
func (o *Operations) Serve(ctx context.Context, listener net.Listener, handler http.Handler, deregister func()) error {
	serving, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	drained := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(drained)
		defer end()
		o.notify(isStopping)
		select {
		case <-time.After(o.drainDelay):
		case <-serving.Done():
		}
		deregister()
		if streaming, ok := handler.(Drainer); ok {
			streaming.Drain()
		}
	})
	o.Started()
	defer o.keepAlive(context.WithoutCancel(ctx))()
	err := serve(serving, listener, drainHandler(ctx, handler), o.log, shutdownGrace)
	if !stop() {
		end()
		<-drained
	}
	return err
}

// shutdownGrace is the time between closing the listener and shutting down. Clients that have just connected send their
// request in it; net/http drops requests that it reads after the shutdown began.
const shutdownGrace = 300 * time.Millisecond

// drainHandler asks callers to close their connections once ctx has ended.
func drainHandler(ctx context.Context, next http.Handler) http.Handler {
	draining := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if ctx.Err() != nil {
			w.Header()["Connection"] = []string{"close"}
		}
		next.ServeHTTP(w, r)
	})
	if refuser, ok := next.(Refuser); ok {
		return drainingRefuser{draining, refuser}
	}
	return draining
}

type drainingRefuser struct {
	http.Handler
	refuser Refuser
}

func (l drainingRefuser) Refuse(status int, message string) *http.Response {
	return l.refuser.Refuse(status, message)
}

// Ready returns the command that tests whether the running process is ready. It is for supervisors that can only run a
// program.
func (c *OperationsConfig) Ready() Command {
	const summary = "exit with 0 if the process that serves on this machine is ready"
	return Command{Name: "ready", Summary: summary, Run: func(ctx context.Context) error {
		host, port, err := net.SplitHostPort(c.Operations)
		if err != nil {
			return fmt.Errorf("IRONPLANE_OPERATIONS_LISTEN: %w", err)
		}
		if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
			host = "localhost"
		}
		ctx, cancel := context.WithTimeout(ctx, 2*checkTimeout)
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(host, port)+"/readyz", http.NoBody)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		body, err := io.ReadAll(io.LimitReader(response.Body, 64<<10))
		if err == nil && response.StatusCode != http.StatusOK {
			err = fmt.Errorf("the process is not ready: %s", bytes.TrimSpace(body))
		}
		return err
	}}
}

// Run calls work, and meanwhile serves operators if they have an address. Once ctx ends, the process is not ready. work gets
// the process's log.
func (o *Operations) Run(ctx context.Context, c OperationsConfig, lines LogConfig, work func(context.Context, *slog.Logger) error) error {
	log, closeLog := lines.Log(o.process)
	defer closeLog()
	o.log, o.drainDelay = log, c.DrainDelay
	traced := func(ctx context.Context) error {
		return trace(ctx, o.process, c, log, func(ctx context.Context) error { return work(ctx, log) })
	}
	if c.Operations == "" {
		return traced(ctx)
	}
	listener, err := net.Listen("tcp", c.Operations)
	if err != nil {
		return fmt.Errorf("listen for operators: %w", err)
	}
	return o.runServing(ctx, listener, log, traced)
}

func (o *Operations) runServing(ctx context.Context, listener net.Listener, log *slog.Logger, work func(context.Context) error) error {
	o.address = listener.Addr()
	defer context.AfterFunc(ctx, func() { o.phase.Store(leaving) })()
	operating, stop := context.WithCancel(context.WithoutCancel(ctx))
	working, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var operations sync.WaitGroup
	operations.Go(func() {
		if err := Serve(operating, listener, o.Handler(), log); err != nil {
			fail(err)
		}
	})
	err := work(working)
	stop()
	operations.Wait()
	if cause := context.Cause(working); err == nil && ctx.Err() == nil {
		return cause
	}
	return err
}

// Handler serves /healthz, /readyz and /metrics.
func (o *Operations) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	mux.HandleFunc("GET /readyz", o.readyz)
	mux.Handle("GET /metrics", promhttp.HandlerFor(o, promhttp.HandlerOpts{
		MaxRequestsInFlight: 4,
		Timeout:             10 * time.Second,
		EnableOpenMetrics:   true, // the format with exemplars, for a scraper that asks for it
	}))
	return mux
}

func (o *Operations) readyz(w http.ResponseWriter, r *http.Request) {
	is := o.readiness(r.Context())
	w.Header().Set("Content-Type", "application/json")
	if is.Status == notReady {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.NewEncoder(w).Encode(is) // the caller may have left
}

// readiness returns the process's readiness in its present phase.
func (o *Operations) readiness(ctx context.Context) *readiness {
	is := o.runChecks(ctx)
	switch o.phase.Load() {
	case starting:
		return &readiness{notReady, map[string]string{"process": "the process is starting"}}
	case leaving:
		return &readiness{notReady, map[string]string{"process": "the process is stopping"}}
	}
	return is
}

// runChecks runs all checks at once, or returns the last outcome if it is younger than checkTTL.
func (o *Operations) runChecks(ctx context.Context) *readiness {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.outcome != nil && time.Since(o.looked) < checkTTL {
		return o.outcome
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), checkTimeout) // other callers wait for the same outcome
	defer cancel()
	failed := make([]error, len(o.checks))
	var asking sync.WaitGroup
	for i, check := range o.checks {
		asking.Go(func() {
			ctx := ctx
			if check.Optional {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, optionalTimeout)
				defer cancel()
			}
			failed[i] = check.Ask(ctx)
		})
	}
	asking.Wait()
	is := &readiness{ready, map[string]string{}}
	for i, check := range o.checks {
		is.Checks[check.Name] = checkOK
		o.logCheck(check.Name, failed[i])
		if failed[i] == nil {
			continue
		}
		is.Checks[check.Name] = publicReason(failed[i])
		is.Status = worse(is.Status, failureStatus(check))
	}
	o.outcome, o.looked = is, time.Now()
	return is
}

// failureStatus returns the status of a process whose check fails.
func failureStatus(check health.Check) string {
	switch {
	case check.Optional:
		return degraded
	case check.ForChanges:
		return readOnly
	}
	return notReady
}

// worse returns the worse one of two statuses.
func worse(a, b string) string {
	order := []string{ready, degraded, readOnly, notReady}
	return order[max(slices.Index(order, a), slices.Index(order, b))]
}

// logCheck logs when a check begins to fail, with the whole error, and when it passes again.
func (o *Operations) logCheck(name string, failed error) {
	switch {
	case failed != nil && !o.failing[name]:
		o.log.Warn("check failed", "check", name, "error", failed)
	case failed == nil && o.failing[name]:
		o.log.Warn("check passes again", "check", name)
	}
	o.failing[name] = failed != nil
}

var (
	readyNow = prometheus.NewDesc("ironplane_ready", "1 if /readyz says that the process is ready, degraded or read-only.", nil, nil)
	checkUp  = prometheus.NewDesc(
		"ironplane_check_up",
		"1 if the check passes in /readyz.",
		[]string{"check"},
		nil,
	)
)

// clock exposes the clock of the process's machine. Prometheus compares it with its own.
func clock() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "ironplane_clock_timestamp_seconds", Help: "The time by the clock of the process's machine.",
	}, func() float64 { return float64(time.Now().UnixMilli()) / 1000 })
}

// readyCollector exposes the readiness as metrics.
type readyCollector struct{ *Operations }

func (readyCollector) Describe(to chan<- *prometheus.Desc) {
	to <- readyNow
	to <- checkUp
}

func (c readyCollector) Collect(to chan<- prometheus.Metric) {
	is := c.readiness(context.Background())
	to <- prometheus.MustNewConstMetric(readyNow, prometheus.GaugeValue, oneIf(is.Status != notReady))
	for name, says := range is.Checks {
		to <- prometheus.MustNewConstMetric(checkUp, prometheus.GaugeValue, oneIf(says == checkOK), name)
	}
}

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
