package main

import (
	"bytes"
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

	"github.com/ironplane/ironplane/pkg/secret"
)

const (
	maxAnswer  = 1 << 20
	maxProblem = 64 << 10
)

// client speaks the API's protocol: keys, put-offs, deadlines, problems. It knows no resource.
type client struct {
	url     *url.URL
	key     secret.String
	http    *http.Client
	silence time.Duration // how long the API may say nothing before it counts as gone
	maxWait time.Duration // the longest time to be put off for
	waits   int           // how often a request may be put off
}

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
	return &client{
		url: u, key: key, silence: 40 * time.Second, maxWait: time.Minute, waits: 10,
		http: &http.Client{
			Transport: transport,
			// A redirect would turn a POST into a GET, and could carry the key elsewhere.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// create posts body and decodes the answer into made. The end of ctx ends waiting, not a request that was sent: only
// its answer tells whether the thing was made.
//
// An error is a *problem, or errUnclear where the thing may or may not have been made.
func (c *client) create(ctx context.Context, path, idempotencyKey string, body, made any) error {
	encoded, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode the body for %s: %w", path, err)
	}
	return c.patiently(ctx, func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.silence)
		defer cancel()
		res, err := c.send(ctx, http.MethodPost, path, encoded, idempotencyKey)
		if err != nil {
			return doubtful(err)
		}
		defer res.Body.Close()
		answer, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
		if err == nil {
			err = json.Unmarshal(answer, made)
		}
		if err != nil {
			return doubtful(fmt.Errorf("read the answer of POST %s: %w", path, err))
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

// list streams a complete list, item by item.
func list[T any](ctx context.Context, c *client, path string, each func(T)) error {
	return c.patiently(ctx, func() error {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		alarm := time.AfterFunc(c.silence, func() { cancel(fmt.Errorf("GET %s: nothing came for %s", path, c.silence)) })
		defer alarm.Stop()

		err := func() error {
			res, err := c.send(ctx, http.MethodGet, path, nil, "")
			if err != nil {
				return err
			}
			defer res.Body.Close()
			return decodeArray(&moving{res.Body, alarm, c.silence}, each)
		}()
		if err != nil && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			return fmt.Errorf("list %s: %w", path, err)
		}
		return nil
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

// send sends one request. An answer other than a success is a *problem.
func (c *client) send(ctx context.Context, method, path string, body []byte, idempotencyKey string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.url.JoinPath(path).String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+c.key.Reveal())
	req.Header.Set("Accept", "application/json")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Idempotency-Key", idempotencyKey)
	}
	res, err := c.http.Do(req)
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
	Status    int    `json:"-"`
	Title     string `json:"title"`
	Detail    string `json:"detail"`
	RequestID string `json:"request_id"`
	Errors    []struct {
		Pointer string `json:"pointer"`
		Code    string `json:"code"`
		Message string `json:"message"`
	} `json:"errors"`
	retryAfter time.Duration
}

// problemOf reads an answer whose body may be anything: a proxy's page is no reason to lose the status.
func problemOf(res *http.Response) *problem {
	var p problem
	body, err := io.ReadAll(io.LimitReader(res.Body, maxProblem))
	if err != nil || json.Unmarshal(body, &p) != nil {
		p = problem{}
	}
	p.Status = res.StatusCode
	p.retryAfter = retryAfter(res.Header.Get("Retry-After"), time.Now())
	return &p
}

func (p *problem) putsOff() bool {
	return p.Status == http.StatusTooManyRequests || p.Status == http.StatusServiceUnavailable
}

func (p *problem) Error() string {
	text := fmt.Sprintf("%d %s", p.Status, http.StatusText(p.Status))
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
	if len(p.Errors) == 0 {
		return p.Detail
	}
	reasons := make([]string, len(p.Errors))
	for i, e := range p.Errors {
		reasons[i] = e.Pointer + " " + e.Message
	}
	return strings.Join(reasons, "; ")
}

// code is the first field error's, or the title: one of few.
func (p *problem) code() string {
	if len(p.Errors) > 0 {
		return p.Errors[0].Code
	}
	return p.Title
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
