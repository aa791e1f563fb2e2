package testkit

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"reflect"
	"testing"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/problem"
)

// As serves a handler as the gateway would call it for a principal. nil: without a key.
func As(handler http.Handler, p *principal.Principal) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		call := &principal.Call{Peer: principal.Gateway, Principal: p, IP: netip.MustParseAddr("192.0.2.7"), RequestID: "test"}
		handler.ServeHTTP(w, r.WithContext(principal.NewContext(r.Context(), call)))
	})
}

// AdminWith returns the principal of an admin with these grants.
func AdminWith(grants principal.Grants) *principal.Principal {
	return &principal.Principal{KeyID: 1, Owner: principal.Owner{Type: principal.Admin, ID: 1}, Name: "tester", Grants: grants}
}

// Client sends JSON requests to a server.
type Client struct {
	URL string
	Key string // empty: no key

	contract *contract
	t        testing.TB
}

// NewClient serves a handler, and returns a client of it.
func NewClient(t testing.TB, handler http.Handler) *Client {
	t.Helper()
	served := httptest.NewServer(handler)
	t.Cleanup(served.Close)
	return ClientAt(t, served.URL)
}

// ClientAt returns a client of a running server.
func ClientAt(t testing.TB, url string) *Client {
	t.Helper()
	return &Client{URL: url, contract: fetchContract(t, url), t: t}
}

// WithKey returns the client with another key.
func (c *Client) WithKey(key string) *Client {
	return &Client{URL: c.URL, Key: key, contract: c.contract, t: c.t}
}

// WithT returns the client for a subtest.
func (c *Client) WithT(t testing.TB) *Client {
	return &Client{URL: c.URL, Key: c.Key, contract: c.contract, t: t}
}

// Response is a response with its whole body.
type Response struct {
	Status int
	Header http.Header
	Text   string
	t      testing.TB
}

// Do sends a request and fails the test if there is no response. A string or an io.Reader is sent as it is, other bodies as
// JSON, nil without a body.
func (c *Client) Do(method, path string, body any, headers ...string) *Response {
	c.t.Helper()
	answer, err := c.Try(method, path, body, headers...)
	if err != nil {
		c.t.Fatal(err)
	}
	return answer
}

// Try is Do for a server that may be down: it returns the error.
func (c *Client) Try(method, path string, body any, headers ...string) (*Response, error) {
	var content io.Reader
	switch b := body.(type) {
	case nil:
	case io.Reader:
		content = b
	case string:
		content = bytes.NewReader([]byte(b))
	default:
		text, err := json.Marshal(b)
		if err != nil {
			return nil, err
		}
		content = bytes.NewReader(text)
	}
	r, err := http.NewRequestWithContext(c.t.Context(), method, c.URL+path, content)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "application/json")
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if c.Key != "" {
		r.Header.Set("Authorization", "Bearer "+c.Key)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	response, err := (&http.Client{
		Transport: c, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}).Do(
		r,
	)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	return c.NewResponse(response, text), nil
}

// NewResponse returns a response with this body.
func (c *Client) NewResponse(response *http.Response, body []byte) *Response {
	return &Response{response.StatusCode, response.Header, string(body), c.t}
}

// RoundTrip checks responses against the API document. Generated clients use it as their transport.
func (c *Client) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if err := c.contract.check(r, response, text); err != nil {
		c.t.Errorf("%s %s: %v", r.Method, r.URL.RequestURI(), err)
	}
	response.Body = io.NopCloser(bytes.NewReader(text))
	return response, nil
}

// Want fails the test unless the response has this status.
func (a *Response) Want(status int) *Response {
	a.t.Helper()
	if a.Status != status {
		a.t.Fatalf("got the status %d, want %d: %s", a.Status, status, a.Text)
	}
	return a
}

// Decode decodes the response's body.
func Decode[T any](a *Response) T {
	a.t.Helper()
	var value T
	if err := json.Unmarshal([]byte(a.Text), &value); err != nil {
		a.t.Fatalf("decode %s: %v", a.Text, err)
	}
	return value
}

// ID returns the id of the item in the response.
func (a *Response) ID() int64 {
	a.t.Helper()
	return Decode[struct{ ID int64 }](a).ID
}

// WantErrors fails the test unless the response is a 422 with exactly these pointers and codes, in pairs.
func (a *Response) WantErrors(pairs ...string) {
	a.t.Helper()
	a.Want(http.StatusUnprocessableEntity)
	got := []string{}
	for _, e := range Decode[problem.Problem](a).Errors {
		got = append(got, e.Pointer, e.Code)
	}
	if !reflect.DeepEqual(got, pairs) {
		a.t.Fatalf("got the errors %v, want %v: %s", got, pairs, a.Text)
	}
}

// WantDetail fails the test unless the response is a problem of this kind with this detail.
func (a *Response) WantDetail(kind problem.Kind, detail string) {
	a.t.Helper()
	if got := Decode[problem.Problem](a.Want(int(kind))).Detail; got != detail {
		a.t.Fatalf("got the detail %q, want %q", got, detail)
	}
}

// JSON returns a value as JSON text.
func JSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
