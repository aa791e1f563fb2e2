// Package problem is the one error type of Ironplane: what went wrong in words that a caller may read, and, kept
// apart from them, the cause that only the log sees.
//
// Any other error that reaches the edge is an Internal fault whose text stays inside.
package problem

import (
	"errors"
	"fmt"
	"net/http"
	"sort"
	"strings"
	"time"
)

// Kind says what sort of fault it is. Its value is the HTTP status that answers it.
type Kind int

// The kinds, as docs/reference/api.md describes them.
const (
	BadRequest       Kind = http.StatusBadRequest
	Unauthenticated  Kind = http.StatusUnauthorized
	Forbidden        Kind = http.StatusForbidden
	NotFound         Kind = http.StatusNotFound
	MethodNotAllowed Kind = http.StatusMethodNotAllowed
	Conflict         Kind = http.StatusConflict
	Stale            Kind = http.StatusPreconditionFailed
	TooLarge         Kind = http.StatusRequestEntityTooLarge
	UnsupportedMedia Kind = http.StatusUnsupportedMediaType
	NoSuchRange      Kind = http.StatusRequestedRangeNotSatisfiable
	Invalid          Kind = http.StatusUnprocessableEntity
	TooManyRequests  Kind = http.StatusTooManyRequests
	Internal         Kind = http.StatusInternalServerError
	Unavailable      Kind = http.StatusServiceUnavailable
)

// Error is a fault. Detail and Fields are shown to the caller, Cause is not.
type Error struct {
	Kind       Kind
	Detail     string
	Fields     []Field
	RetryAfter time.Duration // of Unavailable and TooManyRequests: when to come back
	Limit      string        // of TooManyRequests by a service: the limit, as RateLimit-Policy has it: "emails";q=60;w=3600
	Allow      []string      // of MethodNotAllowed: what is allowed
	Cause      error
}

// Field is what is wrong with one member of a body or one parameter of a query.
type Field struct {
	Pointer  string `json:"pointer" example:"/speed" doc:"a JSON pointer into the body, or ?name for a query parameter"`
	Code     string `json:"code" example:"required" doc:"stable, for programs"`
	Message  string `json:"message" example:"is required" doc:"for people"`
	Existing *Ref   `json:"existing,omitempty" ext:"true" doc:"the item that has the value already, or is in the way"`
}

// Ref names an item.
type Ref struct {
	ID   int64  `json:"id" db:"id" example:"3"`
	Name string `json:"name" db:"name" example:"Frankfurt 1"`
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(http.StatusText(int(e.Kind)))
	if e.Detail != "" {
		b.WriteString(": " + e.Detail)
	}
	for _, f := range e.Fields {
		fmt.Fprintf(&b, "; %s: %s", f.Pointer, f.Message)
	}
	if e.Cause != nil {
		b.WriteString(": " + e.Cause.Error())
	}
	return b.String()
}

func (e *Error) Unwrap() error { return e.Cause }

// New makes a fault with a detail that the caller reads.
func New(kind Kind, format string, args ...any) *Error {
	return &Error{Kind: kind, Detail: fmt.Sprintf(format, args...)}
}

// Because adds the cause that only the log sees.
func (e *Error) Because(cause error) *Error {
	e.Cause = cause
	return e
}

// From is the fault in err's chain, or an Internal one that err is the cause of.
func From(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return &Error{Kind: Internal, Detail: "An unexpected error occurred. It has been logged under this request's id.", Cause: err}
}

// Is tells whether err is a fault of this kind.
func Is(err error, kind Kind) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Kind == kind
}

// Member is the Invalid fault of a body of which the member at pointer alone is wrong.
func Member(pointer, code, format string, args ...any) error {
	return Fields{{Pointer: pointer, Code: code, Message: fmt.Sprintf(format, args...)}}.Err()
}

// Fields collects what is wrong with a body, so that all of it is answered at once.
type Fields []Field

// Add notes that the member at pointer is wrong, unless something was noted of it already: the first reason is
// the one that the others follow from.
func (f *Fields) Add(pointer, code, format string, args ...any) {
	if !f.has(pointer) {
		*f = append(*f, Field{Pointer: pointer, Code: code, Message: fmt.Sprintf(format, args...)})
	}
}

// has tells whether something is wrong with the member at pointer.
func (f Fields) has(pointer string) bool {
	for _, field := range f {
		if field.Pointer == pointer {
			return true
		}
	}
	return false
}

// Err is the Invalid fault that names all fields, or nil if there are none.
func (f Fields) Err() error {
	if len(f) == 0 {
		return nil
	}
	fields := append([]Field(nil), f...)
	sort.SliceStable(fields, func(i, j int) bool { return fields[i].Pointer < fields[j].Pointer })
	return &Error{Kind: Invalid, Detail: summary(fields), Fields: fields}
}

func summary(fields []Field) string {
	if len(fields) == 1 {
		return strings.TrimPrefix(fields[0].Pointer, "/") + " " + fields[0].Message + "."
	}
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = strings.TrimPrefix(f.Pointer, "/")
	}
	return fmt.Sprintf("%d members are wrong: %s.", len(fields), strings.Join(names, ", "))
}

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
