package rest

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
	"github.com/ironplane/ironplane/pkg/rest/openapi"
)

// jsonSchema is a piece of an OpenAPI document.
type jsonSchema = openapi.Schema

// document is an OpenAPI document that is being made.
type document struct {
	*openapi.Document
	types map[string]reflect.Type // that the schemas describe
}

// Document describes a service's routes. What it says of bodies comes from the plans that decode them, so it says
// the same as the code does. Internal routes are not in it. It panics where two operations have one name.
func Document(service string, routes []Route) *openapi.Document {
	d := newDocument()
	names := map[string]bool{}
	for _, o := range operations(routes) {
		if guard.Internal(o.Guard) {
			continue
		}
		if name := strings.ToLower(o.Name); names[name] {
			panic(fmt.Sprintf("rest: two operations have the name %s", o.Name))
		} else {
			names[name] = true
		}
		if o.section.Name == "" {
			o.section.Name = service
		}
		if tag := openapi.Tag(o.section.tag()); !slices.Contains(d.Tags, tag) {
			d.Tags = append(d.Tags, tag)
			if sent := o.section.Sends; sent != nil {
				d.Webhooks = map[string]jsonSchema{
					"event": {"post": jsonSchema{
						"summary":     "An event",
						"operationId": "receiveEvent",
						"tags":        []string{tag.Name},
						"requestBody": jsonSchema{
							"required": true,
							"content":  jsonSchema{problem.MediaJSON: jsonSchema{"schema": d.answer(reflect.TypeOf(sent))}},
						},
						"responses": jsonSchema{
							"200": jsonSchema{"description": "Taken. Any other status but a 2xx has it sent again, and a 410 ends it."},
						},
					}},
				}
			}
		}
		if d.Paths[o.Path] == nil {
			d.Paths[o.Path] = jsonSchema{}
		}
		d.Paths[o.Path][strings.ToLower(o.Method)] = d.operation(o)
	}
	return d.Document
}

func (s Section) tag() openapi.Tag { return openapi.Tag{Name: s.Name, Description: s.Doc} }

const aboutAPI = `The control plane of a company that rents out bare-metal servers.

Every error is a Problem (RFC 9457), whose ` + "`errors`" + ` name all members that are wrong. Members of a body that are not in this
document mean nothing. In a PATCH, what is not sent stays as it is, and null clears. Answers leave out what is not set.`

// newDocument is a document without paths.
func newDocument() *document {
	d := &document{
		&openapi.Document{OpenAPI: "3.1.0", Paths: map[string]jsonSchema{}, Components: map[string]map[string]jsonSchema{}},
		map[string]reflect.Type{},
	}
	d.Info = jsonSchema{"title": "Ironplane", "version": "1", "description": aboutAPI,
		"contact": jsonSchema{"name": "Ironplane", "url": "https://github.com/ironplane/ironplane"},
		"license": jsonSchema{"name": "Apache-2.0", "identifier": "Apache-2.0"}}
	d.Servers = []jsonSchema{{"url": "/", "description": "The installation that this document comes from."}}
	d.Security = []jsonSchema{{"bearer": []string{}}, {"apiKey": []string{}}}
	d.Define("securitySchemes", "bearer", jsonSchema{"type": "http", "scheme": "bearer", "description": "An API key."})
	d.Define("securitySchemes", "apiKey", jsonSchema{"type": "apiKey", "in": "header", "name": "X-Api-Key", "description": "An API key."})
	return d
}

// define adds a component and answers a reference to it.
func (d *document) define(kind, name string, s jsonSchema) jsonSchema {
	if !d.Define(kind, name, s) {
		panic(fmt.Sprintf("rest: two %s have the name %s in the API document", kind, name))
	}
	return jsonSchema{"$ref": "#/components/" + kind + "/" + name}
}

// refusals are the statuses of errors, and when they come.
var refusals = map[int]string{
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

func textHeader(description string) jsonSchema {
	return jsonSchema{"description": description, "schema": jsonSchema{"type": "string"}}
}

var refusalHeaders = map[int]jsonSchema{
	401: {"WWW-Authenticate": textHeader("Bearer")},
	429: {"Retry-After": textHeader("Seconds.")},
	503: {"Retry-After": textHeader("Seconds.")},
}

func (d *document) refusal(status int) jsonSchema {
	body := jsonSchema{"schema": d.answer(reflect.TypeFor[problem.Problem]())}
	response := jsonSchema{"description": refusals[status], "content": jsonSchema{problem.MediaJSON: body, problem.MediaProblem: body}}
	if headers := refusalHeaders[status]; headers != nil {
		response["headers"] = headers
	}
	return d.define("responses", strings.ReplaceAll(http.StatusText(status), " ", ""), response)
}

// refusals are the statuses that an operation may refuse with.
func (o *operation) refusals() []int {
	statuses := []int{400, 401, 429, 500, 503} // a key that is sent must be valid, also where none is needed
	if o.Guard != guard.Public {
		statuses = append(statuses, 403)
	}
	if len(o.parameters) > 0 {
		statuses = append(statuses, 404)
	}
	if o.raw != nil && len(o.raw.takes) > 0 {
		statuses = append(statuses, 413, 415, 422)
	}
	if o.raw != nil && o.raw.ranges {
		statuses = append(statuses, 416)
	}
	if o.raw != nil {
		statuses = append(statuses, o.raw.refuses...)
	}
	if o.redirects() {
		statuses = append(statuses, 422)
	}
	if o.request.body != nil {
		statuses = append(statuses, 413, 415, 422)
	}
	if o.Method == http.MethodPost || o.Method == http.MethodDelete {
		statuses = append(statuses, 409)
	}
	if o.request.match != nil {
		statuses = append(statuses, 412)
	}
	return statuses
}

// redirects tells whether a browser is sent elsewhere, which there may not be.
func (o *operation) redirects() bool { return o.responseType.Implements(reflect.TypeFor[redirect]()) }

func (d *document) operation(o *operation) jsonSchema {
	status := http.StatusOK
	if o.raw != nil {
		status = o.raw.status
	}
	responses := jsonSchema{strconv.Itoa(status): d.success(o)}
	if o.raw != nil && o.raw.ranges {
		responses["206"] = jsonSchema{"description": "A part of it.", "content": rawContent(o.raw.gives)}
	}
	if o.Method == http.MethodGet && (o.raw != nil && o.raw.ranges || o.responseType.Implements(reflect.TypeFor[whole]())) {
		responses["304"] = jsonSchema{"description": "It is what If-None-Match names."}
	}
	if o.redirects() {
		responses["302"] = jsonSchema{
			"description": "A browser, whose Accept prefers text/html, is sent there.",
			"headers":     jsonSchema{"Location": textHeader("The page.")},
		}
	}
	for _, status := range o.refusals() {
		responses[strconv.Itoa(status)] = d.refusal(status)
	}
	described := jsonSchema{"summary": o.Summary, "description": o.description(), "operationId": o.Name, "tags": []string{o.section.Name},
		"responses": responses, "x-guard": o.guard()}
	if o.Extension {
		described["x-extension"] = true
	}
	if o.Several {
		described["x-several"] = maxItems
	}
	if o.Guard == guard.Public {
		described["security"] = []jsonSchema{}
	}
	if parameters := d.parameters(o); len(parameters) > 0 {
		described["parameters"] = parameters
	}
	if p := o.plan(); p != nil {
		body := d.body(p, p.root, o.occasion(), capital(o.Name)+"Body")
		d.exemplify(d.answer(o.responseType), p, p.root)
		content := jsonSchema{problem.MediaJSON: jsonSchema{"schema": body, "example": o.Example}}
		if o.csv != nil {
			content[problem.MediaCSV] = jsonSchema{"schema": jsonSchema{"type": "string",
				"description": "The first line names the members, the others make an item each, all of them or none."},
				"x-answer": d.answer(reflect.TypeFor[Bulk]())}
		}
		if o.request.read != nil {
			content["multipart/form-data"] = jsonSchema{"schema": body}
		}
		described["requestBody"] = jsonSchema{"required": true, "content": content}
	}
	if o.raw != nil && len(o.raw.takes) > 0 {
		described["requestBody"] = jsonSchema{"required": true, "content": rawContent(o.raw.takes)}
	}
	if o.changes {
		described["x-logs"], described["x-again"] = o.Effect.Logs, o.Effect.Again
	}
	return described
}

// description is what the operation says of itself, and then what it declares, in sentences.
func (o *operation) description() string {
	var said []string
	say := func(when bool, sentence string) {
		if when {
			said = append(said, sentence)
		}
	}
	say(o.Doc != "", o.Doc)
	say(o.list, "Answers all items, or pages of them with per_page.")
	say(o.Scoped, "There are those items that the caller may know of.")
	say(o.csv != nil, "A body of text/csv makes many items and answers a Bulk: how many, and the first and last id.")
	say(o.Several, fmt.Sprintf("The path takes up to %d ids with commas between, too: all of the items are changed, or none.", maxItems))
	say(o.Several && o.responseType != reflect.TypeFor[Message](), "The answer is then an array of what is answered of one.")
	needs, permission := o.guard(), strings.Contains(o.guard(), ".")
	say(o.Guard == guard.Public, "Needs no key.")
	say(permission, "Needs the permission "+needs+".")
	say(o.Guard != guard.Public && !permission, "Needs "+needs+".")
	say(o.Effect.Logs == LogsItem, "The log gets one item.")
	say(o.Effect.Logs == LogsEach, "The log gets an item for each that changes.")
	say(o.Effect.Logs == LogsSummary, "The log gets one item that says how many changed.")
	again := "Sent again, "
	if o.Method == http.MethodPost && o.Effect.Again != AgainSame {
		again = "Sent again without an Idempotency-Key, "
	}
	say(o.Effect.Again == AgainSame, again+"it leaves things as they are.")
	say(o.Effect.Again == AgainAnother, again+"it is done once more.")
	say(o.Effect.Again == AgainRefused, again+"it is refused.")
	return strings.Join(said, " ")
}

// guard is what a caller needs: network.groups write.
func (o *operation) guard() string {
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
func rawContent(types []string) jsonSchema {
	content := jsonSchema{}
	for _, media := range types {
		content[media] = jsonSchema{"schema": jsonSchema{"type": "string", "format": "binary"}}
	}
	return content
}

// success describes the answer of an operation that does what it was asked.
func (d *document) success(o *operation) jsonSchema {
	if o.raw != nil {
		return jsonSchema{"description": "Done.", "content": rawContent(o.raw.gives)}
	}
	answer := d.answer(o.responseType)
	headers := jsonSchema{}
	content := jsonSchema{}
	if o.list {
		answer = jsonSchema{"type": "array", "items": answer}
		headers["Link"] = textHeader("With per_page or page: the pages first, next and prev.")
		headers["X-Total-Count"] = textHeader("With count=true: how many items there are; a search counts to 10000+.")
		content[problem.MediaCSV] = jsonSchema{"schema": jsonSchema{"type": "string"}}
	} else if o.responseType.Implements(reflect.TypeFor[tagged]()) {
		headers["ETag"] = textHeader("The item's version, for If-Match.")
	} else if o.responseType.Implements(reflect.TypeFor[whole]()) {
		headers["ETag"] = textHeader("Of all that the answer says, for If-None-Match.")
	}
	content[problem.MediaJSON] = jsonSchema{"schema": answer}
	success := jsonSchema{"description": "Done.", "content": content}
	if len(headers) > 0 {
		success["headers"] = headers
	}
	return success
}

func documentHandler(d *openapi.Document) http.Handler {
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
