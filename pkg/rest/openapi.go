package rest

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/ironplane/ironplane/pkg/principal"
	"github.com/ironplane/ironplane/pkg/secret"
)

// schema is a piece of an OpenAPI document.
type schema = map[string]any

// OpenAPI is a document of OpenAPI 3.1, as far as merging needs to know it.
type OpenAPI struct {
	OpenAPI    string            `json:"openapi"`
	Info       schema            `json:"info"`
	Security   []schema          `json:"security"`
	Paths      map[string]schema `json:"paths"`
	Components struct {
		Schemas         map[string]schema `json:"schemas"`
		Responses       map[string]schema `json:"responses"`
		SecuritySchemes map[string]schema `json:"securitySchemes"`
	} `json:"components"`
}

// Document describes a service's routes. What it says of bodies comes from the plans that decode them, so it says
// the same as the code does. Internal routes are not in it.
func Document(service string, routes []Route) *OpenAPI {
	d := NewDocument()
	for _, o := range operations(routes) {
		if !o.Public() {
			continue
		}
		if d.Paths[o.Path] == nil {
			d.Paths[o.Path] = schema{}
		}
		d.Paths[o.Path][strings.ToLower(o.Method)] = d.operation(service, o)
	}
	return d
}

// NewDocument is a document without paths.
func NewDocument() *OpenAPI {
	d := &OpenAPI{OpenAPI: "3.1.0", Paths: map[string]schema{}}
	d.Info = schema{"title": "Ironplane", "version": "1", "license": schema{"name": "Apache-2.0", "identifier": "Apache-2.0"},
		"description": "The control plane of a bare-metal hosting company."}
	d.Security = []schema{{"bearer": []string{}}, {"apiKey": []string{}}}
	d.Components.SecuritySchemes = map[string]schema{
		"bearer": {"type": "http", "scheme": "bearer"},
		"apiKey": {"type": "apiKey", "in": "header", "name": "X-Api-Key"},
	}
	d.Components.Schemas = map[string]schema{
		"Timestamp": {"type": "object", "required": []string{"iso_8601", "unix"}, "properties": schema{
			"iso_8601": schema{"type": "string", "format": "date-time"}, "unix": schema{"type": "integer", "format": "int64"}}},
	}
	d.Components.Schemas["Problem"] = d.response(reflect.TypeFor[Problem]())
	content := schema{"application/json": schema{"schema": component("Problem")}, "application/problem+json": schema{"schema": component("Problem")}}
	d.Components.Responses = map[string]schema{"Problem": {"description": "What went wrong.", "content": content}}
	return d
}

// Merge adds the paths and components of other.
func (d *OpenAPI) Merge(other *OpenAPI) error {
	for path, item := range other.Paths {
		if d.Paths[path] != nil {
			return fmt.Errorf("two services describe %s", path)
		}
		d.Paths[path] = item
	}
	for name, s := range other.Components.Schemas {
		if mine, ok := d.Components.Schemas[name]; ok && !sameJSON(mine, s) {
			return fmt.Errorf("two services describe %s, differently", name)
		}
		d.Components.Schemas[name] = s
	}
	return nil
}

func sameJSON(a, b any) bool {
	one, _ := json.Marshal(a)
	two, _ := json.Marshal(b)
	return string(one) == string(two)
}

func component(name string) schema { return schema{"$ref": "#/components/schemas/" + name} }

func (d *OpenAPI) operation(service string, o *operation) schema {
	answer := d.response(o.responseType)
	if o.list {
		answer = schema{"type": "array", "items": answer}
	}
	responses := schema{
		"200":     schema{"description": "Done.", "content": schema{"application/json": schema{"schema": answer}}},
		"default": schema{"$ref": "#/components/responses/Problem"},
	}
	described := schema{"summary": o.Summary, "operationId": operationID(o), "tags": []string{service},
		"responses": responses, "x-guard": guardText(o)}
	if o.Guard == principal.Public {
		described["security"] = []schema{}
	}
	if parameters := describeParameters(o); len(parameters) > 0 {
		described["parameters"] = parameters
	}
	if o.request.body != nil {
		body := reflect.New(o.requestType.FieldByIndex(o.request.body).Type).Interface().(bodyDecoder).plan()
		on := edit
		if o.Method == http.MethodPost {
			on = create
		}
		described["requestBody"] = schema{"required": true, "content": schema{"application/json": schema{"schema": body.schema(body.root, on)}}}
	}
	return described
}

func guardText(o *operation) string {
	if leaf, ok := o.Guard.(principal.Leaf); ok {
		if o.Method == http.MethodGet {
			return leaf.String() + " read"
		}
		return leaf.String() + " write"
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
	for _, name := range o.parameters {
		all = append(all, schema{"name": name, "in": "path", "required": true, "schema": schema{"type": "string"}})
	}
	for _, p := range o.request.query {
		of := schema{"type": "string"}
		if o.requestType.FieldByIndex(p.index).Type.Kind() == reflect.Int64 {
			of = schema{"type": "integer"}
		}
		described := schema{"name": p.name, "in": "query", "required": p.required, "schema": of}
		if p.doc != "" {
			described["description"] = p.doc
		}
		all = append(all, described)
	}
	return all
}

// schema describes a request's body.
func (p *bodyPlan) schema(s *shape, on occasion) schema {
	properties, required := schema{}, []string{}
	for _, name := range s.names {
		m := s.members[name]
		if m.nested != nil {
			properties[name] = p.schema(m.nested, on)
			continue
		}
		l := p.leaves[m.leaf]
		described := maps.Clone(l.kind.schema)
		l.describe(described, on)
		if m.alias {
			described["description"] = "Another spelling of " + l.pointer + "."
		} else if l.required&on != 0 {
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

func (l *leaf) describe(s schema, on occasion) {
	if l.doc != "" {
		s["description"] = l.doc
	}
	if l.example != "" {
		s["examples"] = []any{exampleOf(l.kind, l.example)}
	}
	switch {
	case l.kind == stringKind:
		s["maxLength"] = int64(maxString)
		if l.rules.max != nil {
			s["maxLength"] = *l.rules.max
		}
		if l.required&on != 0 {
			s["minLength"] = 1
		}
	case l.kind == integerKind:
		if l.rules.min != nil {
			s["minimum"] = *l.rules.min
		}
		if l.rules.max != nil {
			s["maximum"] = *l.rules.max
		}
	}
	if kind, ok := s["type"].(string); ok && l.optional {
		s["type"] = []string{kind, "null"}
	}
}

func exampleOf(k *kind, text string) any {
	var value any
	if k.text || json.Unmarshal([]byte(text), &value) != nil {
		return text
	}
	return value
}

// response describes what a Go type is marshalled to. A named struct becomes a component.
func (d *OpenAPI) response(t reflect.Type) schema {
	switch t {
	case reflect.TypeFor[Timestamp]():
		return component("Timestamp")
	case reflect.TypeFor[secret.String]():
		panic("rest: an answer holds a secret.String")
	}
	switch t.Kind() {
	case reflect.Pointer:
		return d.response(t.Elem())
	case reflect.Slice:
		return schema{"type": "array", "items": d.response(t.Elem())}
	case reflect.Bool:
		return schema{"type": "boolean"}
	case reflect.Int, reflect.Int32, reflect.Int64:
		return schema{"type": "integer"}
	case reflect.String:
		return schema{"type": "string"}
	case reflect.Struct:
		if t.Name() == "" {
			return d.members(t)
		}
		name := strings.ToUpper(t.Name()[:1]) + t.Name()[1:]
		if _, ok := d.Components.Schemas[name]; !ok {
			d.Components.Schemas[name] = schema{} // ends recursion
			d.Components.Schemas[name] = d.members(t)
		}
		return component(name)
	default:
		panic(fmt.Sprintf("rest: no answer can have a member of type %s", t))
	}
}

func (d *OpenAPI) members(t reflect.Type) schema {
	properties, required := schema{}, []string{}
	var add func(t reflect.Type)
	add = func(t reflect.Type) {
		for i := range t.NumField() {
			field := t.Field(i)
			if field.Anonymous {
				add(field.Type)
				continue
			}
			name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
			if name == "" || name == "-" {
				continue
			}
			described := d.response(field.Type)
			if doc := field.Tag.Get("doc"); doc != "" {
				described["description"] = doc
			}
			properties[name] = described
			if !slices.Contains(strings.Split(options, ","), "omitempty") && !strings.Contains(options, "omitzero") {
				required = append(required, name)
			}
		}
	}
	add(t)
	object := schema{"type": "object", "properties": properties}
	if len(required) > 0 {
		object["required"] = required
	}
	return object
}

func documentHandler(d *OpenAPI) http.Handler {
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
