package rest

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-kit/kit/endpoint"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
)

// Raw is an operation that reads and writes bodies itself: an upload, a download with ranges, the exchange of a link. Req
// has its parameters, and no Body.
type Raw[Req any] struct {
	Method    string
	Path      string
	Guard     guard.Guard
	Name      string
	Summary   string
	Doc       string
	Extension bool
	Effect    Effect   // of one that changes something
	Takes     []string // the media types of the bodies that it reads; none: it reads no body
	MaxBody   int64    // in bytes
	Gives     []string // the media types of its answers
	Status    int      // of its answers; 0: 200
	Refuses   []int    // with which it refuses besides
	Ranges    bool     // it answers a part of what it gives, too, as http.ServeContent does
	// Do answers the request. What it fails with before it has written anything is answered as any error is; after that
	// it costs the caller the connection.
	Do func(context.Context, *RawCall, Req) error
}

// RawCall is a request as a Raw gets it, and the way to answer it.
type RawCall struct {
	Request *http.Request // its body is bounded in size, and by how long the caller may take to send the next piece
	Writer  http.ResponseWriter
	db      *pg.DB
}

// InTx changes something, as one unit of work with its records: see pg.DB.InTx.
func (c *RawCall) InTx(ctx context.Context, change func(*pg.Tx) error) error {
	return c.db.InTx(ctx, change)
}

// rawBodies are the bodies of a Raw, for the API document.
type rawBodies struct {
	takes, gives []string
	ranges       bool
	status       int
	refuses      []int
}

// rawAnswered stands for the answer of a Raw, which is written already.
type rawAnswered struct{}

func (r Raw[Req]) operation() *operation {
	o := newOperation[Req, rawAnswered](
		Operation{Method: r.Method, Path: r.Path, Guard: r.Guard, Name: r.Name, Summary: r.Summary, Doc: r.Doc, Extension: r.Extension},
	)
	o.raw, o.Takes = &rawBodies{r.Takes, r.Gives, r.Ranges, cmp.Or(r.Status, http.StatusOK), r.Refuses}, r.Takes
	if o.changes = r.Effect != (Effect{}); o.changes {
		o.Effect = r.Effect
		o.checkEffect()
	}
	parameters := o.decode
	o.decode = func(request *http.Request) (any, error) {
		read, err := parameters(request)
		if err != nil {
			return nil, err
		}
		if len(r.Takes) > 0 && !slices.Contains(r.Takes, mediaType(request)) {
			return nil, problem.New(problem.UnsupportedMedia, "The body must be %s.", strings.Join(r.Takes, " or "))
		}
		if len(r.Takes) > 0 && request.ContentLength > r.MaxBody {
			return nil, r.tooLarge()
		}
		return read, nil
	}
	o.endpoint = func(db *pg.DB) endpoint.Endpoint {
		return func(ctx context.Context, request any) (any, error) {
			s := serving(ctx)
			answer := &rawWriter{deadlined: deadlined{s.writer, s.connection}, served: s}
			sent := s.request.WithContext(ctx)
			sent.Body = &rawBody{ReadCloser: http.MaxBytesReader(nil, s.request.Body, r.MaxBody), served: s, answer: answer}
			err := r.Do(ctx, &RawCall{sent, answer, db}, request.(Req))
			if _, large := errors.AsType[*http.MaxBytesError](err); large {
				err = r.tooLarge()
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
	return o
}

func (r Raw[Req]) tooLarge() error {
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
