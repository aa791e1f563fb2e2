package route

import (
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"

	"github.com/gorilla/mux"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest/openapi"
)

// CheckPaths panics where two routes have one path and method, where a change names no path that shows it, and where a route
// needs a database that there is not.
func CheckPaths(db *pg.DB, routes []*Route) {
	declared := map[string]bool{}
	for _, o := range routes {
		one := o.Method + " " + o.Path
		if declared[one] {
			panic(fmt.Sprintf("rest: %s is declared twice", one))
		}
		if o.NeedsDB && db == nil {
			panic(fmt.Sprintf("rest: %s: there is no DB", one))
		}
		declared[one] = true
	}
	for _, o := range routes {
		if shows := o.Effect.ViewPath; shows != "" && !declared["GET "+shows] {
			panic(fmt.Sprintf("rest: %s %s: Effect.ViewPath is %s, which is the path of no item", o.Method, o.Path, shows))
		}
	}
}

// NewHandler serves routes, and their API document.
func NewHandler(db *pg.DB, log *slog.Logger, routes []*Route, document http.Handler) http.Handler {
	byPath := map[string]map[string]*Route{}
	var paths []string // in the order of the routes, which is the order that mux tries them in
	for _, o := range routes {
		if byPath[o.Path] == nil {
			byPath[o.Path] = map[string]*Route{}
			paths = append(paths, o.Path)
		}
		byPath[o.Path][o.Method] = o
	}
	all := newRouter(log)
	for _, path := range paths {
		all.handle(path, withRoute(path, methods(byPath[path], db, log)))
	}
	all.handle(openapi.Path, document)
	return all
}

// router has a mux for each first element of a path, since a mux tries one path after the other.
type router struct {
	below map[string]*mux.Router
	log   *slog.Logger
}

func newRouter(log *slog.Logger) *router { return &router{map[string]*mux.Router{}, log} }

func (all *router) handle(path string, handler http.Handler) {
	first := openapi.FirstElement(path)
	if all.below[first] == nil {
		all.below[first] = mux.NewRouter().SkipClean(true)
	}
	all.below[first].Handle(strings.Replace(path, "{path}", "{path:.+}", 1), handler) // which has slashes
}

func (all *router) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var match mux.RouteMatch
	if below := all.below[openapi.FirstElement(r.URL.Path)]; below == nil || !below.Match(r, &match) {
		problem.Write(w, r, all.log, problem.NoSuchPath())
		return
	}
	match.Handler.ServeHTTP(w, mux.SetURLVars(r, match.Vars)) // a mux itself would put its route there, too
}

func withRoute(path string, next http.Handler) http.Handler {
	value := []string{path}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header()[problem.RouteHeader] = value
		next.ServeHTTP(w, r)
	})
}

// methods serves one path.
func methods(on map[string]*Route, db *pg.DB, log *slog.Logger) http.Handler {
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
			problem.Write(w, r, log, problem.NotAllowed(r.Method, allow...))
			return
		}
		h.ServeHTTP(w, r)
	})
}
