package route

import (
	"fmt"
	"log/slog"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/gorilla/mux"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest/openapi"
)

// CheckPaths panics if two routes have the same path and method, if a change names an unknown path to view the item, or if a
// needed database is missing.
func CheckPaths(db *pg.DB, routes []*Route) {
	declared := map[string]bool{}
	for _, o := range routes {
		one := o.Method + " " + o.Path
		if declared[one] {
			panic(fmt.Sprintf("rest: %s is declared twice", one))
		}
		if o.NeedsDB && db == nil {
			panic(fmt.Sprintf("rest: %s: the database is missing", one))
		}
		declared[one] = true
	}
	for _, o := range routes {
		if shows := o.Effect.ViewPath; shows != "" && !declared["GET "+shows] {
			panic(fmt.Sprintf("rest: %s %s: Effect.ViewPath is %s, which no GET has", o.Method, o.Path, shows))
		}
	}
}

// NewHandler returns a handler for routes and their API document.
func NewHandler(db *pg.DB, log *slog.Logger, routes []*Route, document http.Handler) http.Handler {
	byPath := map[string]map[string]*Route{}
	var paths []string // in the order of the routes; mux tries them in this order
	for _, o := range routes {
		if byPath[o.Path] == nil {
			byPath[o.Path] = map[string]*Route{}
			paths = append(paths, o.Path)
		}
		byPath[o.Path][o.Method] = o
	}
	for _, o := range routes {
		o.refuseUnknown(byPath)
	}
	all := newRouter(log)
	for _, path := range paths {
		all.handle(path, withRoute(path, methods(byPath[path], db, log)))
	}
	all.handle(openapi.Path, document)
	return all
}

// refuseUnknown makes a route refuse members that neither its body nor the view of the item has. Internal routes ignore them,
// because processes of two releases may run side by side.
func (r *Route) refuseUnknown(byPath map[string]map[string]*Route) {
	plan := r.Body()
	if plan == nil || guard.IsInternal(r.Guard) {
		return
	}
	var views []reflect.Type
	for _, path := range []string{r.Path, r.Effect.ViewPath} {
		if view := byPath[path][http.MethodGet]; view != nil {
			views = append(views, view.ResponseType)
		}
	}
	r.Request.Known = plan.Known(views...)
}

// router has a mux for each first element of a path, because a mux tries one path after another.
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
	all.below[first].Handle(strings.Replace(path, "{path}", "{path:.+}", 1), handler) // it matches slashes
}

func (all *router) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var match mux.RouteMatch
	if err := problem.CheckPath(r.URL); err != nil {
		problem.Write(w, r, all.log, err)
		return
	}
	if below := all.below[openapi.FirstElement(r.URL.Path)]; below == nil || !below.Match(r, &match) {
		problem.Write(w, r, all.log, problem.NoSuchPath())
		return
	}
	match.Handler.ServeHTTP(w, mux.SetURLVars(r, match.Vars)) // a mux itself would add its route too
}

func withRoute(path string, next http.Handler) http.Handler {
	value := []string{path}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header()[problem.RouteHeader] = value
		next.ServeHTTP(w, r)
	})
}

// methods returns a handler for one path.
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
