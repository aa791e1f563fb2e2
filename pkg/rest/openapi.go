package rest

import (
	"encoding/json"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/ironplane/ironplane/pkg/accept"
	"github.com/ironplane/ironplane/pkg/guard"
	"github.com/ironplane/ironplane/pkg/openapi"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/shape"
)

// schema is a piece of an OpenAPI document.
type schema = openapi.Schema

// document is an OpenAPI document that is being made.
type document struct {
	*openapi.Document
	types map[string]reflect.Type // that the schemas describe
}

// Document describes a service's routes. What it says of bodies comes from the plans that decode them, so it says
// the same as the code does. Internal routes are not in it.
func Document(service string, routes []Route) *openapi.Document {
	d := newDocument()
	for _, o := range operations(routes) {
		if !o.Public() {
			continue
		}
		if d.Paths[o.Path] == nil {
			d.Paths[o.Path] = schema{}
		}
		d.Paths[o.Path][strings.ToLower(o.Method)] = d.operation(service, o)
	}
	return d.Document
}

// newDocument is a document without paths.
func newDocument() *document {
	d := &document{&openapi.Document{OpenAPI: "3.1.0", Paths: map[string]schema{}}, map[string]reflect.Type{}}
	d.Info = schema{"title": "Ironplane", "version": "1", "license": schema{"name": "Apache-2.0", "identifier": "Apache-2.0"},
		"description": "The control plane of a bare-metal hosting company."}
	d.Security = []schema{{"bearer": []string{}}, {"apiKey": []string{}}}
	d.Components.SecuritySchemes = map[string]schema{
		"bearer": {"type": "http", "scheme": "bearer"},
		"apiKey": {"type": "apiKey", "in": "header", "name": "X-Api-Key"},
	}
	d.Components.Schemas = map[string]schema{
		"Timestamp": {"type": "object", "required": []string{"iso_8601", "unix"}, "properties": schema{
			"iso_8601": schema{"type": "string", "format": "date-time", "examples": []any{"2026-11-20T10:00:00Z"}}, "unix": schema{"type": "integer", "format": "int64", "examples": []any{1795168800}}}},
	}
	d.response(reflect.TypeFor[problem.Problem]())
	content := schema{accept.JSON: schema{"schema": component("Problem")}, accept.Problem: schema{"schema": component("Problem")}}
	d.Components.Responses = map[string]schema{}
	for status, description := range refusals {
		response := schema{"description": description, "content": content}
		if headers := refusalHeaders[status]; headers != nil {
			response["headers"] = headers
		}
		d.Components.Responses[strconv.Itoa(status)] = response
	}
	return d
}

// refusals are the statuses of errors, and when they come.
var refusals = map[int]string{
	400: "The body is not JSON, or a query parameter is unknown or wrong.",
	401: "No key, or one that is unknown, expired or revoked.",
	403: "The key lacks a permission, which detail names.",
	404: "No such path or item, or one that this key may not know of.",
	405: "The path has other methods.",
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

func textHeader(description string) schema {
	return schema{"description": description, "schema": schema{"type": "string"}}
}

var refusalHeaders = map[int]schema{
	401: {"WWW-Authenticate": textHeader("Bearer")},
	405: {"Allow": textHeader("The methods that the path has.")},
	429: {"Retry-After": textHeader("Seconds.")},
	503: {"Retry-After": textHeader("Seconds.")},
}

// refusals are the statuses that an operation may refuse with.
func (o *operation) refusals() []int {
	statuses := []int{400, 429, 500, 503}
	if o.Guard != guard.Public {
		statuses = append(statuses, 401, 403)
	} else {
		statuses = append(statuses, 401) // a key that is sent must be valid, here too
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

func component(name string) schema { return schema{"$ref": "#/components/schemas/" + name} }

func (d *document) operation(service string, o *operation) schema {
	responses := schema{"200": d.success(o)}
	if o.raw != nil && o.raw.ranges {
		responses["206"] = schema{"description": "A part of it.", "content": rawContent(o.raw.gives)}
	}
	for _, status := range o.refusals() {
		responses[strconv.Itoa(status)] = schema{"$ref": "#/components/responses/" + strconv.Itoa(status)}
	}
	described := schema{"summary": o.Summary, "operationId": operationID(o), "tags": []string{service},
		"responses": responses, "x-guard": guardText(o)}
	if o.Extension {
		described["x-extension"] = true
	}
	if o.Guard == guard.Public {
		described["security"] = []schema{}
	}
	if parameters := describeParameters(o); len(parameters) > 0 {
		described["parameters"] = parameters
	}
	if body := o.plan(); body != nil {
		d.exemplify(d.response(o.responseType), body, body.root)
		content := schema{accept.JSON: schema{"schema": body.schema(body.root, o.occasion()), "example": o.Example}}
		if o.csv != nil {
			content[accept.CSV] = schema{"schema": schema{"type": "string",
				"description": "The first line names the members, the others make an item each, all of them or none."}}
		}
		described["requestBody"] = schema{"required": true, "content": content}
	}
	if o.raw != nil && len(o.raw.takes) > 0 {
		described["requestBody"] = schema{"required": true, "content": rawContent(o.raw.takes)}
	}
	if o.changes {
		described["x-logs"], described["x-again"] = o.Effect.Logs, o.Effect.Again
	}
	return described
}

// rawContent describes bodies of which no more is known than their media type.
func rawContent(types []string) schema {
	content := schema{}
	for _, media := range types {
		content[media] = schema{"schema": schema{"type": "string", "format": "binary"}}
	}
	return content
}

// success describes the answer of an operation that does what it was asked.
func (d *document) success(o *operation) schema {
	if o.raw != nil {
		return schema{"description": "Done.", "content": rawContent(o.raw.gives)}
	}
	answer := d.response(o.responseType)
	headers := schema{}
	content := schema{}
	if o.list {
		answer = schema{"type": "array", "items": answer}
		headers["Link"] = textHeader("With per_page or page: the pages first, next and prev.")
		headers["X-Total-Count"] = textHeader("With count=true: how many items there are; a search counts to 10000+.")
		content[accept.CSV] = schema{"schema": schema{"type": "string"}}
	} else if o.responseType.Implements(reflect.TypeFor[tagged]()) {
		headers["ETag"] = textHeader("The item's version, for If-Match.")
	}
	if o.csv != nil {
		answer = schema{"oneOf": []schema{answer, d.response(reflect.TypeFor[Bulk]())}}
	}
	if o.Several && o.responseType != reflect.TypeFor[Message]() {
		answer = schema{"oneOf": []schema{answer, {"type": "array", "items": answer}}}
	}
	content["application/json"] = schema{"schema": answer}
	success := schema{"description": "Done.", "content": content}
	if len(headers) > 0 {
		success["headers"] = headers
	}
	return success
}

func guardText(o *operation) string {
	if has, ok := o.Guard.(guard.Has); ok {
		if o.Method == http.MethodGet {
			return has.String() + " read"
		}
		return has.String() + " write"
	}
	return o.Guard.String()
}

// operationID is the method and the path in one word: getPortSpeedPortSpeedId.
func operationID(o *operation) string {
	words := strings.FieldsFunc(o.Path, func(r rune) bool { return strings.ContainsRune("/-_{}", r) })
	id := strings.ToLower(o.Method)
	for _, w := range words {
		id += strings.ToUpper(w[:1]) + w[1:]
	}
	return id
}

func describeParameters(o *operation) []schema {
	var all []schema
	add := func(in, name, description string, of schema, required bool) {
		described := schema{"name": name, "in": in, "required": required, "schema": of}
		if description != "" {
			described["description"] = description
		}
		all = append(all, described)
	}
	text, number := schema{"type": "string"}, schema{"type": "integer"}
	for _, name := range o.parameters {
		of, description := text, ""
		for _, p := range o.request.path {
			switch {
			case p.name != name:
			case p.Type == reflect.TypeFor[itemIDs]():
				of = schema{"type": "array", "items": number, "minItems": 1, "maxItems": maxItems, "uniqueItems": true}
				description = "An id, or several with commas between: all of them are changed, or none."
			case p.Type.Kind() == reflect.Int64:
				of = number
			}
		}
		add("path", name, description, of, true)
	}
	for _, p := range o.request.query {
		of := text
		switch t := p.Type; {
		case t.Kind() == reflect.Int64:
			of = number
		case t == reflect.TypeFor[Timestamp]():
			of = schema{"type": "string", "format": "date-time"}
		}
		add("query", p.name, p.Doc, of, p.Required != 0)
	}
	if o.list {
		if o.by.Search != nil {
			add("query", "q", "A part of a human-readable member, in either case.", text, false)
		}
		var both []string
		for _, sort := range o.by.sorts() {
			both = append(both, sort, "-"+sort)
		}
		sorts := schema{"type": "string", "enum": both, "default": "id"}
		if o.by.Default != "" {
			sorts["default"] = o.by.Default
		}
		add("query", "sort", "A member, with - before it from the last to the first.", sorts, false)
		add("query", "per_page", "Answers a page of so many items.", schema{"type": "integer", "minimum": 1, "maximum": maxPerPage}, false)
		add("query", "page", "The page's number, for the first 10,000 items. Without it, follow the Link headers.", schema{"type": "integer", "minimum": 1}, false)
		add("query", "cursor", "From a Link header.", text, false)
		add("query", "count", "Whether to count the items in X-Total-Count.", schema{"type": "boolean"}, false)
		for _, name := range slices.Sorted(maps.Keys(o.by.Filters)) {
			add("query", name, "Only items with this value.", text, false)
		}
	}
	if o.request.match != nil {
		add("header", "If-Match", "ETags that the caller has seen; another one is refused.", text, false)
	}
	if o.Method == http.MethodPost {
		add("header", idempotencyHeader, "For 24 hours the same value and body get the first answer again.", schema{"type": "string", "maxLength": maxString}, false)
	}
	return all
}

// schema describes a request's body.
func (p *bodyPlan) schema(n *node, on shape.Occasion) schema {
	properties, required := schema{}, []string{}
	for _, name := range n.names {
		m := n.members[name]
		if m.nested != nil {
			properties[name] = p.schema(m.nested, on)
			continue
		}
		f := p.fields[m.field]
		described := maps.Clone(f.kind.schema)
		f.describe(described, on)
		if m.alias {
			described["description"] = "Another spelling of " + f.Pointer + "."
		} else if f.Required&on != 0 {
			required = append(required, name)
		}
		properties[name] = described
	}
	object := schema{"type": "object", "properties": properties}
	if len(required) > 0 {
		object["required"] = required
	}
	return object
}

func (f *field) describe(s schema, on shape.Occasion) {
	if f.Doc != "" {
		s["description"] = f.Doc
	}
	if f.Extension {
		s["x-extension"] = true
	}
	if f.Example != nil {
		s["examples"] = []any{valueOf(*f.Example, f.kind.text)}
	}
	switch {
	case f.kind == stringKind:
		s["maxLength"] = int64(maxString)
		if f.Max != nil {
			s["maxLength"] = *f.Max
		}
		if f.Required&on != 0 {
			s["minLength"] = 1
		}
	case f.kind == integerKind:
		if f.Min != nil {
			s["minimum"] = *f.Min
		}
		if f.Max != nil {
			s["maximum"] = *f.Max
		}
	}
	if kind, ok := s["type"].(string); ok && f.Optional {
		s["type"] = []string{kind, "null"}
	}
}

// valueOf is the value that an example's tag stands for.
func valueOf(example string, text bool) any {
	var value any
	if text || json.Unmarshal([]byte(example), &value) != nil {
		return example
	}
	return value
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
