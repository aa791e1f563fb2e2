package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	ironplane "github.com/ironplane/ironplane/pkg/client"
	"github.com/ironplane/ironplane/pkg/secret"
)

const (
	maxResponseBytes = 1 << 20
	maxProblemBytes  = 64 << 10
)

// client adds time-outs, size limits and retries to the calls of the API's generated client. It knows no resource.
type client struct {
	api           ironplane.ClientInterface
	idleTimeout   time.Duration // how long the API may send nothing before the request fails
	maxRetryAfter time.Duration // with a longer Retry-After a request fails at once
	maxRetries    int           // after a 429 or 503
}

// call sends one request.
type call func(context.Context) (*http.Response, error)

// newTransport returns a transport that keeps a connection for each worker.
func newTransport() *http.Transport {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = workers
	return transport
}

// newClient returns a client of the API at base, an http or https URL.
func newClient(base string, key secret.String, transport http.RoundTripper) (*client, error) {
	u, err := url.Parse(base)
	if err != nil {
		return nil, fmt.Errorf("parse the API's URL: %w", err)
	}
	if (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil || u.RawQuery != "" {
		return nil, errors.New("the API's URL must have the form http://host or https://host")
	}
	api, err := ironplane.New(base, key.Reveal(), ironplane.WithHTTPClient(&http.Client{
		Transport: transport,
		// A redirect would turn a POST into a GET, and could carry the key elsewhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}))
	if err != nil {
		return nil, fmt.Errorf("create the API's client: %w", err)
	}
	return &client{api: api, idleTimeout: 40 * time.Second, maxRetryAfter: time.Minute, maxRetries: 10}, nil
}

// create sends a request that creates an item, and decodes the response into target. The end of ctx ends waiting for a
// retry. It does not end a request, since only the response says whether the item was created.
//
// The error is a *problem, or errUnknownOutcome if the item may or may not exist.
func (c *client) create(ctx context.Context, post call, target any) error {
	return c.retry(ctx, func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.idleTimeout)
		defer cancel()
		res, err := checkStatus(post(ctx))
		if err != nil {
			return markUnknown(err)
		}
		defer res.Body.Close()
		body, err := io.ReadAll(io.LimitReader(res.Body, maxResponseBytes))
		if err == nil {
			err = json.Unmarshal(body, target)
		}
		if err != nil {
			return markUnknown(fmt.Errorf("read the response: %w", err))
		}
		return nil
	})
}

var errUnknownOutcome = errors.New("no response says whether it was created")

// markUnknown wraps the error of a POST with errUnknownOutcome, unless it proves that nothing was created.
func markUnknown(err error) error {
	if p, isProblem := errors.AsType[*problem](err); isProblem && (p.Status < 500 || p.isRetryable()) {
		return err
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return err
	}
	return fmt.Errorf("%w: %w", errUnknownOutcome, err)
}

// list sends a request for a complete list, and calls each for every item as it arrives.
func list[T any](ctx context.Context, c *client, get call, each func(T)) error {
	return c.retry(ctx, func() error {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		timer := time.AfterFunc(c.idleTimeout, func() { cancel(fmt.Errorf("the API sent nothing for %s", c.idleTimeout)) })
		defer timer.Stop()

		err := func() error {
			res, err := checkStatus(get(ctx))
			if err != nil {
				return err
			}
			defer res.Body.Close()
			return decodeArray(&timeoutReader{res.Body, timer, c.idleTimeout}, each)
		}()
		if err != nil && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return err
	})
}

// decodeArray calls each for every item of the array in r. It fails if the array is incomplete.
func decodeArray[T any](r io.Reader, each func(T)) error {
	decoder := json.NewDecoder(r)
	if start, err := decoder.Token(); err != nil || start != json.Delim('[') {
		return errors.Join(errors.New("the response is not an array"), err)
	}
	for decoder.More() {
		var item T
		if err := decoder.Decode(&item); err != nil {
			return err
		}
		each(item)
	}
	_, err := decoder.Token()
	return err
}

// timeoutReader resets its timer each time that it reads something.
type timeoutReader struct {
	io.Reader
	timer       *time.Timer
	idleTimeout time.Duration
}

func (m *timeoutReader) Read(p []byte) (int, error) {
	n, err := m.Reader.Read(p)
	if n > 0 {
		m.timer.Reset(m.idleTimeout)
	}
	return n, err
}

// checkStatus turns every response but a success into a *problem.
func checkStatus(res *http.Response, err error) (*http.Response, error) {
	if err != nil {
		return nil, err
	}
	if res.StatusCode >= 200 && res.StatusCode < 300 {
		return res, nil
	}
	defer res.Body.Close()
	return nil, readProblem(res)
}

// retry repeats a request that the API answers with 429 or 503, after its Retry-After. Such a request has changed nothing.
func (c *client) retry(ctx context.Context, attempt func() error) error {
	for n := 0; ctx.Err() == nil; n++ {
		err := attempt()
		p, isProblem := errors.AsType[*problem](err)
		if !isProblem || !p.isRetryable() {
			return err
		}
		if n == c.maxRetries {
			return fmt.Errorf("the API asked %d times to retry later: %w", n+1, err)
		}
		if p.retryAfter > c.maxRetryAfter {
			return fmt.Errorf("the API asks to retry after %s, which is too long: %w", p.retryAfter, err)
		}
		select {
		case <-time.After(p.retryAfter):
		case <-ctx.Done():
		}
	}
	return context.Cause(ctx)
}

// problem is the API's response to a failed request.
type problem struct {
	ironplane.Problem
	retryAfter time.Duration
}

// readProblem reads the response of a failed request. It keeps the status if the body is not the API's, such as a proxy's
// page.
func readProblem(res *http.Response) *problem {
	var p problem
	body, err := io.ReadAll(io.LimitReader(res.Body, maxProblemBytes))
	if err != nil || json.Unmarshal(body, &p.Problem) != nil {
		p = problem{}
	}
	p.Status = int64(res.StatusCode)
	p.retryAfter = retryAfter(res.Header.Get("Retry-After"), time.Now())
	return &p
}

// isRetryable reports whether the API asks to retry the request later. Such a request has changed nothing.
func (p *problem) isRetryable() bool {
	return p.Status == http.StatusTooManyRequests || p.Status == http.StatusServiceUnavailable
}

func (p *problem) Error() string {
	text := fmt.Sprintf("%d %s", p.Status, http.StatusText(int(p.Status)))
	if reason := p.reason(); reason != "" {
		text += ": " + reason
	}
	if p.RequestID != "" {
		text += " (request " + p.RequestID + ")"
	}
	return text
}

// reason returns the API's texts: those of the invalid members, or the detail.
func (p *problem) reason() string {
	members := value(p.Errors)
	if len(members) == 0 {
		return p.Detail
	}
	reasons := make([]string, len(members))
	for i, m := range members {
		reasons[i] = m.Pointer + " " + m.Message
	}
	return strings.Join(reasons, "; ")
}

// code returns the code of the first invalid member, or the title. The report counts by it.
func (p *problem) code() string {
	if members := value(p.Errors); len(members) > 0 {
		return members[0].Code
	}
	return p.Title
}

// value returns the value of an optional member, or the zero value.
func value[T any](member *T) (zero T) {
	if member == nil {
		return zero
	}
	return *member
}

// retryAfter parses a Retry-After header, which has seconds or a date. It returns two seconds for any other text.
func retryAfter(header string, now time.Time) time.Duration {
	const unnamed = 2 * time.Second
	if seconds, err := strconv.ParseUint(header, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(header); err == nil {
		return max(0, at.Sub(now))
	}
	return unnamed
}
