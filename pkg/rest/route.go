package rest

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"reflect"
	"regexp"
	"slices"

	"github.com/go-kit/kit/endpoint"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
)

// Route is one operation of the API: a Read, a List, a Mutation or a Raw.
type Route interface{ operation() *operation }

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
	Do        func(context.Context, Req) (Resp, error)

	scoped   bool
	includes []string
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

	scoped bool
	read   func(*http.Request) ([]byte, error)
}

// Effect is what a change leaves behind. The tests that walk all routes, and the API document, go by it.
type Effect struct {
	Logs  Logs
	Again Again
	// Shows is the path at which what was changed can be viewed; empty where nothing can, or where it is gone.
	Shows string
}

// Logs is what the log gets of a change.
type Logs string

// What the log can get.
const (
	LogsItem    Logs = "item"    // one item, with the members that changed
	LogsEach    Logs = "each"    // one item for each of those that changed
	LogsSummary Logs = "summary" // one item that says how many were changed
)

// Again is what becomes of a request that is sent a second time, without an Idempotency-Key.
type Again string

// What can become of it.
const (
	AgainSame    Again = "same"    // it leaves things as they are
	AgainAnother Again = "another" // it is done once more
	AgainRefused Again = "refused" // it is an error: the name is taken, the item is gone
)

// None is the request of an operation that takes nothing.
type None struct{}

// Operation is what a route looks like from outside.
type Operation struct {
	Method, Path string
	Guard        guard.Guard
	Name         string // of the method in generated clients
	Summary, Doc string
	Extension    bool
	Effect       Effect          // of a change
	Writes       bool            // though it is no change
	Scoped       bool            // which items there are depends on who asks
	Several      bool            // the path's last element can name several items, with commas between
	Example      json.RawMessage // a body that is accepted; nil where there is none
	Garbage      json.RawMessage // a body in which each member is of a wrong type
	Takes        []string        // the media types of the bodies that it reads itself
	Secrets      []string        // members that the example sets and that nobody is shown, with dots
}

// Operations are those of the routes, the internal ones among them.
func Operations(routes []Route) []Operation {
	all := make([]Operation, len(routes))
	for i, r := range routes {
		all[i] = r.operation().Operation
	}
	return all
}

// Section is a part of the API document, in which operations stand together.
type Section struct {
	Name, Doc string
	Sends     any // a value of what is sent to whom its operations name; nil: nothing
}

// Of puts routes into the section.
func (s Section) Of(routes ...[]Route) []Route {
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

func (s sectioned) operation() *operation {
	o := s.Route.operation()
	o.section = s.section
	return o
}

// operation is a route without its types.
type operation struct {
	Operation
	section       Section
	parameters    []string // names in the path, in order
	request       *requestPlan
	requestType   reflect.Type
	responseType  reflect.Type // of a list: its item
	list, changes bool
	by            *By      // of a list
	includes      []string // what a view can show besides
	alternative
	csv *alternative // of an operation that takes a CSV body, too
	raw *rawBodies   // of a Raw
}

// alternative is how an operation takes one type of body.
type alternative struct {
	decode   func(*http.Request) (any, error)
	endpoint func(*pg.DB) endpoint.Endpoint
}

// reply is an answer that is encoded already: go-kit encodes after the endpoint has returned, which for a change
// would be after its commit.
type reply struct {
	etag  string // none where empty
	body  []byte
	whole bool   // the ETag says all that the body does
	page  string // where a browser is sent; none where empty
}

// redirect is an answer in whose place a browser is sent to a page.
type redirect interface{ RedirectTo() string }

// items is an answer that is encoded while it is read.
type items struct {
	header http.Header
	rows   iter.Seq2[any, error]
	csv    *csvTable // nil: as JSON
}

func (r Read[Req, Resp]) operation() *operation {
	o := newOperation[Req, Resp](
		Operation{
			Method:    cmp.Or(r.Method, http.MethodGet),
			Path:      r.Path,
			Guard:     r.Guard,
			Name:      r.Name,
			Summary:   r.Summary,
			Doc:       r.Doc,
			Extension: r.Extension,
		},
	)
	o.Scoped, o.Writes, o.includes = r.scoped, r.Writes, r.includes
	o.exemplify("")
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

func (m Mutation[Req, Resp]) operation() *operation {
	o := newOperation[Req, Resp](
		Operation{Method: m.Method, Path: m.Path, Guard: m.Guard, Name: m.Name, Summary: m.Summary, Doc: m.Doc, Extension: m.Extension},
	)
	o.changes, o.Effect, o.Scoped, o.request.read = true, m.Effect, m.scoped, m.read
	o.exemplify(m.Example)
	o.checkEffect()
	o.endpoint = func(db *pg.DB) endpoint.Endpoint {
		allow := always
		if m.Allow != nil {
			allow = func(ctx context.Context, tx *pg.Tx, request any) error { return m.Allow(ctx, tx, request.(Req)) }
		}
		change := changing(db, allow, func(ctx context.Context, tx *pg.Tx, request any) (any, error) {
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

// checkEffect panics where a change does not say what it leaves behind.
func (o *operation) checkEffect() {
	if o.Effect.Logs == "" || o.Effect.Again == "" {
		panic(fmt.Sprintf("rest: %s %s does not say what it logs and what it does when it is sent again", o.Method, o.Path))
	}
}

// always is the Allow of an operation of which the guard knows all.
func always(context.Context, *pg.Tx, any) error { return nil }

// changing runs do as one unit of work, once for all attempts that are the same.
func changing(
	db *pg.DB,
	allow func(context.Context, *pg.Tx, any) error,
	do func(context.Context, *pg.Tx, any) (any, error),
) endpoint.Endpoint {
	return func(ctx context.Context, request any) (any, error) {
		s := serving(ctx)
		attempt, err := attemptOf(s.request, s.body)
		if err != nil {
			return nil, err
		}
		allowed := func(tx *pg.Tx) error { return allow(ctx, tx, request) }
		return attempt.run(ctx, db, allowed, func(tx *pg.Tx) (*reply, error) {
			response, err := do(ctx, tx, request)
			if err != nil {
				return nil, err
			}
			return encode(response)
		})
	}
}

var (
	pathParameter = regexp.MustCompile(`{([a-z_]+)}`)
	methodName    = regexp.MustCompile(`^[a-z]+[A-Z][A-Za-z0-9]*$`)
)

func newOperation[Req, Resp any](declared Operation) *operation {
	if declared.Guard == nil {
		panic(fmt.Sprintf("rest: %s %s has no guard; what is public says so", declared.Method, declared.Path))
	}
	if !guard.Internal(declared.Guard) && !methodName.MatchString(declared.Name) {
		panic(fmt.Sprintf("rest: %s %s has no Name, such as listPortSpeeds, for the method in generated clients", declared.Method, declared.Path))
	}
	o := &operation{Operation: declared, requestType: reflect.TypeFor[Req](), responseType: reflect.TypeFor[Resp]()}
	for _, found := range pathParameter.FindAllStringSubmatch(o.Path, -1) {
		o.parameters = append(o.parameters, found[1])
	}
	o.request = planRequest(o.requestType, o.Path, o.parameters)
	o.decode = func(r *http.Request) (any, error) {
		var req Req
		err := o.request.fill(reflect.ValueOf(&req).Elem(), r)
		return req, err
	}
	return o
}

// whole is an answer that callers may keep: its ETag is of all that it says.
type whole interface{ Whole() }

func encode(response any) (*reply, error) {
	text, err := json.Marshal(response)
	if err != nil {
		return nil, fmt.Errorf("encode the answer: %w", err)
	}
	answer := &reply{body: append(text, '\n')}
	if elsewhere, ok := response.(redirect); ok {
		answer.page = elsewhere.RedirectTo()
	}
	if versioned, ok := response.(tagged); ok {
		answer.etag = versioned.etag()
	}
	if _, answer.whole = response.(whole); answer.whole {
		sum := sha256.Sum256(text)
		answer.etag = `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`
	}
	return answer, nil
}
