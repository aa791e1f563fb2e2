package rest

import (
	"cmp"
	"context"
	"net/http"
	"reflect"
	"slices"

	"github.com/go-kit/kit/endpoint"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/rest/openapi"
	"github.com/ironplane/ironplane/pkg/rest/route"
)

// Route is one operation of the API: a Read, a List, a Mutation or a Raw.
type Route interface{ route() *route.Route }

// Read is an operation that answers one thing and changes nothing. Req says where its members come from; see Body
// and the tags path and query.
type Read[Req, Resp any] struct {
	Method    string // empty: GET; POST of one that is asked with a body
	Path      string // /port-speed/{port_speed_id}
	Guard     guard.Guard
	Name      string // of the method in generated clients: getPortSpeed; internal operations have none
	Summary   string
	Doc       string // what else callers have to know
	Extension bool   // not in the documented API
	Writes    bool   // it leaves something of the moment, such as a link, which it cannot while nothing is changed
	Hide      Hide   // of a struct that is answered
	Do        func(context.Context, Req) (Resp, error)

	scoped   bool
	includes []string
	do       func(context.Context, *pg.DB, Req) (Resp, error) // in place of Do
}

// Mutation is an operation that changes something, as one unit of work with its records. The answer is encoded before
// the commit, so what cannot be answered is not done.
type Mutation[Req, Resp any] struct {
	Method    string
	Path      string
	Guard     guard.Guard
	Name      string
	Summary   string
	Doc       string
	Extension bool
	Effect    Effect
	// Example is a body that is accepted, as JSON; where it is empty, it is made of the examples of the members.
	Example string
	// Prepare does what takes long and needs no transaction, such as hashing a password, before one begins.
	Prepare func(context.Context, *Req) error
	// Allow says whether this caller may do this, where that is more than the guard knows. It is asked also before an
	// earlier answer is given again, which may be of a time when the caller might.
	Allow func(context.Context, *pg.Tx, Req) error
	Do    func(context.Context, *pg.Tx, Req) (Resp, error)

	scoped   bool
	readBody func(*http.Request) ([]byte, error)
}

// None is the request of an operation that takes nothing.
type None struct{}

// Section is a part of the API document, in which operations stand together.
type Section struct {
	Name, Doc string
	Webhook   any // a value of what is sent to whom its operations name; nil: nothing
}

// Routes puts routes into the section.
func (s Section) Routes(routes ...[]Route) []Route {
	all := slices.Concat(routes...)
	for i, r := range all {
		all[i] = sectioned{r, s}
	}
	return all
}

type sectioned struct {
	Route
	section Section
}

func (s sectioned) route() *route.Route {
	o := s.Route.route()
	o.Section, o.Webhook = openapi.Tag{Name: s.section.Name, Description: s.section.Doc}, s.section.Webhook
	return o
}

func (r Read[Req, Resp]) route() *route.Route {
	defer route.PrefixPanic(cmp.Or(r.Method, http.MethodGet) + " " + r.Path)
	o := route.New[Req, Resp](Operation{
		Method:    cmp.Or(r.Method, http.MethodGet),
		Path:      r.Path,
		Guard:     r.Guard,
		Name:      r.Name,
		Summary:   r.Summary,
		Doc:       r.Doc,
		Extension: r.Extension,
		Writes:    r.Writes,
		Scoped:    r.scoped,
	})
	o.Includes = r.includes
	o.SetExample("")
	o.NeedsDB = r.do != nil
	hidden := newHidden(reflect.TypeFor[Resp](), r.Hide)
	o.Endpoint = func(db *pg.DB) endpoint.Endpoint {
		return route.Respond(func(ctx context.Context, request any) (any, error) {
			do := r.Do
			if r.do != nil {
				do = func(ctx context.Context, req Req) (Resp, error) { return r.do(ctx, db, req) }
			}
			found, err := do(ctx, request.(Req))
			return maskFor(ctx, hidden, found), err
		})
	}
	return o
}

func (m Mutation[Req, Resp]) route() *route.Route {
	defer route.PrefixPanic(m.Method + " " + m.Path)
	o := route.New[Req, Resp](Operation{
		Method:    m.Method,
		Path:      m.Path,
		Guard:     m.Guard,
		Name:      m.Name,
		Summary:   m.Summary,
		Doc:       m.Doc,
		Extension: m.Extension,
		Scoped:    m.scoped,
	})
	o.Request.ReadBody = m.readBody
	o.Several = slices.ContainsFunc(o.Request.Path, func(p route.Parameter) bool { return p.Type == reflect.TypeFor[IDs]() })
	o.SetExample(m.Example)
	o.SetEffect(m.Effect)
	o.NeedsDB = true
	o.Endpoint = func(db *pg.DB) endpoint.Endpoint {
		var allow func(context.Context, *pg.Tx, any) error
		if m.Allow != nil {
			allow = func(ctx context.Context, tx *pg.Tx, request any) error { return m.Allow(ctx, tx, request.(Req)) }
		}
		change := route.Change(db, allow, func(ctx context.Context, tx *pg.Tx, request any) (any, error) {
			return m.Do(ctx, tx, request.(Req))
		})
		return func(ctx context.Context, request any) (any, error) {
			req := request.(Req)
			if m.Prepare != nil {
				if err := m.Prepare(ctx, &req); err != nil {
					return nil, err
				}
			}
			return change(ctx, req)
		}
	}
	return o
}
