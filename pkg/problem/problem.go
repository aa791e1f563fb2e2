// Package problem has Ironplane's error type for callers: a text that they may read and, apart from it, the cause, which
// only the log gets.
//
// Any other error that reaches a caller becomes an Internal error, whose text stays in the log.
package problem

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Kind is the kind of an error. Its value is the HTTP status of the response.
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

// Error is an error for a caller. Detail and Fields are shown to the caller, Cause is only logged.
type Error struct {
	Kind       Kind
	Detail     string
	Fields     []Field
	RetryAfter time.Duration // for Unavailable and TooManyRequests: when to try again
	Limit      string        // for TooManyRequests of a service: the value of RateLimit-Policy, such as "emails";q=60;w=3600
	Allow      []string      // for MethodNotAllowed: the allowed methods
	Cause      error
}

// Field is an error of one member of a body or one parameter of a query.
type Field struct {
	Pointer  string `json:"pointer" example:"/speed" doc:"A JSON pointer into the body, or ?name for a query parameter."`
	Code     string `json:"code" example:"required" doc:"A stable code for programs."`
	Message  string `json:"message" example:"is required" doc:"A message for people."`
	Existing *Ref   `json:"existing,omitempty" ext:"true" doc:"The item that already has the value, or that prevents the change."`
	Line     int    `json:"line,omitempty" ext:"true" doc:"In a body of CSV: the line with the error. The first line names the columns."`
	Column   int    `json:"column,omitempty" ext:"true" doc:"In a body of CSV: the column with the error, from 1. Left out for an error about the whole row."`
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

// New returns an error with a detail for the caller.
func New(kind Kind, format string, args ...any) *Error {
	return &Error{Kind: kind, Detail: fmt.Sprintf(format, args...)}
}

// Because adds a cause, which is only logged, and returns e.
func (e *Error) Because(cause error) *Error {
	e.Cause = cause
	return e
}

// From returns the Error in err's chain, or an Internal one with err as its cause.
func From(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return &Error{Kind: Internal, Detail: "An unexpected error occurred. It has been logged under this request's id.", Cause: err}
}

// Is tells whether err has an Error of this kind in its chain.
func Is(err error, kind Kind) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Kind == kind
}

// Member returns the 422 for a body in which only the member at pointer is invalid.
func Member(pointer, code, format string, args ...any) error {
	return Fields{{Pointer: pointer, Code: code, Message: fmt.Sprintf(format, args...)}}.Err()
}

// Fields collects the errors of a body, so that the caller gets all of them at once.
type Fields []Field

// Add notes that the member at pointer is wrong, unless something was noted of it already: the first reason is
// the one that the others follow from.
func (f *Fields) Add(pointer, code, format string, args ...any) {
	if !f.has(pointer) {
		*f = append(*f, Field{Pointer: pointer, Code: code, Message: fmt.Sprintf(format, args...)})
	}
}

// has tells whether the member at pointer has an error.
func (f Fields) has(pointer string) bool {
	for _, field := range f {
		if field.Pointer == pointer {
			return true
		}
	}
	return false
}

// Err returns the 422 with all fields, or nil if there are none.
func (f Fields) Err() error {
	if len(f) == 0 {
		return nil
	}
	fields := append([]Field(nil), f...)
	slices.SortStableFunc(fields, func(a, b Field) int { return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Pointer, b.Pointer)) })
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
	if names = slices.Compact(names); len(names) == 1 {
		return fmt.Sprintf("%s has %d errors.", names[0], len(fields))
	}
	return fmt.Sprintf("%d members are invalid: %s.", len(names), strings.Join(names, ", "))
}

// Problem is the body of every error (RFC 9457).
type Problem struct {
	Type      string  `json:"type" example:"about:blank" doc:"Always about:blank: status and code tell the type."`
	Title     string  `json:"title" example:"Unprocessable Entity" doc:"The status in words."`
	Status    int     `json:"status" example:"422" doc:"The HTTP status."`
	Detail    string  `json:"detail" example:"speed is required." doc:"A message for people."`
	Instance  string  `json:"instance" example:"/port-speed" doc:"The request's path."`
	RequestID string  `json:"request_id" example:"WN4CH35LOKSBGV" doc:"The request's id in the log."`
	Errors    []Field `json:"errors,omitempty" doc:"The errors of members, for status 422."`
}
