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

	"github.com/ironplane/ironplane/pkg/accept"
)

// Problem is the body of every error (RFC 9457).
type Problem struct {
	Type      string  `json:"type" example:"about:blank" doc:"the status says it"`
	Title     string  `json:"title" example:"Unprocessable Entity" doc:"of the status"`
	Status    int     `json:"status" example:"422"`
	Detail    string  `json:"detail" example:"speed is required." doc:"for people"`
	Instance  string  `json:"instance" example:"/port-speed" doc:"the path that was asked for"`
	RequestID string  `json:"request_id" example:"WN4CH35LOKSBGV" doc:"as the log has it"`
	Errors    []Field `json:"errors,omitempty"`
}

type requestIDKey struct{}

// RequestIDKey is the key of what Write names a request by in its context: a string.
var RequestIDKey any = requestIDKey{}

// Write answers with the fault in err and logs, once, what the caller is not told. Of the path it logs the route
// that the answer's header names, since there may be secrets in what a caller asks for.
func Write(w http.ResponseWriter, r *http.Request, log *slog.Logger, err error) {
	requestID, _ := r.Context().Value(RequestIDKey).(string)
	f := From(err)
	gone := errors.Is(context.Cause(r.Context()), context.Canceled) // the caller, who needs no answer
	if (f.Kind == Internal || f.Kind == Unavailable) && !gone {
		log.Error("request failed", "method", r.Method, "route", w.Header().Get(RouteHeader), "request_id", requestID, "error", err)
	}
	h := w.Header()
	switch f.Kind {
	case Unauthenticated:
		h.Set("WWW-Authenticate", "Bearer")
	case MethodNotAllowed:
		h.Set("Allow", strings.Join(f.Allow, ", "))
	case Unavailable, TooManyRequests:
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(max(f.RetryAfter, time.Second).Seconds()))))
	case TooLarge:
		h.Set("Connection", "close") // what is left of the body is not read
	}
	h.Set("Content-Type", accept.JSON)
	if accept.Prefers(r.Header.Get("Accept"), accept.Problem) {
		h.Set("Content-Type", accept.Problem)
	}
	text, err := json.Marshal(Problem{
		Type: "about:blank", Title: f.Kind.title(), Status: int(f.Kind), Detail: f.Detail,
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
