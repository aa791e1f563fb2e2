// Package route serves operations over HTTP: guards, decoding with all errors at once, units of work, idempotency, one shape
// of error, and streamed lists.
//
// A request goes one way: guard → decode → for a change: begin, the route's function, one record, encode, commit → write.
// Package rest makes the routes of what services declare.
package route

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"reflect"
	"regexp"
	"strings"

	"github.com/go-kit/kit/endpoint"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/rest/body"
	"github.com/ironplane/ironplane/pkg/rest/openapi"
	"github.com/ironplane/ironplane/pkg/schema"
)

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
	Accepts      []string        // the media types of the bodies that it reads itself
	Secrets      []string        // members that the example sets and that nobody is shown, with dots
}

// Effect is what a change leaves behind. The tests that walk all routes, and the API document, go by it.
type Effect struct {
	Logs  Logs
	Retry Retry
	// Shows is the path at which what was changed can be viewed; empty where nothing can, or where it is gone.
	ViewPath string
}

// Logs is what the log gets of a change.
type Logs string

// What the log can get.
const (
	LogsItem    Logs = "item"    // one item, with the members that changed
	LogsEach    Logs = "each"    // one item for each of those that changed
	LogsSummary Logs = "summary" // one item that says how many were changed
)

// Retry is what becomes of a request that is sent a second time, without an Idempotency-Key.
type Retry string

// What can become of it.
const (
	RetrySafe    Retry = "same"    // it leaves things as they are
	RetryRepeats Retry = "another" // it is done once more
	RetryRefused Retry = "refused" // it is an error: the name is taken, the item is gone
)

// Route is an operation without its types.
type Route struct {
	Operation
	Section      openapi.Tag // of the API document that it stands in
	Webhook      any         // a value of what is sent to whom the section's operations name; nil: nothing
	Parameters   []string    // names in the path, in order
	Request      *Request
	RequestType  reflect.Type
	ResponseType reflect.Type // of a list: its item
	Changes      bool
	NeedsDB      bool
	Statements   []Statement // that its schema has to understand
	Includes     []string    // what a view can show besides
	List         *Listing    // nil: it is no list
	Raw          *Raw        // nil: it does not handle bodies itself
	Alternative
	CSV *Alternative // of an operation that takes a CSV body, too
}

// Statement is one that a route will run.
type Statement struct {
	Owner, Field string // what declares it, and where
	SQL          string
}

// Alternative is how an operation takes one type of body.
type Alternative struct {
	Decode   func(*http.Request) (any, error)
	Endpoint func(*pg.DB) endpoint.Endpoint
}

// Listing is how the items of a list may be asked for.
type Listing struct {
	Search  bool // by a parameter q
	Sorts   []string
	Default string                    // the sort where none is asked for
	Filters map[string]*schema.Member // what each parameter is compared with; nil: with something that no answer shows
}

const (
	// MaxPerPage is how many items a page of a list can have.
	MaxPerPage = 1000
	// MaxOffset is how many items deep the number of a page may reach. A cursor reaches any.
	MaxOffset = 10_000
)

// Raw is what an operation that handles bodies itself reads and writes.
type Raw struct {
	Accepts, Returns []string // media types
	MaxBody          int64    // in bytes
	Ranges           bool     // it answers a part of what it gives, too
	Status           int      // of its answers
	ErrorStatuses    []int    // statuses with which it refuses besides
}

// reply is an answer that is encoded already: go-kit encodes after the endpoint has returned, which for a change
// would be after its commit.
type reply struct {
	etag          string // none where empty
	body          []byte
	contentTagged bool   // the ETag says all that the body does
	redirectURL   string // where a browser is sent; none where empty
}

// redirect is an answer in whose place a browser is sent to a page.
type redirect interface{ RedirectTo() string }

// Items is an answer that is encoded while it is read.
type Items struct {
	Header http.Header
	Rows   iter.Seq2[any, error]
	CSV    *Table // nil: as JSON
}

// CanRedirect tells whether a browser is sent elsewhere, which there may not be.
func (r *Route) CanRedirect() bool { return r.ResponseType.Implements(reflect.TypeFor[redirect]()) }

// HasItemETag tells whether answers have the ETag of an item.
func (r *Route) HasItemETag() bool { return r.ResponseType.Implements(reflect.TypeFor[Tagged]()) }

// ContentTagged tells whether answers have an ETag of all that they say.
func (r *Route) HasContentETag() bool {
	return r.ResponseType.Implements(reflect.TypeFor[contentTagged]())
}

// Body is how the body is decoded; nil where the operation takes none.
func (r *Route) Body() *body.Plan {
	if r.Request.body == nil {
		return nil
	}
	return reflect.New(r.RequestType.FieldByIndex(r.Request.body).Type).Interface().(body.Any).Plan()
}

// Action is what the body is sent for.
func (r *Route) Action() schema.Action {
	if r.Method == http.MethodPatch {
		return schema.Edit
	}
	return schema.Create
}

// SetExample gives the operation an example, which is made of the examples of the body's members where it is empty.
func (r *Route) SetExample(example string) {
	plan := r.Body()
	if plan == nil {
		return
	}
	if err := plan.CheckExample([]byte(example), r.Action()); err != nil {
		panic(fmt.Sprintf("Example %v", err))
	}
	if r.Example = json.RawMessage(example); example == "" {
		r.Example = plan.Example()
	}
	r.Secrets, _ = plan.Secrets(r.Example) // which is JSON
	r.Garbage = plan.Garbage()
}

// SetEffect makes the operation a change. It panics where the change does not say what it leaves behind.
func (r *Route) SetEffect(effect Effect) {
	if effect.Logs == "" || effect.Retry == "" {
		panic("Effect.Logs or Effect.Retry is missing: say what the change logs, and what a repeated request does")
	}
	r.Changes, r.Effect = true, effect
}

// Respond encodes what do answers.
func Respond(do func(ctx context.Context, request any) (any, error)) endpoint.Endpoint {
	return func(ctx context.Context, request any) (any, error) {
		response, err := do(ctx, request)
		if err != nil {
			return nil, err
		}
		return encode(response)
	}
}

// Change runs do as one unit of work, once for all attempts that are the same. It asks allow, unless that is nil, also before
// it gives an earlier answer again.
func Change(
	db *pg.DB,
	allow func(context.Context, *pg.Tx, any) error,
	do func(context.Context, *pg.Tx, any) (any, error),
) endpoint.Endpoint {
	if allow == nil {
		allow = func(context.Context, *pg.Tx, any) error { return nil }
	}
	return func(ctx context.Context, request any) (any, error) {
		s := exchangeFrom(ctx)
		attempt, err := newAttempt(s.request, s.body)
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
	// PathParameter is a parameter in a path: {port_speed_id}
	PathParameter = regexp.MustCompile(`{([a-z_]+)}`)
	methodName    = regexp.MustCompile(`^[a-z]+[A-Z][A-Za-z0-9]*$`)
)

// PrefixPanic has a panic about a mistake in a declaration say whose it is. It is deferred.
func PrefixPanic(owner string) {
	switch p := recover().(type) {
	case nil:
	case string:
		if !strings.HasPrefix(p, "rest: ") {
			p = "rest: " + owner + ": " + p
		}
		panic(p)
	default:
		panic(p)
	}
}

// New makes the route of an operation, which has no endpoint yet. It panics where the declaration does not fit together.
func New[Req, Resp any](declared Operation) *Route {
	if declared.Guard == nil {
		panic("Guard is missing; public operations use guard.Public")
	}
	if !guard.Internal(declared.Guard) && !methodName.MatchString(declared.Name) {
		panic(fmt.Sprintf("Name is %q, and generated clients need one such as listPortSpeeds for their method", declared.Name))
	}
	r := &Route{Operation: declared, RequestType: reflect.TypeFor[Req](), ResponseType: reflect.TypeFor[Resp]()}
	for _, found := range PathParameter.FindAllStringSubmatch(r.Path, -1) {
		r.Parameters = append(r.Parameters, found[1])
	}
	r.Request = planRequest(r.RequestType, r.Path, r.Parameters)
	r.Decode = func(sent *http.Request) (any, error) {
		var req Req
		err := r.Request.fill(reflect.ValueOf(&req).Elem(), sent)
		return req, err
	}
	return r
}

// contentTagged is an answer that callers may keep: its ETag is of all that it says.
type contentTagged interface{ ContentTagged() }

func encode(response any) (*reply, error) {
	text, err := json.Marshal(response)
	if err != nil {
		return nil, fmt.Errorf("encode the answer: %w", err)
	}
	answer := &reply{body: append(text, '\n')}
	if elsewhere, ok := response.(redirect); ok {
		answer.redirectURL = elsewhere.RedirectTo()
	}
	if versioned, ok := response.(Tagged); ok {
		answer.etag = versioned.etag()
	}
	if _, answer.contentTagged = response.(contentTagged); answer.contentTagged {
		sum := sha256.Sum256(text)
		answer.etag = `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`
	}
	return answer, nil
}
