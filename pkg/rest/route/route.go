// Package route serves operations over HTTP. It checks guards, decodes requests and reports all their errors at once. It runs
// changes in transactions with records, repeats stored responses and streams lists.
//
// The order is: guard, decode, begin, the operation's function, record, encode, commit, write. Package rest builds the routes
// from the declarations of services.
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

// Operation describes a route for callers.
type Operation struct {
	Method, Path string
	Guard        guard.Guard
	Name         string // the method in generated clients
	Summary, Doc string
	Extension    bool
	Effect       Effect          // for a change
	Writes       bool            // it stores something, although it is not a change
	Scoped       bool            // the items depend on the caller
	Several      bool            // the last element of the path accepts several ids
	Example      json.RawMessage // a valid body; nil if there is none
	Garbage      json.RawMessage // a body in which each member has a wrong type
	Accepts      []string        // media types of the bodies that the operation reads itself
	Secrets      []string        // members of the example that are never shown; paths with dots
}

// Effect describes what a change does. The API document shows it, and tests of all routes rely on it.
type Effect struct {
	Logs  Logs
	Retry Retry
	// ViewPath is the path at which the changed item can be viewed. Empty if there is none.
	ViewPath string
}

// Logs says what a change adds to the log.
type Logs string

// The additions to the log.
const (
	LogsItem    Logs = "item"    // one item, with the members that changed
	LogsEach    Logs = "each"    // one item for each changed item
	LogsSummary Logs = "summary" // one item with the number of changed items
)

// Retry says what a repeated request does if it has no Idempotency-Key.
type Retry string

// The effects of a repeated request.
const (
	RetrySafe    Retry = "same"    // it changes nothing more
	RetryRepeats Retry = "another" // it is carried out again
	RetryRefused Retry = "refused" // it fails: the name is taken, or the item is gone
)

// Route is an operation without its Go types.
type Route struct {
	Operation
	Section      openapi.Tag // the group in the API document
	Webhook      any         // a value of the type that is sent to webhooks; nil: none
	Parameters   []string    // of the path, in order
	Request      *Request
	RequestType  reflect.Type
	ResponseType reflect.Type // for a list: the type of an item
	Changes      bool
	NeedsDB      bool
	Statements   []Statement // checked against the database schema at start
	Includes     []string    // values of the parameter include
	List         *Listing    // nil: not a list
	Raw          *Raw        // nil: not a Raw
	Alternative
	CSV *Alternative // set if the operation accepts CSV too
}

// Statement is a statement that a route runs.
type Statement struct {
	Owner, Field string // the declaration and its field
	SQL          string
}

// Alternative decodes and serves one type of body.
type Alternative struct {
	Decode   func(*http.Request) (any, error)
	Endpoint func(*pg.DB) endpoint.Endpoint
}

// Listing describes the parameters of a list.
type Listing struct {
	Search  bool // has the parameter q
	Sorts   []string
	Default string                    // the sort if the caller asks for none
	Filters map[string]*schema.Member // the member that each parameter is compared with; nil if no response shows it
}

const (
	// MaxPerPage is the maximum number of items on a page.
	MaxPerPage = 1000
	// MaxOffset is the number of items that page numbers can reach. A cursor reaches all.
	MaxOffset = 10_000
)

// Raw describes an operation that reads and writes bodies itself.
type Raw struct {
	Accepts, Returns []string // media types
	MaxBody          int64    // in bytes
	Ranges           bool     // it serves ranges
	Status           int      // of a successful response
	ErrorStatuses    []int    // statuses of further errors
}

// reply is an encoded response. It is encoded by the endpoint, before the commit of a change. go-kit would encode it afterwards.
type reply struct {
	etag          string // empty: none
	body          []byte
	contentTagged bool   // the ETag is a digest of the body
	redirectURL   string // the page for a browser; empty: none
}

// redirect is a response that redirects browsers to a page.
type redirect interface{ RedirectTo() string }

// Items is a list that is encoded while it is read.
type Items struct {
	Header http.Header
	Rows   iter.Seq2[any, error]
	CSV    *Table // nil: as JSON
}

// CanRedirect reports whether the operation may redirect browsers.
func (r *Route) CanRedirect() bool { return r.ResponseType.Implements(reflect.TypeFor[redirect]()) }

// HasItemETag reports whether responses have the ETag of an item.
func (r *Route) HasItemETag() bool { return r.ResponseType.Implements(reflect.TypeFor[Tagged]()) }

// HasContentETag reports whether responses have an ETag of their content.
func (r *Route) HasContentETag() bool {
	return r.ResponseType.Implements(reflect.TypeFor[contentTagged]())
}

// Body returns the plan of the body, or nil if the operation has none.
func (r *Route) Body() *body.Plan {
	if r.Request.body == nil {
		return nil
	}
	return reflect.New(r.RequestType.FieldByIndex(r.Request.body).Type).Interface().(body.Any).Plan()
}

// Action returns what the body is sent for.
func (r *Route) Action() schema.Action {
	if r.Method == http.MethodPatch {
		return schema.Edit
	}
	return schema.Create
}

// SetExample sets the operation's example. An empty one is built from the examples of the body's members.
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

// SetEffect makes the operation a change. It panics if the effect is incomplete.
func (r *Route) SetEffect(effect Effect) {
	if effect.Logs == "" || effect.Retry == "" {
		panic("Effect.Logs or Effect.Retry is missing: say what the change logs, and what a repeated request does")
	}
	r.Changes, r.Effect = true, effect
}

// Respond returns an endpoint that encodes the results of do.
func Respond(do func(ctx context.Context, request any) (any, error)) endpoint.Endpoint {
	return func(ctx context.Context, request any) (any, error) {
		response, err := do(ctx, request)
		if err != nil {
			return nil, err
		}
		return encode(response)
	}
}

// Change returns an endpoint that runs do in one transaction, and once for all attempts with the same key. allow also runs
// before a stored response is repeated. A dry run rolls back, and no response is stored for it.
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
		allowed := func(tx *pg.Tx) error { return allow(ctx, tx, request) }
		if s.dryRun {
			return dryRun(ctx, db, allowed, func(tx *pg.Tx) (any, error) { return do(ctx, tx, request) })
		}
		attempt, err := newAttempt(s.request, s.body)
		if err != nil {
			return nil, err
		}
		return attempt.run(ctx, db, allowed, func(tx *pg.Tx) (*reply, error) {
			response, err := do(ctx, tx, request)
			if err != nil {
				return nil, err
			}
			return encode(response)
		})
	}
}

// dryRun runs a change and rolls it back. The response is the one that the change would have, and says so in a Message.
func dryRun(ctx context.Context, db *pg.DB, allowed func(*pg.Tx) error, do func(*pg.Tx) (any, error)) (answer *reply, err error) {
	err = db.DryRun(ctx, func(tx *pg.Tx) error {
		if err := allowed(tx); err != nil {
			return err
		}
		response, err := do(tx)
		if err != nil {
			return err
		}
		if m, ok := response.(Message); ok {
			response = Message{Message: "Nothing was changed, because dry_run is true. Without it: " + m.Message}
		}
		answer, err = encode(response)
		return err
	})
	return answer, err
}

var (
	// PathParameter matches a parameter in a path: {port_speed_id}
	PathParameter = regexp.MustCompile(`{([a-z_]+)}`)
	methodName    = regexp.MustCompile(`^[a-z]+[A-Z][A-Za-z0-9]*$`)
)

// PrefixPanic adds the owner of a declaration to a panic about a mistake in it. Call it with defer.
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

// New returns the route of an operation, without an endpoint. It panics if the declaration has a mistake.
func New[Req, Resp any](declared Operation) *Route {
	if declared.Guard == nil {
		panic("Guard is missing; public operations use guard.Public")
	}
	if !guard.IsInternal(declared.Guard) && !methodName.MatchString(declared.Name) {
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

// contentTagged is a response that callers may cache. Its ETag is a digest of the content.
type contentTagged interface{ ContentTagged() }

func encode(response any) (*reply, error) {
	text, err := json.Marshal(response)
	if err != nil {
		return nil, fmt.Errorf("encode the response: %w", err)
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
