package route

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-kit/kit/endpoint"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
)

// rawResponse stands for the response of a Raw, which has been written already.
type rawResponse struct{}

// Handle makes do serve the requests, and read and write the bodies itself. An error before the first written byte becomes an
// error response. A later one aborts the connection.
func (r *Route) Handle(raw Raw, do func(ctx context.Context, db *pg.DB, w http.ResponseWriter, sent *http.Request, request any) error) {
	r.Raw, r.Accepts = &raw, raw.Accepts
	parameters := r.Decode
	r.Decode = func(sent *http.Request) (any, error) {
		read, err := parameters(sent)
		if err != nil {
			return nil, err
		}
		return read, raw.accept(sent)
	}
	r.Endpoint = func(db *pg.DB) endpoint.Endpoint {
		return func(ctx context.Context, request any) (any, error) {
			s := exchangeFrom(ctx)
			answer := &rawWriter{deadlineWriter: deadlineWriter{s.writer, s.connection}, exchange: s}
			sent := s.request.WithContext(ctx)
			sent.Body = &rawBody{ReadCloser: http.MaxBytesReader(nil, s.request.Body, raw.MaxBody), exchange: s, answer: answer}
			err := do(ctx, db, answer, sent, request)
			if _, large := errors.AsType[*http.MaxBytesError](err); large {
				err = raw.tooLarge()
			}
			if err != nil && answer.begun {
				panic(http.ErrAbortHandler)
			}
			if answer.outside {
				err = problem.New(problem.NoSuchRange, "The requested range lies outside of the content.")
			}
			return rawResponse{}, err
		}
	}
}

// accept refuses a body of another type, and one whose Content-Length is too large.
func (r *Raw) accept(sent *http.Request) error {
	switch {
	case len(r.Accepts) == 0:
		return nil
	case !slices.Contains(r.Accepts, MediaType(sent)):
		return problem.New(problem.UnsupportedMedia, "The body must be %s.", strings.Join(r.Accepts, " or "))
	case sent.ContentLength > r.MaxBody:
		return r.tooLarge()
	default:
		return nil
	}
}

func (r *Raw) tooLarge() error {
	return problem.New(problem.TooLarge, "The body is larger than %d bytes.", r.MaxBody)
}

// rawBody gives up on a caller that sends nothing for progressTimeout. While the caller sends, the response may wait.
type rawBody struct {
	io.ReadCloser
	exchange *exchange
	answer   *rawWriter
}

func (b *rawBody) Read(p []byte) (int, error) {
	_ = b.exchange.connection.SetReadDeadline(time.Now().Add(progressTimeout)) // unsupported by test recorders
	n, err := b.ReadCloser.Read(p)
	if !b.answer.begun {
		b.exchange.timer.Reset(answerTimeout)
	}
	if err == io.EOF {
		_ = b.exchange.connection.SetReadDeadline(time.Time{})
	}
	return n, err
}

// rawWriter knows whether a response has begun. From then on only its progress is limited.
type rawWriter struct {
	deadlineWriter
	exchange *exchange
	begun    bool
	outside  bool // the requested range lies outside of the content, which becomes an error response
}

func (w *rawWriter) WriteHeader(status int) {
	if w.outside = status == http.StatusRequestedRangeNotSatisfiable; w.outside {
		return
	}
	w.begin()
	w.deadlineWriter.WriteHeader(status)
}

func (w *rawWriter) Write(p []byte) (int, error) {
	if w.outside {
		return len(p), nil
	}
	w.begin()
	return w.deadlineWriter.Write(p)
}

// FlushError passes on what was written so far. It serves http.ResponseController.
func (w *rawWriter) FlushError() error { return w.connection.Flush() }

func (w *rawWriter) begin() {
	w.begun = true
	w.exchange.timer.Stop()
}
