package problem

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/principal"
)

// Write responds with the problem in err, and logs what the caller is not told. Instead of the path, which may contain
// secrets, it logs the route from the response's header.
func Write(w http.ResponseWriter, r *http.Request, log *slog.Logger, err error) {
	requestID := principal.FromContext(r.Context()).RequestID
	f := From(err)
	canceled := errors.Is(context.Cause(r.Context()), context.Canceled) // the caller is gone and needs no response
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
		h.Set("Connection", "close") // the rest of the body is not read
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
		panic(err) // impossible: it has only strings and numbers
	}
	w.WriteHeader(int(f.Kind))
	_, _ = w.Write(append(text, '\n')) // a caller that is gone needs no response
}

// RouteHeader tells logs, and the gateway's metrics, which route a request matched. The gateway removes it from
// responses.
const RouteHeader = "Ironplane-Route"

// NoSuchPath returns the 404 for a path without a route.
func NoSuchPath() error { return New(NotFound, "There is no such path.") }

// CheckPath returns a 404 for a path with an encoded slash. Decoded, the slash would separate elements that the caller, and a proxy in
// front, read as one. No path of ours has a slash within an element.
func CheckPath(path *url.URL) error {
	if path.RawPath != "" && strings.Contains(strings.ToLower(path.RawPath), "%2f") { // RawPath is empty if nothing unusual is encoded
		return NoSuchPath()
	}
	return nil
}

// NotAllowed returns the 405 for a method that a path lacks.
func NotAllowed(method string, allow ...string) error {
	e := New(MethodNotAllowed, "%s is not allowed here. Allowed: %s.", method, strings.Join(allow, ", "))
	e.Allow = allow
	return e
}
