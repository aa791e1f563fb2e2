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
	maxAnswer  = 1 << 20
	maxProblem = 64 << 10
)

// client gives the calls of the API's generated client deadlines, bounds and patience. It knows no resource.
type client struct {
	api     ironplane.ClientInterface
	silence time.Duration // how long the API may say nothing before it counts as gone
	maxWait time.Duration // the longest time to be put off for
	waits   int           // how often a request may be put off
}

// call sends one request.
type call func(context.Context) (*http.Response, error)

func newClient(base string, key secret.String) (*client, error) {
	u, err := url.Parse(base)
	if err != nil {
		return nil, fmt.Errorf("the API's URL: %w", err)
	}
	if (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil || u.RawQuery != "" {
		return nil, errors.New("the API's URL must read http://host or https://host")
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = workers
	api, err := ironplane.New(base, key.Reveal(), ironplane.WithHTTPClient(&http.Client{
		Transport: transport,
		// A redirect would turn a POST into a GET, and could carry the key elsewhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}))
	if err != nil {
		return nil, fmt.Errorf("the API's client: %w", err)
	}
	return &client{api: api, silence: 40 * time.Second, maxWait: time.Minute, waits: 10}, nil
}

// create makes a call that creates something, and decodes the answer into made. The end of ctx ends waiting, not a
// request that was sent: only its answer tells whether the thing was made.
//
// An error is a *problem, or errUnclear where the thing may or may not have been made.
func (c *client) create(ctx context.Context, post call, made any) error {
	return c.patiently(ctx, func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.silence)
		defer cancel()
		res, err := successOf(post(ctx))
		if err != nil {
			return doubtful(err)
		}
		defer res.Body.Close()
		answer, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
		if err == nil {
			err = json.Unmarshal(answer, made)
		}
		if err != nil {
			return doubtful(fmt.Errorf("read the answer: %w", err))
		}
		return nil
	})
}

var errUnclear = errors.New("no answer says whether it was made")

// doubtful marks the errors of a POST that leave open whether the thing was made.
func doubtful(err error) error {
	if p, answered := errors.AsType[*problem](err); answered && (p.Status < 500 || p.putsOff()) {
		return err
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return err
	}
	return fmt.Errorf("%w: %w", errUnclear, err)
}

// list makes a call that answers a complete list, and streams it item by item.
func list[T any](ctx context.Context, c *client, get call, each func(T)) error {
	return c.patiently(ctx, func() error {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		alarm := time.AfterFunc(c.silence, func() { cancel(fmt.Errorf("nothing came for %s", c.silence)) })
		defer alarm.Stop()

		err := func() error {
			res, err := successOf(get(ctx))
			if err != nil {
				return err
			}
			defer res.Body.Close()
			return decodeArray(&moving{res.Body, alarm, c.silence}, each)
		}()
		if err != nil && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return err
	})
}

// decodeArray fails unless the array is whole.
func decodeArray[T any](r io.Reader, each func(T)) error {
	decoder := json.NewDecoder(r)
	if start, err := decoder.Token(); err != nil || start != json.Delim('[') {
		return errors.Join(errors.New("the answer is not an array"), err)
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

// moving puts off the alarm as long as something comes.
type moving struct {
	io.Reader
	alarm   *time.Timer
	silence time.Duration
}

func (m *moving) Read(p []byte) (int, error) {
	n, err := m.Reader.Read(p)
	if n > 0 {
		m.alarm.Reset(m.silence)
	}
	return n, err
}

// successOf makes an answer other than a success a *problem.
func successOf(res *http.Response, err error) (*http.Response, error) {
	if err != nil {
		return nil, err
	}
	if res.StatusCode >= 200 && res.StatusCode < 300 {
		return res, nil
	}
	defer res.Body.Close()
	return nil, problemOf(res)
}

// patiently repeats what the API puts off, after the time that it names. A put-off request has done nothing.
func (c *client) patiently(ctx context.Context, attempt func() error) error {
	for n := 0; ctx.Err() == nil; n++ {
		err := attempt()
		p, answered := errors.AsType[*problem](err)
		if !answered || !p.putsOff() {
			return err
		}
		if n == c.waits {
			return fmt.Errorf("put off %d times: %w", n+1, err)
		}
		if p.retryAfter > c.maxWait {
			return fmt.Errorf("put off for %s, which is too long to wait: %w", p.retryAfter, err)
		}
		select {
		case <-time.After(p.retryAfter):
		case <-ctx.Done():
		}
	}
	return context.Cause(ctx)
}

// problem is the API's answer to a request that it did not fulfil.
type problem struct {
	ironplane.Problem
	retryAfter time.Duration
}

// problemOf reads an answer whose body may be anything: a proxy's page is no reason to lose the status.
func problemOf(res *http.Response) *problem {
	var p problem
	body, err := io.ReadAll(io.LimitReader(res.Body, maxProblem))
	if err != nil || json.Unmarshal(body, &p.Problem) != nil {
		p = problem{}
	}
	p.Status = int64(res.StatusCode)
	p.retryAfter = retryAfter(res.Header.Get("Retry-After"), time.Now())
	return &p
}

func (p *problem) putsOff() bool {
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

// reason is what the API says is wrong, in its words.
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

// code is the first wrong member's, or the title: one of few.
func (p *problem) code() string {
	if members := value(p.Errors); len(members) > 0 {
		return members[0].Code
	}
	return p.Title
}

// value is what an optional member holds, or its type's zero.
func value[T any](member *T) (zero T) {
	if member == nil {
		return zero
	}
	return *member
}

// retryAfter reads the header: seconds, a date, or neither.
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
