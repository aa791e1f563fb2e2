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

// body is how far an exchange is with the body of its request, which goes its way beside the answer.
type body struct {
	sent   chan struct{}             // closed when no more of it is sent; nil before that began, and where there is no body
	whole  bool                      // then: all of it was sent
	wrong  chan error                // what the caller did wrong, from before the connection is cut for it
	read   atomic.Bool               // the caller has sent all of it
	ending atomic.Pointer[time.Time] // when nobody waits for it any more
}

const (
	// linger is how long a caller who still sends may go on once the answer is through, and maxLinger how much, in
	// bytes: were the connection closed on what it sends, it might not get to read the answer.
	linger    = 500 * time.Millisecond
	maxLinger = 256 << 10
)

// sendBody begins to send the body. endBody waits for its end. That the caller sends in time is what the reader of the
// body sees to.
func (x *exchange) sendBody() {
	x.sent, x.wrong = make(chan struct{}), make(chan error, 1)
	_ = x.caller.EnableFullDuplex() // only a test's recorder does not know it
	go func() {
		defer close(x.sent)
		err := x.copyBody()
		x.whole = err == nil
		if err != nil {
			x.lingerOnBody()
		}
	}()
}

func (x *exchange) copyBody() error {
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	for total := int64(0); ; {
		if x.overdue() {
			return errAnswered
		}
		n, err := x.r.Body.Read(*buffer)
		total += int64(n)
		end := err == io.EOF
		switch {
		case total > x.maxBody:
			return x.blame(x.tooLarge())
		case end:
			x.read.Store(true)
		case err != nil:
			return x.blame(problem.New(problem.BadRequest, "The body could not be read to its end.").Because(err))
		}
		if err := x.writePiece((*buffer)[:n], end); err != nil {
			return fmt.Errorf("send the body: %w", err)
		}
		if end {
			return nil
		}
	}
}

// lingerOnBody reads what the service does not want to hear.
func (x *exchange) lingerOnBody() {
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	for total := 0; total < maxLinger && !x.read.Load() && !x.overdue(); {
		n, err := x.r.Body.Read(*buffer)
		total += n
		if err != nil {
			x.read.Store(err == io.EOF)
			return
		}
	}
}

var errAnswered = errors.New("it was answered, and is still being sent")

// overdue tells whether the caller has gone on for long enough after the answer.
func (x *exchange) overdue() bool {
	ending := x.ending.Load()
	return ending != nil && time.Since(*ending) > linger
}

// blame notes what the caller did wrong and cuts the service off: the body must not end as if it were whole.
func (x *exchange) blame(err error) error {
	x.wrong <- err
	x.cut()
	return err
}

// writePiece sends what was read. It is progress, so the answer may take its time anew.
func (x *exchange) writePiece(piece []byte, end bool) error {
	if err := x.tcp.SetDeadline(time.Now().Add(x.progress)); err != nil {
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
	if x.r.ContentLength != 0 && !x.read.Load() {
		x.w.Header().Set("Connection", "close")
	}
}

// flushUnlessRead lets the caller have the answer who still sends, before what it sends is cut off.
func (x *exchange) flushUnlessRead() error {
	if x.r.ContentLength != 0 && !x.read.Load() {
		return x.flush()
	}
	return nil
}

// endBody waits until no more of the body is sent, and tells whether all of it was. It may be called again.
func (x *exchange) endBody() bool {
	if x.r.ContentLength == 0 {
		return true
	}
	if x.sent == nil {
		return false
	}
	now := time.Now()
	x.ending.Store(&now)
	_ = x.tcp.SetWriteDeadline(now.Add(linger))
	for {
		select {
		case <-x.sent:
			return x.whole
		default:
		}
		if !x.read.Load() { // a read that begins just now sets a deadline of its own
			_ = x.caller.SetReadDeadline(time.Now().Add(linger))
		}
		select {
		case <-x.sent:
		case <-time.After(2 * linger):
		}
	}
}
