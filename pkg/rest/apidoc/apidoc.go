// Package apidoc describes routes in an OpenAPI document. Bodies are described from the plans that decode them, so the
// document and the code cannot disagree.
package apidoc

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest/noun"
	"github.com/ironplane/ironplane/pkg/rest/openapi"
	"github.com/ironplane/ironplane/pkg/rest/route"
)

// document is an OpenAPI document under construction.
type document struct {
	*openapi.Document
	types map[string]reflect.Type // the types that the schemas describe, by name
}

// Document describes a service's routes except the internal ones. It panics if two operations have the same name.
func Document(service string, routes []*route.Route) *openapi.Document {
	d := newDocument()
	names := map[string]bool{}
	for _, o := range routes {
		if guard.IsInternal(o.Guard) {
			continue
		}
		if name := strings.ToLower(o.Name); names[name] {
			panic(fmt.Sprintf("rest: two operations have the name %s", o.Name))
		} else {
			names[name] = true
		}
		tag := o.Section
		if tag.Name == "" {
			tag.Name = service
		}
		if !slices.Contains(d.Tags, tag) {
			d.Tags = append(d.Tags, tag)
			if o.Webhook != nil {
				d.Webhooks = d.webhooks(tag, o.Webhook)
			}
		}
		if d.Paths[o.Path] == nil {
			d.Paths[o.Path] = openapi.Schema{}
		}
		d.Paths[o.Path][strings.ToLower(o.Method)] = d.operation(o, tag)
	}
	return d.Document
}

// webhooks describes the requests that the service sends to webhooks.
func (d *document) webhooks(tag openapi.Tag, sent any) map[string]openapi.Schema {
	return map[string]openapi.Schema{
		"event": {"post": openapi.Schema{
			"summary":     "An event",
			"operationId": "receiveEvent",
			"tags":        []string{tag.Name},
			"requestBody": openapi.Schema{
				"required": true,
				"content":  openapi.Schema{problem.MediaJSON: openapi.Schema{"schema": d.typeSchema(reflect.TypeOf(sent))}},
			},
			"responses": openapi.Schema{
				"200": openapi.Schema{
					"description": "The event was received. After any status other than 2xx it is sent again; a 410 disables the webhook.",
				},
			},
		}},
	}
}

// guide is the document's description: what a newcomer needs to know of all operations.
//
//go:embed guide.md
var guide string

// newDocument returns a document without paths.
func newDocument() *document {
	d := &document{
		&openapi.Document{OpenAPI: "3.1.0", Paths: map[string]openapi.Schema{}, Components: map[string]map[string]openapi.Schema{}},
		map[string]reflect.Type{},
	}
	d.Info = openapi.Schema{"title": "Ironplane", "version": "1", "description": guide,
		"contact": openapi.Schema{"name": "Ironplane", "url": "https://github.com/ironplane/ironplane"},
		"license": openapi.Schema{"name": "Apache-2.0", "identifier": "Apache-2.0"}}
	d.Servers = []openapi.Schema{{"url": "/", "description": "The installation that serves this document."}}
	d.Security = []openapi.Schema{{"bearer": []string{}}, {"apiKey": []string{}}}
	d.Define("securitySchemes", "bearer", openapi.Schema{"type": "http", "scheme": "bearer", "description": "An API key."})
	d.Define("securitySchemes", "apiKey", openapi.Schema{"type": "apiKey", "in": "header", "name": "X-Api-Key", "description": "An API key."})
	return d
}

// define adds a component and returns a reference to it.
func (d *document) define(kind, name string, s openapi.Schema) openapi.Schema {
	if !d.Define(kind, name, s) {
		panic(fmt.Sprintf("rest: two %s have the name %s in the API document", kind, name))
	}
	return openapi.Schema{"$ref": "#/components/" + kind + "/" + name}
}

// errorDescriptions says for each status when it is returned.
var errorDescriptions = map[int]string{
	400: "The body is not a JSON object, or a query parameter is unknown or invalid.",
	401: "The API key is missing, unknown, expired or revoked.",
	403: "The API key lacks a permission. `detail` names it.",
	404: "The path or the item does not exist, or this key may not see it.",
	409: "The item is still in use, or the Idempotency-Key was used for another request.",
	412: "The item has another version than If-Match names.",
	413: "The body is too large.",
	415: "The body has an unsupported media type.",
	416: "The file has nothing in the range that Range asks for.",
	422: "Members are invalid. `errors` names all of them.",
	429: "The caller has sent too many requests. Retry after as many seconds as Retry-After says.",
	500: "The server has failed. Report the request_id.",
	503: "A part of the installation is unavailable or in maintenance. Retry after as many seconds as Retry-After says.",
}

func textHeader(description string) openapi.Schema {
	return openapi.Schema{"description": description, "schema": openapi.Schema{"type": "string"}}
}

var errorHeaders = map[int]openapi.Schema{
	401: {"WWW-Authenticate": textHeader("The authentication scheme: Bearer.")},
	429: {"Retry-After": textHeader("Wait this many seconds before you retry.")},
	503: {"Retry-After": textHeader("Wait this many seconds before you retry.")},
}

func (d *document) errorResponse(status int) openapi.Schema {
	body := openapi.Schema{"schema": d.typeSchema(reflect.TypeFor[problem.Problem]())}
	response := openapi.Schema{
		"description": errorDescriptions[status],
		"content":     openapi.Schema{problem.MediaJSON: body, problem.MediaProblem: body},
	}
	if headers := errorHeaders[status]; headers != nil {
		response["headers"] = headers
	}
	return d.define("responses", strings.ReplaceAll(http.StatusText(status), " ", ""), response)
}

// errorStatuses returns the statuses of the errors that an operation may return.
func errorStatuses(o *route.Route) []int {
	statuses := []int{400, 401, 429, 500, 503} // a key must be valid even if the operation needs none
	if o.Guard != guard.Public {
		statuses = append(statuses, 403)
	}
	if len(o.Parameters) > 0 {
		statuses = append(statuses, 404)
	}
	if o.Raw != nil && len(o.Raw.Accepts) > 0 {
		statuses = append(statuses, 413, 415, 422)
	}
	if o.Raw != nil && o.Raw.Ranges {
		statuses = append(statuses, 416)
	}
	if o.Raw != nil {
		statuses = append(statuses, o.Raw.ErrorStatuses...)
	}
	if o.CanRedirect() {
		statuses = append(statuses, 422)
	}
	if o.Body() != nil {
		statuses = append(statuses, 413, 415, 422)
	}
	if o.Method == http.MethodPost || o.Method == http.MethodPatch || o.Method == http.MethodDelete {
		statuses = append(statuses, 409)
	}
	if o.Request.HasIfMatch() {
		statuses = append(statuses, 412)
	}
	return statuses
}

func (d *document) operation(o *route.Route, tag openapi.Tag) openapi.Schema {
	status := http.StatusOK
	if o.Raw != nil {
		status = o.Raw.Status
	}
	responses := openapi.Schema{strconv.Itoa(status): d.successResponse(o)}
	if o.Raw != nil && o.Raw.Ranges {
		responses["206"] = openapi.Schema{"description": "The part of the file that Range asks for.", "content": rawContent(o.Raw.Returns)}
	}
	if o.Method == http.MethodGet && (o.Raw != nil && o.Raw.Ranges || o.HasContentETag()) {
		responses["304"] = openapi.Schema{"description": "The content has not changed since the ETag that If-None-Match names."}
	}
	if o.CanRedirect() {
		responses["302"] = openapi.Schema{
			"description": "A browser, whose Accept header prefers text/html, is redirected.",
			"headers":     openapi.Schema{"Location": textHeader("The page to open.")},
		}
	}
	for _, status := range errorStatuses(o) {
		responses[strconv.Itoa(status)] = d.errorResponse(status)
	}
	described := openapi.Schema{"summary": o.Summary, "description": describeOperation(o), "operationId": o.Name, "tags": []string{tag.Name},
		"responses": responses, "x-guard": guardLabel(o), "x-callers": guard.CallersOf(o.Guard, accessOf(o))}
	if o.Extension {
		described["x-extension"] = true
	}
	if o.Several {
		described["x-several"] = route.MaxItems
	}
	if o.Guard == guard.Public {
		described["security"] = []openapi.Schema{}
	}
	if parameters := d.parameters(o); len(parameters) > 0 {
		described["parameters"] = parameters
	}
	if p := o.Body(); p != nil {
		body := d.bodySchema(p, p.Root, o.Action(), noun.Capital(o.Name)+"Body")
		d.addExamples(d.typeSchema(o.ResponseType), p, p.Root)
		content := openapi.Schema{problem.MediaJSON: openapi.Schema{"schema": body, "example": o.Example}}
		if o.CSV != nil {
			content[problem.MediaCSV] = openapi.Schema{"schema": openapi.Schema{"type": "string",
				"description": "The first line names the members, with a dot in the names of nested ones. A row with an id edits " +
					"that item, and any other row creates one."},
				"x-answer": d.typeSchema(reflect.TypeFor[route.Import]())}
		}
		if o.Request.ReadBody != nil {
			content["multipart/form-data"] = openapi.Schema{"schema": body}
		}
		described["requestBody"] = openapi.Schema{"required": true, "content": content}
	}
	if o.Raw != nil && len(o.Raw.Accepts) > 0 {
		described["requestBody"] = openapi.Schema{"required": true, "content": rawContent(o.Raw.Accepts)}
	}
	if o.Changes {
		described["x-logs"], described["x-again"] = o.Effect.Logs, o.Effect.Retry
	}
	return described
}

// describeOperation returns the operation's own text, and then sentences about what it declares.
func describeOperation(o *route.Route) string {
	var sentences []string
	add := func(applies bool, sentence string) {
		if applies {
			sentences = append(sentences, sentence)
		}
	}
	add(o.Doc != "", o.Doc)
	add(o.List != nil, "Returns all items, or one page of them with `per_page`.")
	add(o.Scoped, "Returns or changes only items that the caller may see.")
	add(
		o.CSV != nil,
		"A body of `text/csv` creates and edits many items. The response is then an Import: how many, and which rows have errors.",
	)
	add(o.Several, fmt.Sprintf("The path accepts up to %d ids with commas between. All items are changed, or none.", route.MaxItems))
	add(o.Several && o.ResponseType != reflect.TypeFor[route.Message](), "For several ids the response is an array.")
	add(o.Guard == guard.Public, "Needs no API key.")
	add(o.Guard != guard.Public, "Needs "+describeGuard(o)+".")
	add(guard.CallersOf(o.Guard, accessOf(o)).NotActing, "Sessions that began by a link, or that act for the account, cannot use it.")
	add(o.Effect.Logs == route.LogsItem, "Adds one item to the log.")
	add(o.Effect.Logs == route.LogsEach, "Adds one item to the log for each item that changes.")
	add(o.Effect.Logs == route.LogsSummary, "Adds one item to the log, with the number of changed items.")
	repeated := "A repeated request "
	if o.Method == http.MethodPost && o.Effect.Retry != route.RetrySafe {
		repeated = "Without an Idempotency-Key, a repeated request "
	}
	add(o.Effect.Retry == route.RetrySafe, repeated+"changes nothing more.")
	add(o.Effect.Retry == route.RetryRepeats, repeated+"is carried out again.")
	add(o.Effect.Retry == route.RetryRefused, repeated+"is refused.")
	return strings.Join(sentences, " ")
}

// accessOf returns what an operation does with what its guard guards.
func accessOf(o *route.Route) permission.Access {
	if o.Method == http.MethodGet {
		return permission.Read
	}
	return permission.Write
}

// describeGuard returns what a caller needs, such as the permission `network.groups write`, or a client.
func describeGuard(o *route.Route) string {
	needed, other, isEither := strings.Cut(o.Guard.String(), " or ")
	if !strings.Contains(needed, ".") {
		return o.Guard.String()
	}
	text := fmt.Sprintf("the permission `%s %s`", needed, accessOf(o))
	if isEither {
		text += ", or " + other
	}
	return text
}

// guardLabel returns the same for programs, such as network.groups write, or network.groups write or a client.
func guardLabel(o *route.Route) string {
	return strings.NewReplacer("the permission ", "", "`, or ", " or ", "`", "").Replace(describeGuard(o))
}

// rawContent describes bodies by their media type alone.
func rawContent(types []string) openapi.Schema {
	content := openapi.Schema{}
	for _, media := range types {
		content[media] = openapi.Schema{"schema": openapi.Schema{"type": "string", "format": "binary"}}
	}
	return content
}

// successResponse describes the response of an operation that succeeds.
func (d *document) successResponse(o *route.Route) openapi.Schema {
	if o.Raw != nil {
		return openapi.Schema{"description": "The request has succeeded.", "content": rawContent(o.Raw.Returns)}
	}
	answer := d.typeSchema(o.ResponseType)
	headers := openapi.Schema{}
	content := openapi.Schema{}
	if o.List != nil {
		answer = openapi.Schema{"type": "array", "items": answer}
		headers["Link"] = textHeader("The URLs of the pages first, next and prev, if the request asks for a page.")
		headers["X-Total-Count"] = textHeader("The number of items, with count=true. A search is counted up to 10000+.")
		content[problem.MediaCSV] = openapi.Schema{"schema": openapi.Schema{"type": "string"}}
	} else if o.HasItemETag() {
		headers["ETag"] = textHeader("The version of the item, for If-Match.")
	} else if o.HasContentETag() {
		headers["ETag"] = textHeader("A digest of the content, for If-None-Match.")
	}
	content[problem.MediaJSON] = openapi.Schema{"schema": answer}
	success := openapi.Schema{"description": "The request has succeeded.", "content": content}
	if len(headers) > 0 {
		success["headers"] = headers
	}
	return success
}

// Handler returns a handler that serves a document as JSON.
func Handler(d *openapi.Document) http.Handler {
	text, err := json.Marshal(d)
	if err != nil {
		panic(err) // a document consists of maps, strings and numbers
	}
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(text)))
		_, _ = w.Write(text)
	})
}
