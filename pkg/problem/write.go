package problem

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/principal"
)

// Write answers with the fault in err and logs, once, what the caller is not told. Of the path it logs the route
// that the answer's header names, since there may be secrets in what a caller asks for.
func Write(w http.ResponseWriter, r *http.Request, log *slog.Logger, err error) {
	requestID := principal.From(r.Context()).RequestID
	f := From(err)
	canceled := errors.Is(context.Cause(r.Context()), context.Canceled) // the caller, who needs no answer
	if (f.Kind == Internal || f.Kind == Unavailable) && !canceled {
		line := []any{"method", r.Method, "route", w.Header().Get(RouteHeader), "request_id", requestID, "error", err}
		if f.Kind == Unavailable {
			line = append(line, "outage", f.Detail)
		}
		log.Error("request failed", line...)
	}
	h := w.Header()
	switch f.Kind {
	case Unauthenticated:
		h.Set("WWW-Authenticate", "Bearer")
	case MethodNotAllowed:
		h.Set("Allow", strings.Join(f.Allow, ", "))
	case Unavailable, TooManyRequests:
		wait := strconv.Itoa(int(math.Ceil(max(f.RetryAfter, time.Second).Seconds())))
		h.Set("Retry-After", wait)
		if name, _, limited := strings.Cut(f.Limit, ";"); limited {
			h["Ratelimit"], h["Ratelimit-Policy"] = []string{name + ";r=0;t=" + wait}, []string{f.Limit}
		}
	case TooLarge:
		h.Set("Connection", "close") // what is left of the body is not read
	}
	h.Set("Content-Type", MediaJSON)
	if Prefers(r.Header.Get("Accept"), MediaProblem) {
		h.Set("Content-Type", MediaProblem)
	}
	text, err := json.Marshal(Problem{
		Type: "about:blank", Title: http.StatusText(int(f.Kind)), Status: int(f.Kind), Detail: f.Detail,
		Instance: r.URL.Path, RequestID: requestID, Errors: f.Fields,
	})
	if err != nil {
		panic(err) // strings and numbers alone
	}
	w.WriteHeader(int(f.Kind))
	_, _ = w.Write(append(text, '\n')) // a caller who is gone needs no answer
}

// RouteHeader tells logs, and the gateway for its metrics, which path of a route a request matched. The gateway passes
// it on to nobody.
const RouteHeader = "Ironplane-Route"

// NoSuchPath is the error of a path that no route has.
func NoSuchPath() error { return New(NotFound, "There is no such path.") }

// NotAllowed is the error of a method that a path does not have, but others.
func NotAllowed(method string, allow ...string) error {
	e := New(MethodNotAllowed, "%s is not allowed here, but %s.", method, strings.Join(allow, ", "))
	e.Allow = allow
	return e
}
