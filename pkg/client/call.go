package client

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// CallOption changes one call.
type CallOption func(*Request)

// IfMatch makes the API refuse a change with ErrStale if the item is no longer the version with this ETag.
func IfMatch(etag string) CallOption { return Header("If-Match", etag) }

// IdempotencyKey replaces the random Idempotency-Key of a POST. For 24 hours, the same request with the same key returns the first
// response: use one that outlives your process to make a change once even if the process dies.
func IdempotencyKey(key string) CallOption { return Header("Idempotency-Key", key) }

// RequestID sets the request's id in the API's logs. An Error has the id, too.
func RequestID(id string) CallOption { return Header("X-Request-Id", id) }

// DryRun makes the API check a change without making it. Operations without this option refuse it.
func DryRun() CallOption { return Query("dry_run", "true") }

// Partial makes the API leave out the rows of a CSV body that have errors. Otherwise one error refuses all.
func Partial() CallOption { return Query("partial", "true") }

// Include adds parts to an item, such as fields.
func Include(parts ...string) CallOption { return Query("include", strings.Join(parts, ",")) }

// Header sets a header of the request.
func Header(name, value string) CallOption {
	return func(r *Request) { r.Header.Set(name, value) }
}

// Query sets a parameter of the request's query.
func Query(name, value string) CallOption {
	return func(r *Request) { r.Query.Set(name, value) }
}

// Request is a request to the API. Do sends it.
type Request struct {
	// Operation is the id of the operation in the API document, and Route its path with names in braces. Both are for hooks.
	Operation string
	Route     string

	Method string
	Path   string // with escaped ids
	Query  url.Values
	Header http.Header
	Body   []byte // nil: none

	// Repeatable is whether the request may be sent again when its outcome is unknown. GET requests always may, and so may each
	// POST with an Idempotency-Key.
	Repeatable bool
}

// operation describes a generated method.
type operation struct {
	id, method, route string
	retry             retry
}

// retry is what sending an operation's request twice does.
type retry int

const (
	once  retry = iota // it would be carried out twice, or refused
	keyed              // it is carried out once, thanks to its Idempotency-Key
	same               // it changes nothing more
)

// request returns the request of an operation. The ids fill the names in its route's braces.
func (o operation) request(options []CallOption, query any, ids ...any) *Request {
	r := &Request{Operation: o.id, Route: o.route, Method: o.method, Path: o.route, Header: http.Header{}, Query: encodeQuery(query)}
	for _, id := range ids {
		before, after, _ := strings.Cut(r.Path, "{")
		_, after, _ = strings.Cut(after, "}")
		r.Path = before + escape(id) + after
	}
	if o.retry == keyed {
		r.Header.Set("Idempotency-Key", rand.Text())
	}
	r.Repeatable = o.retry != once
	for _, option := range options {
		option(r)
	}
	return r
}

// escape returns an id for a path. Several ids are joined by commas. An asset's path keeps its slashes.
func escape(id any) string {
	if ids, ok := id.([]int64); ok {
		return strings.ReplaceAll(strings.Trim(fmt.Sprint(ids), "[]"), " ", ",")
	}
	return strings.NewReplacer("%2F", "/", "{", "%7B").Replace(url.PathEscape(fmt.Sprint(id)))
}

// withBody sets a JSON body.
func (r *Request) withBody(body any) (*Request, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("%s: encode the body: %w", r.Operation, err)
	}
	r.Body = text
	if r.Header.Get("Content-Type") == "" {
		r.Header.Set("Content-Type", "application/json")
	}
	return r, nil
}

// withRaw sets a body that is sent as it is.
func (r *Request) withRaw(body io.Reader, contentType string) (*Request, error) {
	text, err := io.ReadAll(body)
	if err != nil {
		return nil, fmt.Errorf("%s: read the body: %w", r.Operation, err)
	}
	r.Body = text
	r.Header.Set("Content-Type", contentType)
	return r, nil
}

// headed is an answer that takes something from the response's header.
type headed interface{ setHeader(http.Header) }

// Versioned has the version of an item. Pass it to IfMatch to change the item only if nobody else has changed it.
type Versioned struct {
	ETag string `json:"-"` // empty for an item from a list
}

func (v *Versioned) setHeader(h http.Header) { v.ETag = h.Get("ETag") }

// fetch sends a request with a JSON answer.
func fetch[T any](ctx context.Context, c *Client, r *Request, err error) (*T, error) {
	var answer T
	if err != nil {
		return nil, err
	}
	err = c.do(ctx, r, func(response *http.Response) error {
		answer = *new(T) // an earlier attempt may have left half an answer
		if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
			return fmt.Errorf("read the response: %w", noEOF(err))
		}
		if a, ok := any(&answer).(headed); ok {
			a.setHeader(response.Header)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &answer, nil
}

// fetchAll sends a request with a JSON array as its answer. For one id the API answers with an object.
func fetchAll[T any](ctx context.Context, c *Client, r *Request, err error) ([]T, error) {
	text, err := fetch[json.RawMessage](ctx, c, r, err)
	if err != nil {
		return nil, err
	}
	if bytes.HasPrefix(*text, []byte("{")) {
		*text = append(append([]byte("["), *text...), ']')
	}
	var items []T
	if err := json.Unmarshal(*text, &items); err != nil {
		return nil, fmt.Errorf("%s: read the response: %w", r.Operation, err)
	}
	return items, nil
}

// send sends a request whose answer says nothing new.
func send(ctx context.Context, c *Client, r *Request, err error) error {
	if err != nil {
		return err
	}
	return c.do(ctx, r, func(response *http.Response) error {
		_, err := io.Copy(io.Discard, response.Body)
		return err
	})
}

// open sends a request and returns the response, whose body the caller closes.
func open(ctx context.Context, c *Client, r *Request, err error) (*http.Response, error) {
	if err != nil {
		return nil, err
	}
	return c.Do(ctx, r)
}
