package rest

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

	"github.com/ironplane/ironplane/pkg/fault"
	"github.com/ironplane/ironplane/pkg/principal"
)

// Problem is the body of every error (RFC 9457).
type Problem struct {
	Type      string        `json:"type" example:"about:blank" doc:"the status says it"`
	Title     string        `json:"title" example:"Unprocessable Entity" doc:"of the status"`
	Status    int           `json:"status" example:"422"`
	Detail    string        `json:"detail" example:"speed is required." doc:"for people"`
	Instance  string        `json:"instance" example:"/port-speed" doc:"the path that was asked for"`
	RequestID string        `json:"request_id" example:"WN4CH35LOKSBGV" doc:"as the log has it"`
	Errors    []fault.Field `json:"errors,omitempty"`
}

// WriteError answers with the fault in err and logs, once, what the caller is not told. Of the path it logs the route
// that the answer's header names, since there may be secrets in what a caller asks for.
func WriteError(w http.ResponseWriter, r *http.Request, log *slog.Logger, err error) {
	f := fault.From(err)
	call := principal.From(r.Context())
	gone := errors.Is(context.Cause(r.Context()), context.Canceled) // the caller, who needs no answer
	if (f.Kind == fault.Internal || f.Kind == fault.Unavailable) && !gone {
		log.Error("request failed", "method", r.Method, "route", w.Header().Get(RouteHeader), "request_id", call.RequestID, "error", err)
	}
	h := w.Header()
	switch f.Kind {
	case fault.Unauthenticated:
		h.Set("WWW-Authenticate", "Bearer")
	case fault.MethodNotAllowed:
		h.Set("Allow", strings.Join(f.Allow, ", "))
	case fault.Unavailable, fault.TooManyRequests:
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(max(f.RetryAfter, time.Second).Seconds()))))
	case fault.TooLarge:
		h.Set("Connection", "close") // what is left of the body is not read
	}
	h.Set("Content-Type", problemType(r.Header.Get("Accept")))
	text, err := json.Marshal(Problem{
		Type: "about:blank", Title: f.Kind.Title(), Status: int(f.Kind), Detail: f.Detail,
		Instance: r.URL.Path, RequestID: call.RequestID, Errors: f.Fields,
	})
	if err != nil {
		panic(err) // strings and numbers alone
	}
	w.WriteHeader(int(f.Kind))
	_, _ = w.Write(append(text, '\n')) // a caller who is gone needs no answer
}

func problemType(accept string) string {
	const problem = "application/problem+json"
	if quality(accept, problem) > quality(accept, jsonType) {
		return problem
	}
	return jsonType
}
