package host

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/runtime/tracing"
)

// observeRequests measures the requests that a service serves and how long they take.
func observeRequests(next http.Handler) (http.Handler, prometheus.Collector) {
	duration := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "ironplane_service_request_seconds", Help: "Time from a request's header to the end of the response, in seconds.",
		Buckets: []float64{.001, .003, .01, .03, .1, .3, 1, 3, 10, 30},
	}, []string{"method", "route", "status"})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o := &observation{ResponseWriter: w}
		began := time.Now()
		defer func() {
			o.note(0)          // in case nothing was written, or the handler aborted
			if o.route != "" { // otherwise the path may be any text of the caller
				tracing.Observe(r.Context(), duration.WithLabelValues(r.Method, o.route, o.status), time.Since(began).Seconds())
			}
		}()
		next.ServeHTTP(o, r)
	}), duration
}

var statusClasses = [...]string{"0xx", "1xx", "2xx", "3xx", "4xx", "5xx", "other"}

// observation is the http.ResponseWriter of a request. It notes the status, and the route from the header, before the header
// is sent.
type observation struct {
	http.ResponseWriter
	route, status string
}

// Unwrap supports http.ResponseController.
func (o *observation) Unwrap() http.ResponseWriter { return o.ResponseWriter }

func (o *observation) note(status int) {
	if o.status != "" {
		return
	}
	o.route, o.status = o.Header().Get(problem.RouteHeader), "none"
	if status > 0 {
		o.status = statusClasses[min(status/100, len(statusClasses)-1)]
	}
}

func (o *observation) WriteHeader(status int) {
	if status >= http.StatusOK {
		o.note(status)
	}
	o.ResponseWriter.WriteHeader(status)
}

func (o *observation) Write(p []byte) (int, error) {
	o.note(http.StatusOK)
	return o.ResponseWriter.Write(p)
}
