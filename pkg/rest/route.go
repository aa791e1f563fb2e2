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

// Read is an operation that returns a value and changes nothing. Tags of Req say where its members come from: path, query, or a
// Body.
type Read[Req, Resp any] struct {
	Method    string // default: GET; POST for an operation with a body
	Path      string // /port-speed/{port_speed_id}
	Guard     guard.Guard
	Name      string // the method in generated clients: getPortSpeed; empty for internal operations
	Summary   string
	Doc       string // more for callers
	Extension bool   // an addition to the documented API
	Writes    bool   // it stores something short-lived, such as a link, so it fails during maintenance
	Hide      Hide   // for a struct in the response
	Do        func(context.Context, Req) (Resp, error)

	scoped   bool
	includes []string
	do       func(context.Context, *pg.DB, Req) (Resp, error) // used instead of Do
}

// Mutation is an operation that changes something in one transaction, together with its records. The response is encoded before
// the commit. A change whose response cannot be encoded is rolled back.
type Mutation[Req, Resp any] struct {
	Method    string
	Path      string
	Guard     guard.Guard
	Name      string
	Summary   string
	Doc       string
	Extension bool
	Effect    Effect
	// Example is a valid body as JSON. Default: built from the examples of the members.
	Example string
	// Prepare runs before the transaction. It is for slow work, such as hashing a password.
	Prepare func(context.Context, *Req) error
	// Allow checks what the guard cannot know. It also runs before a stored response is repeated, because the caller's
	// permissions may have changed since.
	Allow func(context.Context, *pg.Tx, Req) error
	Do    func(context.Context, *pg.Tx, Req) (Resp, error)

	scoped   bool
	readBody func(*http.Request) ([]byte, error)
}

// None is the request of an operation without parameters and body.
type None struct{}

// Section is a group of operations in the API document.
type Section struct {
	Name, Doc string
	Webhook   any // a value of the type that is sent to webhooks; nil: none
}

// Routes adds the routes to the section, and returns them.
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
	if m.Method == http.MethodDelete {
		o.Request.AcceptDryRun()
	}
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
