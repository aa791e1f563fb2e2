package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sync/errgroup"
)

// operation is the request that callers send, with a random number each time.
type operation struct {
	line      func(request []byte, n int64) []byte // method and path
	body      func(request []byte, n int64) []byte // nil: no body
	check     func(body []byte, n int64) error     // returns an error for a wrong response
	maxNumber int                                  // n is between 1 and this
}

// newReadOperation returns an operation that reads one of the port speeds.
func newReadOperation(rows int) operation {
	return operation{
		line: func(request []byte, id int64) []byte {
			return strconv.AppendInt(append(request, "GET /port-speed/"...), id, 10)
		},
		check:     checkPortSpeed,
		maxNumber: rows,
	}
}

// callers send requests over HTTP. Each has one connection, and sends the next request after the response. While a server is
// slow it gets fewer requests, so the p99 is lower than with callers that do not wait.
type callers struct {
	to          endpoint
	connections int
	operation   operation
	by          protocol
}

// protocol is the protocol of callers.
type protocol int

const (
	plainHTTP protocol = iota
	overTLS            // HTTP/1.1
	overHTTP2          // over TLS, too
)

// responseTimeout is the limit for the last responses of a round.
const responseTimeout = 10 * time.Second

// read lets all callers send requests for a duration, and returns their common result.
func (c callers) read(ctx context.Context, duration time.Duration) (round, error) {
	all := make([]*caller, c.connections)
	for i := range all {
		var err error
		if all[i], err = c.connect(ctx); err != nil {
			return round{}, err
		}
		defer all[i].close()
	}
	group, ctx := errgroup.WithContext(ctx)
	began := time.Now()
	for _, caller := range all {
		group.Go(func() error { return caller.readUntil(ctx, began.Add(duration)) })
	}
	if err := group.Wait(); err != nil {
		return round{}, err
	}
	elapsed := time.Since(began)
	latency := newLatency()
	for _, caller := range all {
		latency.Merge(caller.latency)
	}
	reads := latency.TotalCount()
	return round{reads: reads, rate: float64(reads) / elapsed.Seconds(), latency: latency}, nil
}

// connect opens the connection of a caller.
func (c callers) connect(ctx context.Context) (*caller, error) {
	if c.by == overHTTP2 {
		return newHTTP2Caller(c.to, c.operation), nil
	}
	dialer := &net.Dialer{Timeout: responseTimeout}
	var conn net.Conn
	var err error
	if c.by == overTLS {
		conn, err = (&tls.Dialer{NetDialer: dialer, Config: anyCertificate.Clone()}).DialContext(ctx, "tcp", c.to.TLS)
	} else {
		conn, err = dialer.DialContext(ctx, "tcp", c.to.Address)
	}
	if err != nil {
		return nil, err
	}
	return newCaller(conn, c.to.Key, c.operation), nil
}

// anyCertificate accepts every certificate, since only requests after the handshake are measured.
var anyCertificate = &tls.Config{InsecureSkipVerify: true}

// caller is one connection.
type caller struct {
	operation operation
	latency   *hdrhistogram.Histogram
	ask       func(ctx context.Context, n int64) error
	until     func(time.Time) error // sets the connection's deadline
	close     func()
}

// readUntil sends one request after the other until a point in time. A wrong response is an error.
func (c *caller) readUntil(ctx context.Context, end time.Time) error {
	if err := c.until(end.Add(responseTimeout)); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = c.until(time.Now()) })()
	for now := time.Now(); now.Before(end); {
		n := 1 + rand.Int64N(int64(c.operation.maxNumber))
		if err := c.ask(ctx, n); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return fmt.Errorf("%s: %w", c.operation.line(nil, n), err)
		}
		asked := now
		now = time.Now()
		if err := c.latency.RecordValue(now.Sub(asked).Microseconds()); err != nil {
			return err
		}
	}
	return nil
}

// newCaller returns a caller for HTTP/1.1. It does not use net/http's client, which would use more CPU than the servers.
func newCaller(conn net.Conn, key string, q operation) *caller {
	c := &plainCaller{conn: conn, responses: newResponseReader(conn), operation: q}
	c.headers = " HTTP/1.1\r\nHost: " + conn.RemoteAddr().String() + "\r\nAccept: application/json\r\nAuthorization: Bearer " + key + "\r\n"
	if q.body != nil {
		c.headers += "Content-Type: application/json\r\n"
	}
	return &caller{operation: q, latency: newLatency(), ask: c.ask, until: conn.SetDeadline, close: func() { _ = conn.Close() }}
}

// plainCaller sends HTTP/1.1 requests over one connection. It reuses its buffers.
type plainCaller struct {
	conn          net.Conn
	responses     *responseReader
	operation     operation
	request, body []byte
	headers       string
}

func (c *plainCaller) ask(_ context.Context, n int64) error {
	c.request = append(c.operation.line(c.request[:0], n), c.headers...)
	if c.operation.body != nil {
		c.body = c.operation.body(c.body[:0], n)
		c.request = strconv.AppendInt(append(c.request, "Content-Length: "...), int64(len(c.body)), 10)
		c.request = append(c.request, "\r\n"...)
	}
	c.request = append(append(c.request, "\r\n"...), c.body...)
	if _, err := c.conn.Write(c.request); err != nil {
		return err
	}
	body, err := c.responses.next()
	if err != nil {
		return err
	}
	return c.operation.check(body, n)
}

// newHTTP2Caller returns a caller for HTTP/2 with a connection of its own. It uses net/http's client, whose CPU time is part of
// the result.
func newHTTP2Caller(to endpoint, q operation) *caller {
	transport := &http.Transport{TLSClientConfig: anyCertificate.Clone(), ForceAttemptHTTP2: true}
	ask := func(ctx context.Context, n int64) error {
		method, path, _ := strings.Cut(string(q.line(nil, n)), " ")
		ctx, cancel := context.WithTimeout(ctx, responseTimeout)
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, method, "https://"+to.TLS+path, http.NoBody)
		if err != nil {
			return err
		}
		r.Header.Set("Authorization", "Bearer "+to.Key)
		response, err := transport.RoundTrip(r)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		body, err := io.ReadAll(io.LimitReader(response.Body, maxBodyBytes))
		if err == nil && (response.StatusCode != http.StatusOK || response.ProtoMajor != 2) {
			err = fmt.Errorf("got a response over %s with the status %s", response.Proto, response.Status)
		}
		if err != nil {
			return err
		}
		return q.check(body, n)
	}
	return &caller{
		operation: q,
		latency:   newLatency(),
		ask:       ask,
		until:     func(time.Time) error { return nil },
		close:     transport.CloseIdleConnections,
	}
}
