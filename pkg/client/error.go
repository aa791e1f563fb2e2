package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// The kinds of refusals, for errors.Is.
var (
	ErrBadRequest   = errors.New("bad request")           // 400
	ErrUnauthorized = errors.New("unauthorized")          // 401: no valid key
	ErrForbidden    = errors.New("forbidden")             // 403: the key lacks a permission
	ErrNotFound     = errors.New("not found")             // 404
	ErrConflict     = errors.New("conflict")              // 409: the item's state, or another item, is in the way
	ErrStale        = errors.New("changed since")         // 412: the item is not the version of IfMatch
	ErrInvalid      = errors.New("invalid")               // 422: members of the body are invalid; Error.Fields names them
	ErrRateLimited  = errors.New("too many requests")     // 429
	ErrInternal     = errors.New("internal server error") // 500
	ErrUnavailable  = errors.New("unavailable")           // 502, 503, 504

	// ErrUnknownOutcome means that no response says whether the change was made.
	ErrUnknownOutcome = errors.New("no response says whether the change was made")
	// ErrUnreachable means that there was no connection to the API, so nothing was sent.
	ErrUnreachable = errors.New("the API cannot be reached")
)

var kinds = map[int]error{
	http.StatusBadRequest:          ErrBadRequest,
	http.StatusUnauthorized:        ErrUnauthorized,
	http.StatusForbidden:           ErrForbidden,
	http.StatusNotFound:            ErrNotFound,
	http.StatusConflict:            ErrConflict,
	http.StatusPreconditionFailed:  ErrStale,
	http.StatusUnprocessableEntity: ErrInvalid,
	http.StatusTooManyRequests:     ErrRateLimited,
	http.StatusInternalServerError: ErrInternal,
	http.StatusBadGateway:          ErrUnavailable,
	http.StatusServiceUnavailable:  ErrUnavailable,
	http.StatusGatewayTimeout:      ErrUnavailable,
}

// Error is the API's response to a request that it refused.
type Error struct {
	Operation  string        `json:"-"` // the id of the operation, such as createIPEntity
	Status     int           `json:"status"`
	Title      string        `json:"title"`
	Detail     string        `json:"detail"`     // a message for people
	RequestID  string        `json:"request_id"` // of the request, in the API's logs
	Fields     []FieldError  `json:"errors"`
	RetryAfter time.Duration `json:"-"` // as the response asks; -1 if it does not
}

// FieldError is an error of one member of a body, or of one parameter.
type FieldError struct {
	Pointer  string `json:"pointer"`            // a JSON pointer into the body, or ?name for a parameter
	Code     string `json:"code"`               // a stable code, such as overlaps
	Message  string `json:"message"`            // a message for people
	Existing *Ref   `json:"existing,omitempty"` // the item that is in the way
	Line     int64  `json:"line,omitempty"`     // in a CSV body, from 1
	Column   int64  `json:"column,omitempty"`   // in a CSV body, from 1
}

// Ref names an item.
type Ref struct {
	ID   int64  `json:"id"`
	Name string `json:"name"`
}

// Error returns the reason and the id of the request.
func (e *Error) Error() string {
	text := fmt.Sprintf("%d %s", e.Status, http.StatusText(e.Status))
	if reason := e.Reason(); reason != "" {
		text += ": " + reason
	}
	if e.RequestID != "" {
		text += " (request " + e.RequestID + ")"
	}
	return text
}

// Reason returns the API's texts: those of the invalid members, or the detail.
func (e *Error) Reason() string {
	if len(e.Fields) == 0 {
		return e.Detail
	}
	reasons := make([]string, len(e.Fields))
	for i, f := range e.Fields {
		reasons[i] = f.Pointer + " " + f.Message
	}
	return strings.Join(reasons, "; ")
}

// Is reports whether target is the kind of the error, such as ErrConflict.
func (e *Error) Is(target error) bool {
	return target == kinds[e.Status] || target == ErrUnknownOutcome && e.Status >= 500 && e.Status != http.StatusServiceUnavailable
}

// Field returns the error of a member, such as /address, or nil.
func (e *Error) Field(pointer string) *FieldError {
	for i := range e.Fields {
		if e.Fields[i].Pointer == pointer {
			return &e.Fields[i]
		}
	}
	return nil
}

const maxErrorBytes = 1 << 20

// readError reads the response of a refused request. Of a proxy's page only the status is kept.
func readError(response *http.Response, r *Request) error {
	e := &Error{}
	text, err := io.ReadAll(io.LimitReader(response.Body, maxErrorBytes))
	if err != nil || json.Unmarshal(text, e) != nil {
		e = &Error{}
	}
	e.Operation, e.Status = r.Operation, response.StatusCode
	if e.RequestID == "" {
		e.RequestID = response.Header.Get("X-Request-Id")
	}
	e.RetryAfter = parseRetryAfter(response.Header.Get("Retry-After"), time.Now())
	return e
}

// lostError is the error of a request without a response.
type lostError struct {
	error
	unsent bool // no connection was made, so nothing was sent
}

func (e *lostError) Unwrap() error { return e.error }

func (e *lostError) Is(target error) bool {
	return target == ErrUnknownOutcome && !e.unsent || target == ErrUnreachable && e.unsent
}

// noEOF returns an error that iterations do not take for the end of a list.
func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
