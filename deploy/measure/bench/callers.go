package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
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
}

// answerTime is how long the last answers of a round may take.
const answerTime = 10 * time.Second

func (c callers) read(ctx context.Context, duration time.Duration) (round, error) {
	all := make([]*caller, c.connections)
	for i := range all {
		conn, err := (&net.Dialer{Timeout: answerTime}).DialContext(ctx, "tcp", c.to.Address)
		if err != nil {
			return round{}, err
		}
		defer conn.Close()
		all[i] = newCaller(conn, c.to.Key, c.question)
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

// caller is one connection. net/http's client would take more of the machine than the servers do.
type caller struct {
	conn          net.Conn
	answers       *answerReader
	question      question
	request, body []byte
	headers       string
	latency       *hdrhistogram.Histogram
}

func newCaller(conn net.Conn, key string, q question) *caller {
	headers := " HTTP/1.1\r\nHost: " + conn.RemoteAddr().String() + "\r\nAccept: application/json\r\nAuthorization: Bearer " + key + "\r\n"
	if q.body != nil {
		headers += "Content-Type: application/json\r\n"
	}
	return &caller{conn: conn, answers: newAnswerReader(conn), question: q, headers: headers, latency: newLatency()}
}

// readUntil asks one question after the other. Any answer but the right one ends it.
func (c *caller) readUntil(ctx context.Context, end time.Time) error {
	if err := c.conn.SetDeadline(end.Add(answerTime)); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = c.conn.SetDeadline(time.Now()) })()
	for now := time.Now(); now.Before(end); {
		n := 1 + rand.Int64N(int64(c.question.most))
		if err := c.ask(n); err != nil {
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

func (c *caller) ask(n int64) error {
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
