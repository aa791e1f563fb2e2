package proxy

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/runtime/peers"
	"github.com/ironplane/ironplane/pkg/runtime/tracing"
)

// exchange is one request and its response.
type exchange struct {
	*connection
	*Upstream
	w      http.ResponseWriter
	r      *http.Request
	caller *http.ResponseController

	requestBody
	keepConnection bool // the response leaves the connection usable
}

// maxInterimResponses bounds the interim responses (100 Continue and the like) before the final one.
const maxInterimResponses = 8

var errUndelimited = errors.New("the response has neither a length nor chunks")

// roundTrip sends the request and reads the head of the response.
func (x *exchange) roundTrip() (*http.Response, error) {
	if err := x.tcp.SetDeadline(time.Now().Add(x.progressTimeout)); err != nil {
		return nil, err
	}
	expectsContinue := x.r.ContentLength != 0 && x.r.Header["Expect"] != nil // net/http accepts no Expect header but 100-continue
	x.writeHead(expectsContinue)
	if err := x.writer.Flush(); err != nil {
		return nil, fmt.Errorf("send the request: %w", err)
	}
	if x.r.ContentLength != 0 && !expectsContinue {
		x.sendBody()
	}
	for range maxInterimResponses {
		x.readLimit = maxHeadBytes
		response, err := http.ReadResponse(x.reader, x.r)
		if err != nil {
			return nil, fmt.Errorf("read the response: %w", err)
		}
		switch {
		case response.StatusCode == http.StatusContinue && expectsContinue:
			expectsContinue = false
			x.sendBody()
		case response.StatusCode == http.StatusSwitchingProtocols:
			return nil, errors.New("the service switches to another protocol")
		case response.StatusCode < http.StatusOK:
		case response.ContentLength < 0 && len(response.TransferEncoding) == 0 && x.r.Method != http.MethodHead:
			if response.StatusCode/100 == 4 {
				return nil, problem.New(problem.BadRequest, "The request cannot be forwarded to the service.").Because(errUndelimited)
			}
			return nil, errUndelimited // the end of such a response looks the same whether it is complete or not
		default:
			x.readLimit = math.MaxInt64
			return response, nil
		}
	}
	return nil, errors.New("the service sends too many interim responses")
}

// writeHead writes the head of the request. The writer keeps the first error, which Flush returns.
func (x *exchange) writeHead(expectsContinue bool) {
	to, r := x.writer, x.r
	_, _ = to.WriteString(r.Method)
	_ = to.WriteByte(' ')
	_, _ = to.WriteString(r.URL.EscapedPath())
	if r.URL.RawQuery != "" || r.URL.ForceQuery {
		_ = to.WriteByte('?')
		_, _ = to.WriteString(r.URL.RawQuery)
	}
	_, _ = to.WriteString(" HTTP/1.1\r\nHost: ")
	_, _ = to.WriteString(x.service)
	if call := principal.FromContext(r.Context()); call.Peer == principal.Gateway { // services believe it from gateways only
		_, _ = to.WriteString("\r\n" + peers.CallHeader + ": ")
		_, _ = to.Write(peers.AppendCall(to.AvailableBuffer(), call))
	}
	switch {
	case r.ContentLength > 0:
		_, _ = to.WriteString("\r\nContent-Length: ")
		_, _ = to.Write(strconv.AppendInt(to.AvailableBuffer(), r.ContentLength, 10))
	case r.ContentLength < 0:
		_, _ = to.WriteString("\r\nTransfer-Encoding: chunked")
	case r.Method == http.MethodPost || r.Method == http.MethodPut || r.Method == http.MethodPatch:
		_, _ = to.WriteString("\r\nContent-Length: 0")
	}
	if expectsContinue {
		_, _ = to.WriteString("\r\nExpect: 100-continue")
	}
	_, _ = to.WriteString("\r\n")
	write := func(name, value string) {
		_, _ = to.WriteString(name)
		_, _ = to.WriteString(": ")
		_, _ = to.WriteString(value)
		_, _ = to.WriteString("\r\n")
	}
	for _, name := range ForwardedHeaders {
		for _, value := range r.Header[name] {
			write(name, value)
		}
	}
	tracing.Inject(r.Context(), write)
	_, _ = to.WriteString("\r\n")
}

// writeResponse passes the response on to the caller. An error means that the response is incomplete.
func (x *exchange) writeResponse(response *http.Response) error {
	copyResponseHeaders(response.Header, x.w.Header())
	x.closeUnlessRead()
	if response.ContentLength <= 0 { // else the first piece of the body, which sets a deadline, goes with the head
		_ = x.caller.SetWriteDeadline(time.Now().Add(x.progressTimeout)) // where there is a connection
	}
	x.w.WriteHeader(response.StatusCode)
	if response.Body != http.NoBody {
		if err := x.writeResponseBody(response.Body, response.ContentLength); err != nil {
			return err
		}
	}
	if response.Close { // the instance is about to end, and would abort requests on its idle connections
		x.instance.closeIdle()
	}
	x.keepConnection = !response.Close && x.reader.Buffered() == 0
	return x.flushUnlessRead()
}

// writeResponseBody passes each piece on before it waits for the next. length is negative if it is not known.
func (x *exchange) writeResponseBody(from io.Reader, length int64) error {
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	for {
		if x.reader.Buffered() == 0 {
			if err := x.tcp.SetReadDeadline(time.Now().Add(x.progressTimeout)); err != nil {
				return err
			}
		}
		n, err := from.Read(*buffer)
		if n > 0 {
			if err := x.writeResponsePiece((*buffer)[:n], length); err != nil {
				return fmt.Errorf("pass on the response: %w", err)
			}
			length -= int64(n)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the response of %s: %w", x.service, err)
		}
	}
}

// writeResponsePiece writes a part of the response to the caller, which must accept it within progressTimeout. remaining is how
// much of the response is left with this piece.
func (x *exchange) writeResponsePiece(piece []byte, remaining int64) error {
	_ = x.caller.SetWriteDeadline(time.Now().Add(x.progressTimeout))
	if _, err := x.w.Write(piece); err != nil {
		return err
	}
	if int64(len(piece)) == remaining { // net/http sends the end by itself
		return nil
	}
	return x.flush()
}

func (x *exchange) flush() error {
	if err := x.caller.Flush(); !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil // the gateway's own question has no connection to flush
}

const bufferSize = 32 << 10

var buffers = sync.Pool{New: func() any {
	buffer := make([]byte, bufferSize)
	return &buffer
}}
