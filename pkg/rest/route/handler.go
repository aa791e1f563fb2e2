package route

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/go-kit/kit/endpoint"
	kithttp "github.com/go-kit/kit/transport/http"
	"github.com/gorilla/mux"

	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/postgres/pgerror"
	"github.com/ironplane/ironplane/pkg/problem"
)

// MaxItems is the maximum number of items in a path.
const MaxItems = 100

// answerTimeout is the maximum time until a response begins.
const answerTimeout = 30 * time.Second

func serve(o *Route, db *pg.DB, log *slog.Logger) http.Handler {
	own := serveBodies(o, &o.Alternative, db, log)
	if o.CSV == nil {
		return own
	}
	csv := serveBodies(o, o.CSV, db, log)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if MediaType(r) == problem.MediaCSV {
			csv.ServeHTTP(w, r)
		} else {
			own.ServeHTTP(w, r)
		}
	})
}

// serveBodies serves an operation with one type of body. It uses go-kit's server.
func serveBodies(o *Route, as *Alternative, db *pg.DB, log *slog.Logger) http.Handler {
	access := permission.Write
	if o.Method == http.MethodGet {
		access = permission.Read
	}
	decode := func(ctx context.Context, r *http.Request) (any, error) {
		for _, id := range guardedIDs(o, r) {
			if err := o.Guard.Check(principal.FromContext(ctx), access, id); err != nil {
				return nil, err
			}
		}
		if err := checkCharset(r); err != nil {
			return nil, err
		}
		return as.Decode(r)
	}
	refuse := func(ctx context.Context, err error, w http.ResponseWriter) {
		if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
			err = problem.New(problem.Unavailable, "The request took longer than %s. Try again.", answerTimeout).Because(err)
		}
		r := exchangeFrom(ctx).request
		recordRefusal(ctx, db, log, o, r, err)
		problem.Write(w, r, log, err)
	}
	kit := kithttp.NewServer(explainErrors(as.Endpoint(db)), decode, write, kithttp.ServerErrorEncoder(refuse))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancelCause(r.Context())
		defer cancel(nil)
		late := time.AfterFunc(answerTimeout, func() { cancel(context.DeadlineExceeded) })
		defer late.Stop()
		e := &exchange{writer: w, connection: http.NewResponseController(w), timer: late}
		e.request = r.WithContext(context.WithValue(ctx, exchangeKey{}, e))
		defer func() {
			if p := recover(); p == http.ErrAbortHandler {
				panic(p)
			} else if p != nil {
				problem.Write(w, e.request, log, fmt.Errorf("%s %s: panic: %v\n%s", o.Method, o.Path, p, debug.Stack()))
				if o.List != nil || o.Raw != nil { // a part may have been sent
					panic(http.ErrAbortHandler)
				}
			}
		}()
		defer func() {
			if e.release != nil {
				e.release()
			}
		}()
		kit.ServeHTTP(w, e.request)
	})
}

// exchange is a request in progress. go-kit does not pass it to its decoder, endpoint and error encoder, so the context has it.
type exchange struct {
	request    *http.Request
	writer     http.ResponseWriter
	connection *http.ResponseController
	timer      *time.Timer // ends the request after answerTimeout; stopped once a list has begun
	body       []byte      // the body of the request
	dryRun     bool        // the change is rolled back
	release    func()      // ends what the request holds of the process; nil: nothing
}

type exchangeKey struct{}

func exchangeFrom(ctx context.Context) *exchange { return ctx.Value(exchangeKey{}).(*exchange) }

// explainErrors translates errors of the database into problems.
func explainErrors(next endpoint.Endpoint) endpoint.Endpoint {
	return func(ctx context.Context, request any) (any, error) {
		response, err := next(ctx, request)
		return response, pgerror.Explain(err)
	}
}

// guardedIDs returns the ids in the path's first parameter. An id is 0 if the parameter is missing or not a number.
func guardedIDs(o *Route, r *http.Request) []int64 {
	if len(o.Parameters) == 0 {
		return []int64{0}
	}
	named := strings.SplitN(mux.Vars(r)[o.Parameters[0]], ",", MaxItems+1)
	ids := make([]int64, len(named))
	for i, text := range named {
		ids[i], _ = strconv.ParseInt(text, 10, 64)
	}
	return ids
}

var contentJSON = []string{problem.MediaJSON}

func write(ctx context.Context, w http.ResponseWriter, response any) error {
	if found, ok := response.(*Items); ok {
		return writeItems(w, exchangeFrom(ctx), found)
	}
	answer, encoded := response.(*reply)
	if !encoded { // a Raw has written the response
		return nil
	}
	header := w.Header()
	if answer.etag != "" {
		header["Etag"] = []string{answer.etag}
	}
	if r := exchangeFrom(ctx).request; answer.contentTagged && r.Method == http.MethodGet {
		header.Set("Cache-Control", "private, no-cache")
		if matchesETag(r.Header.Values("If-None-Match"), answer.etag) {
			w.WriteHeader(http.StatusNotModified)
			return nil
		}
	}
	if answer.redirectURL != "" && problem.Prefers(exchangeFrom(ctx).request.Header.Get("Accept"), problem.MediaHTML) {
		header.Set("Location", answer.redirectURL)
		w.WriteHeader(http.StatusFound)
		return nil
	}
	header["Content-Type"] = contentJSON
	if _, err := w.Write(answer.body); err != nil {
		panic(http.ErrAbortHandler)
	}
	return nil
}

// rowWriter writes the items of a list in one format.
type rowWriter interface {
	write(item any) error
	end() error // writes the end of the list, without a flush
}

// writeItems streams a list. It returns an error only before the first byte. Later errors abort the connection, so that a
// truncated list does not look complete.
func writeItems(w http.ResponseWriter, e *exchange, found *Items) error {
	out := bufio.NewWriterSize(deadlineWriter{w, http.NewResponseController(w)}, 32<<10)
	var rows rowWriter = &jsonRows{out: out, between: '['}
	contentType := "application/json"
	if found.CSV != nil {
		rows, contentType = newCSVRows(out, found.CSV), problem.MediaCSV+"; charset=utf-8; header=present"
	}
	begun := false
	begin := func() {
		if !begun {
			maps.Copy(w.Header(), found.Header)
			w.Header().Set("Content-Type", contentType)
			e.timer.Stop()
			begun = true
		}
	}
	for item, err := range found.Rows {
		if err != nil && !begun {
			return pgerror.Explain(err)
		}
		begin()
		if e.request.Method == http.MethodHead {
			return nil
		}
		if err == nil {
			err = rows.write(item)
		}
		if err != nil {
			panic(http.ErrAbortHandler)
		}
	}
	begin()
	if rows.end() != nil || out.Flush() != nil {
		panic(http.ErrAbortHandler)
	}
	return nil
}

// jsonRows writes an array.
type jsonRows struct {
	out     *bufio.Writer
	between byte // the byte before the next item
}

func (j *jsonRows) write(item any) error {
	text, err := json.Marshal(item)
	if err != nil {
		return err
	}
	_ = j.out.WriteByte(j.between) // bufio.Writer keeps the error
	j.between = ','
	_, err = j.out.Write(text)
	return err
}

func (j *jsonRows) end() error {
	if j.between == '[' {
		_ = j.out.WriteByte('[')
	}
	_, err := j.out.WriteString("]\n")
	return err
}

// deadlineWriter gives up on a caller that reads nothing for progressTimeout.
type deadlineWriter struct {
	http.ResponseWriter
	connection *http.ResponseController
}

func (d deadlineWriter) Write(p []byte) (int, error) {
	_ = d.connection.SetWriteDeadline(time.Now().Add(progressTimeout)) // unsupported by test recorders
	return d.ResponseWriter.Write(p)
}
