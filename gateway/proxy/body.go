package proxy

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/ironplane/ironplane/pkg/problem"
)

// requestBody is how far an exchange is with the body of its request, which goes its way beside the answer.
type requestBody struct {
	sendDone   chan struct{}             // closed when no more of it is sent; nil before that began, and where there is no body
	isSent     bool                      // then: all of it was sent
	callerErr  chan error                // what the caller did wrong, from before the connection is cut for it
	isRead     atomic.Bool               // the caller has sent all of it
	answeredAt atomic.Pointer[time.Time] // when nobody waits for it any more
}

const (
	// drainTimeout is how long a caller who still sends may go on once the answer is through, and maxDrainBytes how much, in
	// bytes: were the connection closed on what it sends, it might not get to read the answer.
	drainTimeout  = 500 * time.Millisecond
	maxDrainBytes = 256 << 10
)

// sendBody begins to send the body. waitForBody waits for its end. That the caller sends in time is what the reader of the
// body sees to.
func (x *exchange) sendBody() {
	x.sendDone, x.callerErr = make(chan struct{}), make(chan error, 1)
	_ = x.caller.EnableFullDuplex() // only a test's recorder does not know it
	go func() {
		defer close(x.sendDone)
		err := x.copyBody()
		x.isSent = err == nil
		if err != nil {
			x.drainBody()
		}
	}()
}

func (x *exchange) copyBody() error {
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	for total := int64(0); ; {
		if x.isOverdue() {
			return errAnswered
		}
		n, err := x.r.Body.Read(*buffer)
		total += int64(n)
		end := err == io.EOF
		switch {
		case total > x.maxBody:
			return x.failCaller(x.errTooLarge())
		case end:
			x.isRead.Store(true)
		case err != nil:
			return x.failCaller(problem.New(problem.BadRequest, "The body could not be read to its end.").Because(err))
		}
		if err := x.writePiece((*buffer)[:n], end); err != nil {
			return fmt.Errorf("send the body: %w", err)
		}
		if end {
			return nil
		}
	}
}

// drainBody reads what the service does not want to hear.
func (x *exchange) drainBody() {
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	for total := 0; total < maxDrainBytes && !x.isRead.Load() && !x.isOverdue(); {
		n, err := x.r.Body.Read(*buffer)
		total += n
		if err != nil {
			x.isRead.Store(err == io.EOF)
			return
		}
	}
}

var errAnswered = errors.New("it was answered, and is still being sent")

// isOverdue tells whether the caller has gone on for long enough after the answer.
func (x *exchange) isOverdue() bool {
	answeredAt := x.answeredAt.Load()
	return answeredAt != nil && time.Since(*answeredAt) > drainTimeout
}

// failCaller notes what the caller did wrong and cuts the service off: the body must not end as if it were whole.
func (x *exchange) failCaller(err error) error {
	x.callerErr <- err
	x.abort()
	return err
}

// writePiece sends what was read. It is progress, so the answer may take its time anew.
func (x *exchange) writePiece(piece []byte, end bool) error {
	if err := x.tcp.SetDeadline(time.Now().Add(x.progressTimeout)); err != nil {
		return err
	}
	chunked := x.r.ContentLength < 0
	if chunked && len(piece) > 0 {
		_, _ = x.writer.Write(strconv.AppendInt(x.writer.AvailableBuffer(), int64(len(piece)), 16))
		_, _ = x.writer.WriteString("\r\n")
	}
	_, _ = x.writer.Write(piece) // errors stick, and show in Flush
	if chunked && len(piece) > 0 {
		_, _ = x.writer.WriteString("\r\n")
	}
	if chunked && end {
		_, _ = x.writer.WriteString("0\r\n\r\n")
	}
	return x.writer.Flush()
}

// closeUnlessRead has the caller's connection closed after the answer where the body is still on its way: what is left
// of it must not be taken for the next request.
func (x *exchange) closeUnlessRead() {
	if x.r.ContentLength != 0 && !x.isRead.Load() {
		x.w.Header().Set("Connection", "close")
	}
}

// flushUnlessRead lets the caller have the answer who still sends, before what it sends is cut off.
func (x *exchange) flushUnlessRead() error {
	if x.r.ContentLength != 0 && !x.isRead.Load() {
		return x.flush()
	}
	return nil
}

// waitForBody waits until no more of the body is sent, and tells whether all of it was. It may be called again.
func (x *exchange) waitForBody() bool {
	if x.r.ContentLength == 0 {
		return true
	}
	if x.sendDone == nil {
		return false
	}
	now := time.Now()
	x.answeredAt.Store(&now)
	_ = x.tcp.SetWriteDeadline(now.Add(drainTimeout))
	for {
		select {
		case <-x.sendDone:
			return x.isSent
		default:
		}
		if !x.isRead.Load() { // a read that begins just now sets a deadline of its own
			_ = x.caller.SetReadDeadline(time.Now().Add(drainTimeout))
		}
		select {
		case <-x.sendDone:
		case <-time.After(2 * drainTimeout):
		}
	}
}
