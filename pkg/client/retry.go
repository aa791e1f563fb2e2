package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"time"
)

// Hook is told of a call before its first attempt. It may set headers, such as traceparent. It returns the context of the call,
// and a function that is told how the call ended. That function may be nil.
type Hook func(ctx context.Context, r *Request) (context.Context, func(Result))

// Result is how a call ended.
type Result struct {
	Status    int    // of the last response, or 0
	RequestID string // of the last response
	Attempts  int
	Err       error
}

// Do sends any request, also one that this package has no method for. It sends it again as long as that is safe. The caller closes
// the body of the response. A status that is neither 2xx nor 304 is an *Error.
func (c *Client) Do(ctx context.Context, r *Request) (response *http.Response, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	err = c.do(ctx, r, func(res *http.Response) error {
		response = res
		res.Body = &openBody{res.Body, cancel}
		return errKeepOpen
	})
	if err != nil {
		cancel(nil)
		return nil, err
	}
	return response, nil
}

// openBody ends its call when the caller closes it.
type openBody struct {
	io.ReadCloser
	cancel context.CancelCauseFunc
}

func (b *openBody) Close() error {
	err := b.ReadCloser.Close()
	b.cancel(nil)
	return err
}

// errKeepOpen says that the response is left to the caller.
var errKeepOpen = errors.New("the response stays open")

// do sends a request until use has read a response, or until the request must not be sent again.
func (c *Client) do(ctx context.Context, r *Request, use func(*http.Response) error) (err error) {
	if r.Header == nil {
		r.Header = http.Header{}
	}
	result := Result{}
	if c.hook != nil {
		var ended func(Result)
		if ctx, ended = c.hook(ctx, r); ended != nil {
			defer func() {
				result.Err = err
				ended(result)
			}()
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	for {
		err = c.attempt(ctx, r, &result, use)
		delay, retry := c.nextDelay(r, err, result.Attempts)
		if !retry {
			return err
		}
		select {
		case <-time.After(delay):
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			if errors.Is(err, ErrUnknownOutcome) {
				return err
			}
			return context.Cause(ctx)
		}
	}
}

// attempt sends a request once.
func (c *Client) attempt(ctx context.Context, r *Request, result *Result, use func(*http.Response) error) error {
	result.Attempts++
	attempt, cancel := context.WithCancelCause(ctx)
	idle := fmt.Errorf("%s: the API sent nothing for %s", r.name(), c.idleTimeout)
	timer := time.AfterFunc(c.idleTimeout, func() { cancel(idle) })
	done := func() {
		timer.Stop()
		cancel(nil)
	}
	response, err := c.send(attempt, r)
	if err == nil {
		result.Status, result.RequestID = response.StatusCode, response.Header.Get("X-Request-Id")
		response.Body = &watchedBody{response.Body, timer, c.idleTimeout, done}
		if response.StatusCode < 200 || response.StatusCode > 299 && response.StatusCode != http.StatusNotModified {
			defer response.Body.Close()
			return readError(response, r)
		}
		if err = use(response); err == errKeepOpen {
			return nil
		}
	}
	stopped := context.Cause(attempt)
	if response != nil {
		response.Body.Close()
	}
	done()
	switch {
	case err == nil:
		return nil
	case stopped != nil:
		return &lostError{stopped, false}
	default:
		var op *net.OpError
		return &lostError{fmt.Errorf("%s: %w", r.name(), err), errors.As(err, &op) && op.Op == "dial"}
	}
}

func (c *Client) send(ctx context.Context, r *Request) (*http.Response, error) {
	target := c.base + r.Path
	if len(r.Query) > 0 {
		target += "?" + r.Query.Encode()
	}
	request, err := http.NewRequestWithContext(ctx, r.Method, target, nil)
	if err != nil {
		return nil, err
	}
	request.Header = r.Header.Clone()
	request.Header.Set("User-Agent", c.userAgent)
	if c.key != "" && request.Header.Get("Authorization") == "" {
		request.Header.Set("Authorization", "Bearer "+c.key)
	}
	if r.Body != nil {
		request.ContentLength = int64(len(r.Body))
		request.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(r.Body)), nil }
		request.Body, _ = request.GetBody()
	}
	return c.http.Do(request)
}

// nextDelay returns how long to wait before the next attempt, and whether there is one.
func (c *Client) nextDelay(r *Request, err error, attempts int) (delay time.Duration, retry bool) {
	if err == nil || attempts > c.maxRetries {
		return 0, false
	}
	backoff := min(250*time.Millisecond<<min(attempts-1, 10), 8*time.Second)
	backoff = backoff/2 + rand.N(backoff/2)
	repeatable := r.Repeatable || r.Method == http.MethodGet || r.Method == http.MethodHead || r.Header.Get("Idempotency-Key") != ""
	if refusal, ok := errors.AsType[*Error](err); ok {
		switch refusal.Status {
		case http.StatusTooManyRequests, http.StatusServiceUnavailable: // nothing was changed
			if refusal.RetryAfter < 0 {
				return backoff, true
			}
			return refusal.RetryAfter, refusal.RetryAfter <= c.maxRetryAfter
		case http.StatusBadGateway, http.StatusGatewayTimeout:
			return backoff, repeatable
		default:
			return 0, false
		}
	}
	lost, ok := errors.AsType[*lostError](err)
	return backoff, ok && (repeatable || lost.unsent)
}

// name returns the operation's id, or the method and path of a request without one.
func (r *Request) name() string {
	if r.Operation == "" {
		return r.Method + " " + r.Path
	}
	return r.Operation
}

// parseRetryAfter parses a Retry-After header, which has seconds or a date. It returns -1 for any other text.
func parseRetryAfter(header string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseUint(header, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(header); err == nil {
		return max(0, at.Sub(now))
	}
	return -1
}

// watchedBody resets the attempt's timer each time that something arrives, and ends the attempt when it is closed.
type watchedBody struct {
	io.ReadCloser
	timer   *time.Timer
	timeout time.Duration
	done    func()
}

func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.timer.Reset(b.timeout)
	}
	return n, err
}

func (b *watchedBody) Close() error {
	err := b.ReadCloser.Close()
	b.done()
	return err
}
