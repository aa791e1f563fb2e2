// Package apidoc describes routes in a document of OpenAPI. What it says of bodies comes from the plans that decode them, so
// it says the same as the code does.
package apidoc

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest/noun"
	"github.com/ironplane/ironplane/pkg/rest/openapi"
	"github.com/ironplane/ironplane/pkg/rest/route"
)

// document is an OpenAPI document that is being made.
type document struct {
	*openapi.Document
	types map[string]reflect.Type // that the schemas describe
}

// Document describes a service's routes but the internal ones. It panics where two operations have one name.
func Document(service string, routes []*route.Route) *openapi.Document {
	d := newDocument()
	names := map[string]bool{}
	for _, o := range routes {
		if guard.Internal(o.Guard) {
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

// webhooks describes what is sent to others.
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
				"200": openapi.Schema{"description": "Taken. Any other status but a 2xx has it sent again, and a 410 ends it."},
			},
		}},
	}
}

const guide = `The control plane of a company that rents out bare-metal servers.

Every error is a Problem (RFC 9457), whose ` + "`errors`" + ` name all members that are wrong. Members of a body that are not in this
document mean nothing. In a PATCH, what is not sent stays as it is, and null clears. Answers leave out what is not set.`

// newDocument is a document without paths.
func newDocument() *document {
	d := &document{
		&openapi.Document{OpenAPI: "3.1.0", Paths: map[string]openapi.Schema{}, Components: map[string]map[string]openapi.Schema{}},
		map[string]reflect.Type{},
	}
	d.Info = openapi.Schema{"title": "Ironplane", "version": "1", "description": guide,
		"contact": openapi.Schema{"name": "Ironplane", "url": "https://github.com/ironplane/ironplane"},
		"license": openapi.Schema{"name": "Apache-2.0", "identifier": "Apache-2.0"}}
	d.Servers = []openapi.Schema{{"url": "/", "description": "The installation that this document comes from."}}
	d.Security = []openapi.Schema{{"bearer": []string{}}, {"apiKey": []string{}}}
	d.Define("securitySchemes", "bearer", openapi.Schema{"type": "http", "scheme": "bearer", "description": "An API key."})
	d.Define("securitySchemes", "apiKey", openapi.Schema{"type": "apiKey", "in": "header", "name": "X-Api-Key", "description": "An API key."})
	return d
}

// define adds a component and answers a reference to it.
func (d *document) define(kind, name string, s openapi.Schema) openapi.Schema {
	if !d.Define(kind, name, s) {
		panic(fmt.Sprintf("rest: two %s have the name %s in the API document", kind, name))
	}
	return openapi.Schema{"$ref": "#/components/" + kind + "/" + name}
}

// errorDescriptions are the statuses of errors, and when they come.
var errorDescriptions = map[int]string{
	400: "The body is not JSON, or a query parameter is unknown or wrong.",
	401: "No key, or one that is unknown, expired or revoked.",
	403: "The key lacks a permission, which detail names.",
	404: "No such path or item, or one that this key may not know of.",
	409: "Still in use; or the Idempotency-Key was used for another request.",
	412: "If-Match names another version.",
	413: "The body is too large.",
	415: "The body is of another type.",
	416: "There is nothing in the range that Range names.",
	422: "Members are wrong; errors names all of them.",
	429: "Too many requests.",
	500: "A mistake of ours.",
	503: "A part is away.",
}

func textHeader(description string) openapi.Schema {
	return openapi.Schema{"description": description, "schema": openapi.Schema{"type": "string"}}
}

var errorHeaders = map[int]openapi.Schema{
	401: {"WWW-Authenticate": textHeader("Bearer")},
	429: {"Retry-After": textHeader("Seconds.")},
	503: {"Retry-After": textHeader("Seconds.")},
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

// errorStatuses are the statuses that an operation may refuse with.
func errorStatuses(o *route.Route) []int {
	statuses := []int{400, 401, 429, 500, 503} // a key that is sent must be valid, also where none is needed
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
	if o.Method == http.MethodPost || o.Method == http.MethodDelete {
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
		responses["206"] = openapi.Schema{"description": "A part of it.", "content": rawContent(o.Raw.Returns)}
	}
	if o.Method == http.MethodGet && (o.Raw != nil && o.Raw.Ranges || o.HasContentETag()) {
		responses["304"] = openapi.Schema{"description": "It is what If-None-Match names."}
	}
	if o.CanRedirect() {
		responses["302"] = openapi.Schema{
			"description": "A browser, whose Accept prefers text/html, is sent there.",
			"headers":     openapi.Schema{"Location": textHeader("The page.")},
		}
	}
	for _, status := range errorStatuses(o) {
		responses[strconv.Itoa(status)] = d.errorResponse(status)
	}
	described := openapi.Schema{"summary": o.Summary, "description": describeOperation(o), "operationId": o.Name, "tags": []string{tag.Name},
		"responses": responses, "x-guard": guardLabel(o)}
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
				"description": "The first line names the members, the others make an item each, all of them or none."},
				"x-answer": d.typeSchema(reflect.TypeFor[route.Bulk]())}
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

// describeOperation is what the operation says of itself, and then what it declares, in sentences.
func describeOperation(o *route.Route) string {
	var sentences []string
	add := func(when bool, sentence string) {
		if when {
			sentences = append(sentences, sentence)
		}
	}
	add(o.Doc != "", o.Doc)
	add(o.List != nil, "Answers all items, or pages of them with per_page.")
	add(o.Scoped, "There are those items that the caller may know of.")
	add(o.CSV != nil, "A body of text/csv makes many items and answers a Bulk: how many, and the first and last id.")
	add(o.Several, fmt.Sprintf("The path takes up to %d ids with commas between, too: all of the items are changed, or none.", route.MaxItems))
	add(o.Several && o.ResponseType != reflect.TypeFor[route.Message](), "The answer is then an array of what is answered of one.")
	needs, permission := guardLabel(o), strings.Contains(guardLabel(o), ".")
	add(o.Guard == guard.Public, "Needs no key.")
	add(permission, "Needs the permission "+needs+".")
	add(o.Guard != guard.Public && !permission, "Needs "+needs+".")
	add(o.Effect.Logs == route.LogsItem, "The log gets one item.")
	add(o.Effect.Logs == route.LogsEach, "The log gets an item for each that changes.")
	add(o.Effect.Logs == route.LogsSummary, "The log gets one item that says how many changed.")
	retried := "Sent again, "
	if o.Method == http.MethodPost && o.Effect.Retry != route.RetrySafe {
		retried = "Sent again without an Idempotency-Key, "
	}
	add(o.Effect.Retry == route.RetrySafe, retried+"it leaves things as they are.")
	add(o.Effect.Retry == route.RetryRepeats, retried+"it is done once more.")
	add(o.Effect.Retry == route.RetryRefused, retried+"it is refused.")
	return strings.Join(sentences, " ")
}

// guardLabel is what a caller needs: network.groups write.
func guardLabel(o *route.Route) string {
	access := " write"
	if o.Method == http.MethodGet {
		access = " read"
	}
	permission, self := strings.CutSuffix(o.Guard.String(), " or self")
	switch {
	case self:
		return permission + access + " or self"
	case strings.Contains(permission, "."):
		return permission + access
	default:
		return permission
	}
}

// rawContent describes bodies of which no more is known than their media type.
func rawContent(types []string) openapi.Schema {
	content := openapi.Schema{}
	for _, media := range types {
		content[media] = openapi.Schema{"schema": openapi.Schema{"type": "string", "format": "binary"}}
	}
	return content
}

// successResponse describes the answer of an operation that does what it was asked.
func (d *document) successResponse(o *route.Route) openapi.Schema {
	if o.Raw != nil {
		return openapi.Schema{"description": "Done.", "content": rawContent(o.Raw.Returns)}
	}
	answer := d.typeSchema(o.ResponseType)
	headers := openapi.Schema{}
	content := openapi.Schema{}
	if o.List != nil {
		answer = openapi.Schema{"type": "array", "items": answer}
		headers["Link"] = textHeader("With per_page or page: the pages first, next and prev.")
		headers["X-Total-Count"] = textHeader("With count=true: how many items there are; a search counts to 10000+.")
		content[problem.MediaCSV] = openapi.Schema{"schema": openapi.Schema{"type": "string"}}
	} else if o.HasItemETag() {
		headers["ETag"] = textHeader("The item's version, for If-Match.")
	} else if o.HasContentETag() {
		headers["ETag"] = textHeader("Of all that the answer says, for If-None-Match.")
	}
	content[problem.MediaJSON] = openapi.Schema{"schema": answer}
	success := openapi.Schema{"description": "Done.", "content": content}
	if len(headers) > 0 {
		success["headers"] = headers
	}
	return success
}

// Handler serves a document.
func Handler(d *openapi.Document) http.Handler {
	text, err := json.Marshal(d)
	if err != nil {
		panic(err) // made of maps, strings and numbers
	}
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(text)))
		_, _ = w.Write(text)
	})
}
