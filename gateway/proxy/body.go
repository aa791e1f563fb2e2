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

// requestBody is the state of sending a request's body, which happens in parallel with the response.
type requestBody struct {
	sendDone   chan struct{}             // closed when sending has ended; nil before it began, and if there is no body
	isSent     bool                      // valid once sendDone is closed: all of the body was sent
	callerErr  chan error                // what the caller did wrong; sent before the connection is aborted for it
	isRead     atomic.Bool               // all of the body was received from the caller
	answeredAt atomic.Pointer[time.Time] // when the response ended, so that nobody waits for the body
}

const (
	// drainTimeout is how long a caller may go on sending its body after the response, and maxDrainBytes how much. If the
	// connection were closed at once, the caller might not get to read the response.
	drainTimeout  = 500 * time.Millisecond
	maxDrainBytes = 256 << 10
)

// sendBody starts sending the body. waitForBody waits for the end. The reader of the body makes sure that the caller sends in
// time.
func (x *exchange) sendBody() {
	x.sendDone, x.callerErr = make(chan struct{}), make(chan error, 1)
	_ = x.caller.EnableFullDuplex() // only a test's recorder returns an error
	go func() {
		defer close(x.sendDone)
		err := x.copyBody()
		x.isSent = err == nil
		if err != nil {
			x.drainBody()
		}
	}()
}

// copyBody sends the body until its end, an error, or a while after the response.
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
			return x.failCaller(problem.New(problem.BadRequest, "The body ended early or arrived too slowly. Send it again.").Because(err))
		}
		if err := x.writePiece((*buffer)[:n], end); err != nil {
			return fmt.Errorf("send the body: %w", err)
		}
		if end {
			return nil
		}
	}
}

// drainBody reads the part of the body that the service does not want.
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

var errAnswered = errors.New("the caller still sends the body after the response")

// isOverdue reports whether the caller has sent for too long after the response.
func (x *exchange) isOverdue() bool {
	answeredAt := x.answeredAt.Load()
	return answeredAt != nil && time.Since(*answeredAt) > drainTimeout
}

// failCaller notes the caller's mistake and aborts the connection to the service, which must not take the body for complete.
func (x *exchange) failCaller(err error) error {
	x.callerErr <- err
	x.abort()
	return err
}

// writePiece sends a piece of the body. Because it is progress, the deadline of the response starts again.
func (x *exchange) writePiece(piece []byte, end bool) error {
	if err := x.tcp.SetDeadline(time.Now().Add(x.progressTimeout)); err != nil {
		return err
	}
	chunked := x.r.ContentLength < 0
	if chunked && len(piece) > 0 {
		_, _ = x.writer.Write(strconv.AppendInt(x.writer.AvailableBuffer(), int64(len(piece)), 16))
		_, _ = x.writer.WriteString("\r\n")
	}
	_, _ = x.writer.Write(piece) // Flush returns the error
	if chunked && len(piece) > 0 {
		_, _ = x.writer.WriteString("\r\n")
	}
	if chunked && end {
		_, _ = x.writer.WriteString("0\r\n\r\n")
	}
	return x.writer.Flush()
}

// closeUnlessRead closes the caller's connection after the response if the body has not arrived completely. The rest of the body
// must not be taken for the next request.
func (x *exchange) closeUnlessRead() {
	if x.r.ContentLength != 0 && !x.isRead.Load() {
		x.w.Header().Set("Connection", "close")
	}
}

// flushUnlessRead flushes the response to a caller that still sends, before the connection is closed.
func (x *exchange) flushUnlessRead() error {
	if x.r.ContentLength != 0 && !x.isRead.Load() {
		return x.flush()
	}
	return nil
}

// waitForBody waits until sending has ended, and reports whether the whole body was sent. It can be called again.
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
		if !x.isRead.Load() { // a read that starts right now sets its own deadline, so this is repeated
			_ = x.caller.SetReadDeadline(time.Now().Add(drainTimeout))
		}
		select {
		case <-x.sendDone:
		case <-time.After(2 * drainTimeout):
		}
	}
}
