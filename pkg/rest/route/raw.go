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

// rawAnswered stands for the answer of a Raw, which is written already.
type rawAnswered struct{}

// Handle has do answer what is sent, of which it reads and writes the bodies. What it fails with before it has written
// anything is answered as any error is; after that it costs the caller the connection.
func (r *Route) Handle(raw Raw, do func(ctx context.Context, db *pg.DB, w http.ResponseWriter, sent *http.Request, request any) error) {
	r.Raw, r.Takes = &raw, raw.Takes
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
			s := serving(ctx)
			answer := &rawWriter{deadlined: deadlined{s.writer, s.connection}, served: s}
			sent := s.request.WithContext(ctx)
			sent.Body = &rawBody{ReadCloser: http.MaxBytesReader(nil, s.request.Body, raw.MaxBody), served: s, answer: answer}
			err := do(ctx, db, answer, sent, request)
			if _, large := errors.AsType[*http.MaxBytesError](err); large {
				err = raw.tooLarge()
			}
			if err != nil && answer.begun {
				panic(http.ErrAbortHandler)
			}
			if answer.outside {
				err = problem.New(problem.NoSuchRange, "There is nothing in the range that Range names.")
			}
			return rawAnswered{}, err
		}
	}
}

// accept refuses a body of another type, and one that says that it is too large.
func (r *Raw) accept(sent *http.Request) error {
	switch {
	case len(r.Takes) == 0:
		return nil
	case !slices.Contains(r.Takes, MediaType(sent)):
		return problem.New(problem.UnsupportedMedia, "The body must be %s.", strings.Join(r.Takes, " or "))
	case sent.ContentLength > r.MaxBody:
		return r.tooLarge()
	default:
		return nil
	}
}

func (r *Raw) tooLarge() error {
	return problem.New(problem.TooLarge, "The body is larger than %d bytes.", r.MaxBody)
}

// rawBody gives up on a caller who sends nothing for a while. As long as he sends, the answer may wait.
type rawBody struct {
	io.ReadCloser
	served *served
	answer *rawWriter
}

func (b *rawBody) Read(p []byte) (int, error) {
	_ = b.served.connection.SetReadDeadline(time.Now().Add(progress)) // where there is a connection
	n, err := b.ReadCloser.Read(p)
	if !b.answer.begun {
		b.served.late.Reset(answerTime)
	}
	if err == io.EOF {
		_ = b.served.connection.SetReadDeadline(time.Time{})
	}
	return n, err
}

// rawWriter knows whether an answer has begun, which may then take as long as it moves.
type rawWriter struct {
	deadlined
	served  *served
	begun   bool
	outside bool // of what there is lies the range that was asked for, which is answered as any error is
}

func (w *rawWriter) WriteHeader(status int) {
	if w.outside = status == http.StatusRequestedRangeNotSatisfiable; w.outside {
		return
	}
	w.begin()
	w.deadlined.WriteHeader(status)
}

func (w *rawWriter) Write(p []byte) (int, error) {
	if w.outside {
		return len(p), nil
	}
	w.begin()
	return w.deadlined.Write(p)
}

func (w *rawWriter) begin() {
	w.begun = true
	w.served.late.Stop()
}
