package rest

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"reflect"
	"regexp"

	"github.com/go-kit/kit/endpoint"

	"github.com/ironplane/ironplane/pkg/pg"
	"github.com/ironplane/ironplane/pkg/principal"
)

// Route is one operation of the API: a Read, a List or a Change.
type Route interface{ operation() *operation }

// Read is an operation that answers one thing and changes nothing. Req says where its members come from; see Body
// and the tags path and query.
type Read[Req, Resp any] struct {
	Path    string // /port-speed/{port_speed_id}
	Guard   principal.Guard
	Summary string
	Do      func(context.Context, Req) (Resp, error)
}

// List is an operation that answers an array, which is streamed: it takes no more memory for being long.
type List[Req, Item any] struct {
	Path    string
	Guard   principal.Guard
	Summary string
	Do      func(context.Context, Req) iter.Seq2[Item, error]
}

// Change is an operation that changes something, as one unit of work with one record. The answer is encoded before
// the commit, so what cannot be answered is not done.
type Change[Req, Resp any] struct {
	Method  string
	Path    string
	Guard   principal.Guard
	Summary string
	// Prepare does what takes long and needs no transaction, such as hashing a password, before one begins.
	Prepare func(context.Context, *Req) error
	Do      func(context.Context, *pg.Tx, Req) (Resp, error)
}

// None is the request of an operation that takes nothing.
type None struct{}

// Operation is what a route looks like from outside.
type Operation struct {
	Method, Path string
	Guard        principal.Guard
	Summary      string
}

// Public tells whether callers from outside can reach the operation.
func (o Operation) Public() bool {
	_, internal := o.Guard.(principal.Peer)
	return !internal
}

// Operations are those of the routes, the internal ones among them.
func Operations(routes []Route) []Operation {
	all := make([]Operation, len(routes))
	for i, r := range routes {
		all[i] = r.operation().Operation
	}
	return all
}

// operation is a route without its types.
type operation struct {
	Operation
	parameters    []string // names in the path, in order
	request       *requestPlan
	requestType   reflect.Type
	responseType  reflect.Type // of a list: its item
	list, changes bool
	decode        func(*http.Request) (any, error)
	endpoint      func(*pg.DB) endpoint.Endpoint
}

// reply is an answer that is encoded already: go-kit encodes after the endpoint has returned, which for a change
// would be after its commit.
type reply []byte

// items is an answer that is encoded while it is read.
type items iter.Seq2[any, error]

func (r Read[Req, Resp]) operation() *operation {
	o := newOperation[Req, Resp](http.MethodGet, r.Path, r.Guard, r.Summary)
	o.endpoint = func(*pg.DB) endpoint.Endpoint {
		return func(ctx context.Context, request any) (any, error) {
			response, err := r.Do(ctx, request.(Req))
			if err != nil {
				return nil, err
			}
			return encode(response)
		}
	}
	return o
}

func (l List[Req, Item]) operation() *operation {
	o := newOperation[Req, Item](http.MethodGet, l.Path, l.Guard, l.Summary)
	o.list = true
	o.endpoint = func(*pg.DB) endpoint.Endpoint {
		return func(ctx context.Context, request any) (any, error) {
			found := l.Do(ctx, request.(Req))
			return items(func(yield func(any, error) bool) {
				for item, err := range found {
					if !yield(item, err) {
						return
					}
				}
			}), nil
		}
	}
	return o
}

func (c Change[Req, Resp]) operation() *operation {
	o := newOperation[Req, Resp](c.Method, c.Path, c.Guard, c.Summary)
	o.changes = true
	o.endpoint = func(db *pg.DB) endpoint.Endpoint {
		return func(ctx context.Context, request any) (any, error) {
			req := request.(Req)
			if c.Prepare != nil {
				if err := c.Prepare(ctx, &req); err != nil {
					return nil, err
				}
			}
			var answer reply
			err := db.Change(ctx, func(tx *pg.Tx) error {
				response, err := c.Do(ctx, tx, req)
				if err != nil {
					return err
				}
				answer, err = encode(response)
				return err
			})
			return answer, err
		}
	}
	return o
}

var pathParameter = regexp.MustCompile(`{([a-z_]+)}`)

func newOperation[Req, Resp any](method, path string, guard principal.Guard, summary string) *operation {
	if guard == nil {
		panic(fmt.Sprintf("rest: %s %s has no guard; what is public says so", method, path))
	}
	o := &operation{Operation: Operation{method, path, guard, summary},
		requestType: reflect.TypeFor[Req](), responseType: reflect.TypeFor[Resp]()}
	for _, found := range pathParameter.FindAllStringSubmatch(path, -1) {
		o.parameters = append(o.parameters, found[1])
	}
	o.request = planRequest(o.requestType, o.parameters)
	o.decode = func(r *http.Request) (any, error) {
		var req Req
		err := o.request.fill(reflect.ValueOf(&req).Elem(), r)
		return req, err
	}
	return o
}

func encode(response any) (reply, error) {
	text, err := json.Marshal(response)
	if err != nil {
		return nil, fmt.Errorf("encode the answer: %w", err)
	}
	return append(text, '\n'), nil
}
