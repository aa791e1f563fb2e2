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

// question is what callers ask, with a number that they draw each time.
type question struct {
	line  func(request []byte, n int64) []byte // method and path
	body  func(request []byte, n int64) []byte // nil: there is none
	right func(body []byte, n int64) error     // tells what is wrong with an answer
	most  int                                  // n is from 1 to this
}

// readPortSpeed reads one of so many port speeds.
func readPortSpeed(rows int) question {
	return question{
		line: func(request []byte, id int64) []byte {
			return strconv.AppendInt(append(request, "GET /port-speed/"...), id, 10)
		},
		right: checkPortSpeed,
		most:  rows,
	}
}

// callers ask over HTTP. Each has one connection and asks again once it has its answer, so while a server
// is slow nobody asks, and the p99 shows less waiting than callers who do not wait for each other would see.
type callers struct {
	to          ready
	connections int
	question    question
	by          protocol
}

// protocol is what callers speak.
type protocol int

const (
	plainHTTP protocol = iota
	overTLS            // HTTP/1.1
	overHTTP2          // by TLS, too
)

// answerTime is how long the last answers of a round may take.
const answerTime = 10 * time.Second

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
	took := time.Since(began)
	latency := newLatency()
	for _, caller := range all {
		latency.Merge(caller.latency)
	}
	reads := latency.TotalCount()
	return round{reads: reads, rate: float64(reads) / took.Seconds(), latency: latency}, nil
}

// connect makes a caller.
func (c callers) connect(ctx context.Context) (*caller, error) {
	if c.by == overHTTP2 {
		return newHTTP2Caller(c.to, c.question), nil
	}
	dialer := &net.Dialer{Timeout: answerTime}
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
	return newCaller(conn, c.to.Key, c.question), nil
}

// anyCertificate is believed: what is measured comes after the handshake.
var anyCertificate = &tls.Config{InsecureSkipVerify: true}

// caller is one connection.
type caller struct {
	question question
	latency  *hdrhistogram.Histogram
	ask      func(ctx context.Context, n int64) error
	until    func(time.Time) error // when the connection is given up
	close    func()
}

// readUntil asks one question after the other. Any answer but the right one ends it.
func (c *caller) readUntil(ctx context.Context, end time.Time) error {
	if err := c.until(end.Add(answerTime)); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = c.until(time.Now()) })()
	for now := time.Now(); now.Before(end); {
		n := 1 + rand.Int64N(int64(c.question.most))
		if err := c.ask(ctx, n); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return fmt.Errorf("%s: %w", c.question.line(nil, n), err)
		}
		asked := now
		now = time.Now()
		if err := c.latency.RecordValue(now.Sub(asked).Microseconds()); err != nil {
			return err
		}
	}
	return nil
}

// newCaller speaks HTTP/1.1. net/http's client would take more of the machine than the servers do.
func newCaller(conn net.Conn, key string, q question) *caller {
	c := &plainCaller{conn: conn, answers: newAnswerReader(conn), question: q}
	c.headers = " HTTP/1.1\r\nHost: " + conn.RemoteAddr().String() + "\r\nAccept: application/json\r\nAuthorization: Bearer " + key + "\r\n"
	if q.body != nil {
		c.headers += "Content-Type: application/json\r\n"
	}
	return &caller{question: q, latency: newLatency(), ask: c.ask, until: conn.SetDeadline, close: func() { _ = conn.Close() }}
}

type plainCaller struct {
	conn          net.Conn
	answers       *answerReader
	question      question
	request, body []byte
	headers       string
}

func (c *plainCaller) ask(_ context.Context, n int64) error {
	c.request = append(c.question.line(c.request[:0], n), c.headers...)
	if c.question.body != nil {
		c.body = c.question.body(c.body[:0], n)
		c.request = strconv.AppendInt(append(c.request, "Content-Length: "...), int64(len(c.body)), 10)
		c.request = append(c.request, "\r\n"...)
	}
	c.request = append(append(c.request, "\r\n"...), c.body...)
	if _, err := c.conn.Write(c.request); err != nil {
		return err
	}
	body, err := c.answers.next()
	if err != nil {
		return err
	}
	return c.question.right(body, n)
}

// newHTTP2Caller speaks HTTP/2 on a connection of its own, by net/http's client, which takes its part of what is measured.
func newHTTP2Caller(to ready, q question) *caller {
	transport := &http.Transport{TLSClientConfig: anyCertificate.Clone(), ForceAttemptHTTP2: true}
	ask := func(ctx context.Context, n int64) error {
		method, path, _ := strings.Cut(string(q.line(nil, n)), " ")
		ctx, cancel := context.WithTimeout(ctx, answerTime)
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
		body, err := io.ReadAll(io.LimitReader(response.Body, longestBody))
		if err == nil && (response.StatusCode != http.StatusOK || response.ProtoMajor != 2) {
			err = fmt.Errorf("the answer by %s is %s", response.Proto, response.Status)
		}
		if err != nil {
			return err
		}
		return q.right(body, n)
	}
	return &caller{
		question: q,
		latency:  newLatency(),
		ask:      ask,
		until:    func(time.Time) error { return nil },
		close:    transport.CloseIdleConnections,
	}
}
