// Package rest turns typed routes into an HTTP API: guards, decoding with all errors at once, units of work, one
// shape of error, streamed lists, and the OpenAPI document, all made from the routes.
//
// A request goes one way: guard → decode → for a change: begin, the route's function, one record, encode, commit →
// write. A route without a guard panics at start-up.
package rest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-kit/kit/endpoint"
	kithttp "github.com/go-kit/kit/transport/http"
	"github.com/gorilla/mux"

	"github.com/ironplane/ironplane/pkg/fault"
	"github.com/ironplane/ironplane/pkg/pg"
	"github.com/ironplane/ironplane/pkg/principal"
)

// answerTime is how long an operation may take to its answer; a list, to its first items.
const answerTime = 30 * time.Second

// DocumentPath is where a service, and the gateway for all of them, serves the OpenAPI document.
const DocumentPath = "/-/openapi.json"

// NewHandler serves a service's routes. It panics where they do not fit together.
func NewHandler(service string, db *pg.DB, log *slog.Logger, routes []Route) http.Handler {
	byPath := map[string]map[string]*operation{}
	var paths []string // in the order of the routes, which is the order that mux tries them in
	for _, o := range operations(routes) {
		if byPath[o.Path] == nil {
			byPath[o.Path] = map[string]*operation{}
			paths = append(paths, o.Path)
		}
		if byPath[o.Path][o.Method] != nil {
			panic(fmt.Sprintf("rest: %s %s is there twice", o.Method, o.Path))
		}
		byPath[o.Path][o.Method] = o
	}
	router := mux.NewRouter().SkipClean(true)
	for _, path := range paths {
		router.Handle(path, methods(byPath[path], db, log))
	}
	router.Handle(DocumentPath, documentHandler(Document(service, routes)))
	router.NotFoundHandler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		WriteError(w, r, log, NoSuchPath())
	})
	return router
}

// NoSuchPath is the fault of a path that no route has.
func NoSuchPath() error { return fault.New(fault.NotFound, "There is no such path.") }

// NotAllowed is the fault of a method that a path does not have, but others.
func NotAllowed(method string, allow ...string) error {
	f := fault.New(fault.MethodNotAllowed, "%s is not allowed here, but %s.", method, strings.Join(allow, ", "))
	f.Allow = allow
	return f
}

func operations(routes []Route) []*operation {
	all := make([]*operation, len(routes))
	for i, r := range routes {
		all[i] = r.operation()
	}
	return all
}

// methods serves one path.
func methods(on map[string]*operation, db *pg.DB, log *slog.Logger) http.Handler {
	handlers := map[string]http.Handler{}
	var allow []string
	for method, o := range on {
		handlers[method] = serve(o, db, log)
		allow = append(allow, method)
		if method == http.MethodGet {
			handlers[http.MethodHead] = handlers[method]
			allow = append(allow, http.MethodHead)
		}
	}
	slices.Sort(allow)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h, ok := handlers[r.Method]
		if !ok {
			WriteError(w, r, log, NotAllowed(r.Method, allow...))
			return
		}
		h.ServeHTTP(w, r)
	})
}

func serve(o *operation, db *pg.DB, log *slog.Logger) http.Handler {
	access := principal.Write
	if o.Method == http.MethodGet {
		access = principal.Read
	}
	decode := func(ctx context.Context, r *http.Request) (any, error) {
		if err := o.Guard.Check(principal.From(ctx), access, guardedID(o, r)); err != nil {
			return nil, err
		}
		connection := ctx.Value(exchangeKey{}).(exchange).connection
		_ = connection.SetReadDeadline(time.Now().Add(progress)) // where there is a connection
		defer func() { _ = connection.SetReadDeadline(time.Time{}) }()
		return o.decode(r)
	}
	refuse := func(ctx context.Context, err error, w http.ResponseWriter) {
		WriteError(w, ctx.Value(exchangeKey{}).(exchange).request, log, err)
	}
	kit := kithttp.NewServer(explained(o.endpoint(db)), decode, write, kithttp.ServerErrorEncoder(refuse))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := context.WithValue(r.Context(), exchangeKey{}, exchange{r, http.NewResponseController(w)})
		if !o.list {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, answerTime)
			defer cancel()
		}
		kit.ServeHTTP(w, r.WithContext(ctx))
	})
}

// exchange is what go-kit does not hand to its decoder and its error encoder.
type exchange struct {
	request    *http.Request
	connection *http.ResponseController
}

type exchangeKey struct{}

// explained says in a fault's words what the database refused.
func explained(next endpoint.Endpoint) endpoint.Endpoint {
	return func(ctx context.Context, request any) (any, error) {
		response, err := next(ctx, request)
		return response, pg.Explain(err)
	}
}

// guardedID is the number of the item that the path's first parameter names, 0 where it names none.
func guardedID(o *operation, r *http.Request) int64 {
	if len(o.parameters) == 0 {
		return 0
	}
	id, _ := strconv.ParseInt(mux.Vars(r)[o.parameters[0]], 10, 64)
	return id
}

func write(_ context.Context, w http.ResponseWriter, response any) error {
	w.Header().Set("Content-Type", "application/json")
	if found, ok := response.(items); ok {
		return writeItems(w, found)
	}
	_, err := w.Write(response.(reply))
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	return nil
}

// writeItems streams a list. It fails with an error only before the first byte; after that it aborts the
// connection, so that a list that is cut short does not look complete.
func writeItems(w http.ResponseWriter, found items) error {
	out := bufio.NewWriterSize(deadlined{w, http.NewResponseController(w)}, 32<<10)
	between := byte('[')
	for item, err := range found {
		var text []byte
		if err == nil {
			text, err = json.Marshal(item)
		}
		if err != nil {
			if between == '[' {
				return pg.Explain(err)
			}
			panic(http.ErrAbortHandler)
		}
		_ = out.WriteByte(between) // its errors stick, and show in Flush
		_, err = out.Write(text)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		between = ','
	}
	if between == '[' {
		_ = out.WriteByte('[')
	}
	_, _ = out.WriteString("]\n")
	if out.Flush() != nil {
		panic(http.ErrAbortHandler)
	}
	return nil
}

// deadlined gives up on a caller who takes nothing for a while.
type deadlined struct {
	http.ResponseWriter
	connection *http.ResponseController
}

func (d deadlined) Write(p []byte) (int, error) {
	_ = d.connection.SetWriteDeadline(time.Now().Add(progress)) // where there is a connection
	return d.ResponseWriter.Write(p)
}
