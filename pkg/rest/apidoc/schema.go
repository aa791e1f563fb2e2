package apidoc

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest/body"
	"github.com/ironplane/ironplane/pkg/rest/noun"
	"github.com/ironplane/ironplane/pkg/rest/openapi"
	"github.com/ironplane/ironplane/pkg/rest/route"
	"github.com/ironplane/ironplane/pkg/schema"
	"github.com/ironplane/ironplane/pkg/secret"
)

// typeSchema describes the JSON of a Go type in a response. A named struct becomes a component.
func (d *document) typeSchema(t reflect.Type) openapi.Schema {
	switch t {
	case reflect.TypeFor[body.Timestamp]():
		return d.define("schemas", "Timestamp", timestampSchema("iso_8601", "unix"))
	case reflect.TypeFor[json.RawMessage]():
		return openapi.Schema{} // anything
	case reflect.TypeFor[secret.String]():
		panic("rest: a response type has a secret.String")
	}
	switch t.Kind() {
	case reflect.Pointer:
		return d.typeSchema(t.Elem())
	case reflect.Slice:
		return openapi.Schema{"type": "array", "items": d.typeSchema(t.Elem())}
	case reflect.Map:
		return openapi.Schema{"type": "object", "additionalProperties": d.typeSchema(t.Elem())}
	case reflect.Bool, reflect.Int, reflect.Int32, reflect.Int64, reflect.String:
		return scalar(&schema.Member{Type: t})
	case reflect.Struct:
		if t.Name() == "" {
			return d.structSchema(t)
		}
		name := noun.Capital(t.Name())
		if known, ok := d.types[name]; ok && known != t {
			panic(fmt.Sprintf("rest: %s and %s have the same name in the API document", known, t))
		} else if !ok {
			d.types[name] = t // before its members, which ends recursion
			return d.define("schemas", name, d.structSchema(t))
		}
		return openapi.Schema{"$ref": "#/components/schemas/" + name}
	default:
		panic(fmt.Sprintf("rest: no response can have a member of type %s", t))
	}
}

func (d *document) structSchema(t reflect.Type) openapi.Schema {
	object := newObject()
	for _, m := range schema.Describe(t).Members {
		if m.JSON == "" {
			continue
		}
		described := d.typeSchema(m.Type)
		if text := describe(m); text != "" {
			described["description"] = text
		}
		if m.Enum != nil {
			described["enum"] = m.Enum
		}
		if m.Format != "" {
			described["format"] = m.Format
		}
		if m.Example != nil {
			described["examples"] = []any{body.ParseExample(*m.Example, described["type"] == "string")}
		} else if m.JSON == "id" {
			described["examples"] = []any{1}
		}
		object.add(m.JSON, described, !m.OmitEmpty)
	}
	return object.schema()
}

// addExamples gives the members of a response the examples of the members with the same names in the request.
func (d *document) addExamples(answer openapi.Schema, p *body.Plan, n *body.Node) {
	if name, ok := strings.CutPrefix(fmt.Sprint(answer["$ref"]), "#/components/schemas/"); ok {
		if t := d.types[name]; t == nil || t == reflect.TypeFor[problem.Ref]() || t.PkgPath() == reflect.TypeFor[route.Message]().PkgPath() {
			return // these have examples of their own
		}
		answer = d.Components["schemas"][name]
	}
	properties, _ := answer["properties"].(openapi.Schema)
	for _, name := range n.Names {
		property, ok := properties[name].(openapi.Schema)
		if m := n.Members[name]; !ok || property["examples"] != nil {
			continue
		} else if m.Nested != nil {
			d.addExamples(property, p, m.Nested)
		} else if f := p.Fields[m.Field]; f.Example != nil && property["$ref"] == nil && property["items"] == nil {
			if _, isText := f.ExampleValue().(string); isText == (property["type"] == "string") { // otherwise it is another member of the same name
				property["examples"] = []any{f.ExampleValue()}
			}
		}
	}
}

// bodySchema describes a request's body, or an object in one, as a component. It leaves aliases out, because generated clients
// would turn two spellings into the same name.
func (d *document) bodySchema(p *body.Plan, n *body.Node, on schema.Action, name string) openapi.Schema {
	object := newObject()
	for _, member := range n.Names {
		m := n.Members[member]
		switch {
		case m.Alias:
		case m.Nested != nil:
			inner := name + noun.Camel(strings.ReplaceAll(member, "_", " "))
			if own := m.Nested.Of.Name(); own != "" { // other bodies have the same object
				inner = on.String() + noun.Capital(strings.TrimSuffix(own, "Body")) + "Body"
			}
			s := d.bodySchema(p, m.Nested, on, inner)
			if !anyField(p, m.Nested, func(f *body.Field) bool { return !acceptsNull(f, on) }) {
				s = orNull(s)
			}
			if text := describe(m.Nested.Member); text != "" {
				s["description"] = text
			}
			object.add(member, s, anyField(p, m.Nested, func(f *body.Field) bool { return f.Required&on != 0 }))
		default:
			f := p.Fields[m.Field]
			object.add(member, d.fieldSchema(f, on), f.Required&on != 0)
		}
	}
	return d.define("schemas", name, object.schema())
}

// anyField reports whether is holds for a member of an object in a body.
func anyField(p *body.Plan, n *body.Node, is func(*body.Field) bool) bool {
	return slices.ContainsFunc(n.Names, func(name string) bool {
		m := n.Members[name]
		return m.Nested != nil && anyField(p, m.Nested, is) || m.Nested == nil && !m.Alias && is(p.Fields[m.Field])
	})
}

// acceptsNull reports whether null has a meaning for a member. In an edit it clears the member, or restores its default.
func acceptsNull(f *body.Field, on schema.Action) bool {
	return on == schema.Edit && (f.Optional && f.Kind != body.KindBool || f.Kind == body.KindRefs || f.Enum != nil && f.Required == 0)
}

func (d *document) fieldSchema(f *body.Field, on schema.Action) openapi.Schema {
	s := openapi.Schema{}
	switch f.Kind {
	case body.KindRef:
		s = d.define("schemas", "RefBody", refSchema)
	case body.KindRefOrName:
		s["anyOf"] = []openapi.Schema{{"type": "string", "minLength": 1, "maxLength": body.MaxString}, d.define("schemas", "RefBody", refSchema)}
	case body.KindRefs:
		s["items"] = d.define("schemas", "RefBody", refSchema)
	case body.KindTimestamp:
		s = d.define("schemas", "TimestampBody", timestampSchema())
	case body.KindString, body.KindInteger, body.KindSecret:
		s = scalar(f.Member)
	}
	maps.Copy(s, f.Kind.Schema)
	if of := f.Kind.Items; of != nil {
		p := body.NewPlan(of)
		s["items"] = d.bodySchema(p, p.Root, on, noun.Capital(of.Name()))
	}
	if f.Kind.Text && f.Max == nil && f.Kind != body.KindRefOrName {
		s["maxLength"] = body.MaxString
	}
	if f.Kind == body.KindString && f.Required&on != 0 {
		s["minLength"] = 1
	}
	if f.Example != nil {
		s["examples"] = []any{f.ExampleValue()}
	}
	if acceptsNull(f, on) {
		s = orNull(s)
	}
	text := describe(f.Member)
	if len(f.Aliases) > 0 {
		if text != "" {
			text = strings.TrimSuffix(text, ".") + ". "
		}
		text += "Also accepted as " + strings.Join(f.Aliases, ", ") + "."
	}
	if text != "" {
		s["description"] = text
	}
	if f.Extension {
		s["x-extension"] = true
	}
	return s
}

// scalar describes a string, a number or a boolean with its bounds.
func scalar(m *schema.Member) openapi.Schema {
	s := openapi.Schema{}
	minimum, maximum := "minimum", "maximum"
	switch m.Type.Kind() {
	case reflect.Bool:
		s["type"] = "boolean"
	case reflect.Int32:
		s["type"], s["format"] = "integer", "int32"
	case reflect.Int, reflect.Int64:
		s["type"], s["format"] = "integer", "int64"
	default:
		s["type"] = "string"
		minimum, maximum = "minLength", "maxLength"
	}
	if m.Min != nil {
		s[minimum] = *m.Min
	}
	if m.Max != nil {
		s[maximum] = *m.Max
	}
	if m.Enum != nil {
		s["enum"] = m.Enum
	}
	if m.Pattern != nil {
		s["pattern"] = m.Pattern.String()
	}
	if m.Format != "" {
		s["format"] = m.Format
	}
	return s
}

// orNull returns the schema with null as another allowed value.
func orNull(s openapi.Schema) openapi.Schema {
	if kind, simple := s["type"].(string); simple && s["enum"] == nil {
		s["type"] = []string{kind, "null"}
		return s
	}
	return openapi.Schema{"anyOf": []openapi.Schema{s, {"type": "null"}}}
}

var refSchema = openapi.Schema{
	"type":        "object",
	"required":    []string{"id"},
	"description": "A reference to an item. The id alone, as a number, is accepted too.",
	"properties": openapi.Schema{"id": openapi.Schema{
		"type": "integer", "format": "int64", "examples": []any{1}, "description": "The id of the item.",
	}},
}

// timestampSchema describes a timestamp. The members are required if their names are given.
func timestampSchema(required ...string) openapi.Schema {
	object := newObject()
	object.add(
		"iso_8601",
		openapi.Schema{
			"type":        "string",
			"format":      "date-time",
			"examples":    []any{"2026-11-20T10:00:00Z"},
			"description": "The date and time in ISO 8601.",
		},
		len(required) > 0,
	)
	object.add(
		"unix",
		openapi.Schema{
			"type":        "integer",
			"format":      "int64",
			"examples":    []any{1795168800},
			"description": "The same time in seconds since 1970-01-01 00:00 UTC.",
		},
		len(required) > 0,
	)
	return object.schema()
}

// objectSchema is the description of an object under construction.
type objectSchema struct {
	properties openapi.Schema
	required   []string
}

func newObject() *objectSchema { return &objectSchema{properties: openapi.Schema{}} }

func (o *objectSchema) add(name string, s openapi.Schema, required bool) {
	o.properties[name] = s
	if required {
		o.required = append(o.required, name)
	}
}

func (o *objectSchema) schema() openapi.Schema {
	s := openapi.Schema{"type": "object", "properties": o.properties}
	if len(o.required) > 0 {
		s["required"] = o.required
	}
	return s
}
