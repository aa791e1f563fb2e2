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

// callers read port speeds over HTTP. Each has one connection and asks again once it has its answer, so while a server
// is slow nobody asks, and the p99 shows less waiting than callers who do not wait for each other would see.
type callers struct {
	address, key      string
	connections, rows int
}

// answerTime is how long the last answers of a round may take.
const answerTime = 10 * time.Second

func (c callers) read(ctx context.Context, duration time.Duration) (round, error) {
	all := make([]*caller, c.connections)
	for i := range all {
		conn, err := (&net.Dialer{Timeout: answerTime}).DialContext(ctx, "tcp", c.address)
		if err != nil {
			return round{}, err
		}
		defer conn.Close()
		all[i] = newCaller(conn, c.key, c.rows)
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
	conn    net.Conn
	answers *answerReader
	rows    int
	request []byte
	head    int    // how much of the request precedes the id
	tail    string // what follows the id
	latency *hdrhistogram.Histogram
}

func newCaller(conn net.Conn, key string, rows int) *caller {
	head := "GET /port-speed/"
	return &caller{
		conn: conn, answers: newAnswerReader(conn), rows: rows, latency: newLatency(),
		request: []byte(head), head: len(head),
		tail: " HTTP/1.1\r\nHost: " + conn.RemoteAddr().String() + "\r\nAccept: application/json\r\nAuthorization: Bearer " + key + "\r\n\r\n",
	}
}

// readUntil reads one port speed after the other. Any answer but the right one ends it.
func (c *caller) readUntil(ctx context.Context, end time.Time) error {
	if err := c.conn.SetDeadline(end.Add(answerTime)); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = c.conn.SetDeadline(time.Now()) })()
	for now := time.Now(); now.Before(end); {
		id := 1 + rand.Int64N(int64(c.rows))
		if err := c.readOne(id); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return fmt.Errorf("read port speed %d: %w", id, err)
		}
		asked := now
		now = time.Now()
		if err := c.latency.RecordValue(now.Sub(asked).Microseconds()); err != nil {
			return err
		}
	}
	return nil
}

func (c *caller) readOne(id int64) error {
	c.request = strconv.AppendInt(c.request[:c.head], id, 10)
	c.request = append(c.request, c.tail...)
	if _, err := c.conn.Write(c.request); err != nil {
		return err
	}
	body, err := c.answers.next()
	if err != nil {
		return err
	}
	return checkPortSpeed(body, id)
}
