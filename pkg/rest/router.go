package rest

import (
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"

	"github.com/gorilla/mux"

	"github.com/ironplane/ironplane/pkg/fault"
	"github.com/ironplane/ironplane/pkg/pg"
)

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
	all := newRouter(log)
	for _, path := range paths {
		all.handle(path, named(path, methods(byPath[path], db, log)))
	}
	all.handle(DocumentPath, documentHandler(Document(service, routes)))
	return all
}

// router has a mux for each first element of a path, since a mux tries one path after the other.
type router struct {
	below map[string]*mux.Router
	log   *slog.Logger
}

func newRouter(log *slog.Logger) *router { return &router{map[string]*mux.Router{}, log} }

func (all *router) handle(path string, handler http.Handler) {
	first := FirstElement(path)
	if all.below[first] == nil {
		all.below[first] = mux.NewRouter().SkipClean(true)
	}
	all.below[first].Handle(path, handler)
}

func (all *router) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var match mux.RouteMatch
	if below := all.below[FirstElement(r.URL.Path)]; below == nil || !below.Match(r, &match) {
		WriteError(w, r, all.log, NoSuchPath())
		return
	}
	match.Handler.ServeHTTP(w, mux.SetURLVars(r, match.Vars)) // a mux itself would put its route there, too
}

// FirstElement is what stands between the first two slashes of a path: of /port-speed/3, port-speed.
func FirstElement(path string) string {
	below, ok := strings.CutPrefix(path, "/")
	if !ok {
		return ""
	}
	first, _, _ := strings.Cut(below, "/")
	return first
}

// RouteHeader tells logs, and the gateway for its metrics, which path of a route a request matched. The gateway passes
// it on to nobody.
const RouteHeader = "Ironplane-Route"

func named(path string, next http.Handler) http.Handler {
	value := []string{path}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header()[RouteHeader] = value
		next.ServeHTTP(w, r)
	})
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
