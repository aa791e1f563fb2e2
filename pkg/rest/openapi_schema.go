package rest

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/ironplane/ironplane/pkg/schema"
	"github.com/ironplane/ironplane/pkg/secret"
)

// answer describes what a Go type is marshalled to. A named struct becomes a component.
func (d *document) answer(t reflect.Type) jsonSchema {
	switch t {
	case reflect.TypeFor[Timestamp]():
		return d.define("schemas", "Timestamp", timestampSchema("iso_8601", "unix"))
	case reflect.TypeFor[json.RawMessage]():
		return jsonSchema{} // anything
	case reflect.TypeFor[secret.String]():
		panic("rest: an answer holds a secret.String")
	}
	switch t.Kind() {
	case reflect.Pointer:
		return d.answer(t.Elem())
	case reflect.Slice:
		return jsonSchema{"type": "array", "items": d.answer(t.Elem())}
	case reflect.Map:
		return jsonSchema{"type": "object", "additionalProperties": d.answer(t.Elem())}
	case reflect.Bool, reflect.Int, reflect.Int32, reflect.Int64, reflect.String:
		return scalar(&schema.Member{Type: t})
	case reflect.Struct:
		if t.Name() == "" {
			return d.members(t)
		}
		name := capital(t.Name())
		if known, ok := d.types[name]; ok && known != t {
			panic(fmt.Sprintf("rest: %s and %s have one name in the API document", known, t))
		} else if !ok {
			d.types[name] = t // first, which ends recursion
			return d.define("schemas", name, d.members(t))
		}
		return jsonSchema{"$ref": "#/components/schemas/" + name}
	default:
		panic(fmt.Sprintf("rest: no answer can have a member of type %s", t))
	}
}

func (d *document) members(t reflect.Type) jsonSchema {
	object := newObject()
	for _, m := range schema.Of(t).Members {
		if m.JSON == "" {
			continue
		}
		described := d.answer(m.Type)
		if m.Doc != "" {
			described["description"] = m.Doc
		}
		if m.Enum != nil {
			described["enum"] = m.Enum
		}
		if m.Format != "" {
			described["format"] = m.Format
		}
		if m.Example != nil {
			described["examples"] = []any{valueOf(*m.Example, described["type"] == "string")}
		} else if m.JSON == "id" {
			described["examples"] = []any{1}
		}
		object.add(m.JSON, described, !m.OmitEmpty)
	}
	return object.schema()
}

// exemplify gives the members of an answer the examples that the request's members of the same names have.
func (d *document) exemplify(answer jsonSchema, p *bodyPlan, n *node) {
	if name, ok := strings.CutPrefix(fmt.Sprint(answer["$ref"]), "#/components/schemas/"); ok {
		if t := d.types[name]; t == nil || t == reflect.TypeFor[Ref]() || t.PkgPath() == reflect.TypeFor[RefID]().PkgPath() {
			return // of which the same is said everywhere
		}
		answer = d.Components["schemas"][name]
	}
	properties, _ := answer["properties"].(jsonSchema)
	for _, name := range n.names {
		property, ok := properties[name].(jsonSchema)
		if m := n.members[name]; !ok || property["examples"] != nil {
			continue
		} else if m.nested != nil {
			d.exemplify(property, p, m.nested)
		} else if f := p.fields[m.field]; f.Example != nil && property["$ref"] == nil && property["items"] == nil {
			if _, isText := f.example().(string); isText == (property["type"] == "string") { // else it is another thing of that name
				property["examples"] = []any{f.example()}
			}
		}
	}
}

// body describes a request's body, or an object in one, as a component. Of the spellings of a member it has the first
// alone: two of them would be one name in many a language.
func (d *document) body(p *bodyPlan, n *node, on schema.Occasion, name string) jsonSchema {
	object := newObject()
	for _, member := range n.names {
		m := n.members[member]
		switch {
		case m.alias:
		case m.nested != nil:
			inner := name + camel(strings.ReplaceAll(member, "_", " "))
			if own := m.nested.of.Name(); own != "" { // which others have, too
				inner = on.String() + capital(strings.TrimSuffix(own, "Body")) + "Body"
			}
			s := d.body(p, m.nested, on, inner)
			if !p.some(m.nested, func(f *field) bool { return !f.clears(on) }) {
				s = orNull(s)
			}
			object.add(member, s, p.some(m.nested, func(f *field) bool { return f.Required&on != 0 }))
		default:
			f := p.fields[m.field]
			object.add(member, f.describe(d, on), f.Required&on != 0)
		}
	}
	return d.define("schemas", name, object.schema())
}

// some tells whether one of the members of an object in a body is such.
func (p *bodyPlan) some(n *node, is func(*field) bool) bool {
	return slices.ContainsFunc(n.names, func(name string) bool {
		m := n.members[name]
		return m.nested != nil && p.some(m.nested, is) || m.nested == nil && !m.alias && is(p.fields[m.field])
	})
}

// clears tells whether null means something in this member: in an edit, to clear it, or to make one of several what it is by
// default.
func (f *field) clears(on schema.Occasion) bool {
	return on == schema.Edit && (f.Optional && f.kind != boolKind || f.kind == refsKind || f.Enum != nil && f.Required == 0)
}

func (f *field) describe(d *document, on schema.Occasion) jsonSchema {
	s := jsonSchema{}
	switch f.kind {
	case refKind:
		s = d.define("schemas", "RefBody", refSchema)
	case refOrNameKind:
		s["anyOf"] = []jsonSchema{{"type": "string", "minLength": 1, "maxLength": maxString}, d.define("schemas", "RefBody", refSchema)}
	case refsKind:
		s["items"] = d.define("schemas", "RefBody", refSchema)
	case timestampKind:
		s = d.define("schemas", "TimestampBody", timestampSchema())
	case stringKind, integerKind, secretKind:
		s = scalar(f.Member)
	}
	maps.Copy(s, f.kind.schema)
	if of := f.kind.items; of != nil {
		p := makePlan(of)
		s["items"] = d.body(p, p.root, on, capital(of.Name()))
	}
	if f.kind.text && f.Max == nil && f.kind != refOrNameKind {
		s["maxLength"] = maxString
	}
	if f.kind == stringKind && f.Required&on != 0 {
		s["minLength"] = 1
	}
	if f.Example != nil {
		s["examples"] = []any{f.example()}
	}
	if f.clears(on) {
		s = orNull(s)
	}
	says := f.Doc
	if len(f.Also) > 0 {
		says = strings.TrimPrefix(says+"; also read as "+strings.Join(f.Also, ", "), "; ")
	}
	if says != "" {
		s["description"] = says
	}
	if f.Extension {
		s["x-extension"] = true
	}
	return s
}

// scalar describes a member that is a text, a number or a boolean, with its bounds.
func scalar(m *schema.Member) jsonSchema {
	s := jsonSchema{}
	least, most := "minimum", "maximum"
	switch m.Type.Kind() {
	case reflect.Bool:
		s["type"] = "boolean"
	case reflect.Int32:
		s["type"], s["format"] = "integer", "int32"
	case reflect.Int, reflect.Int64:
		s["type"], s["format"] = "integer", "int64"
	default:
		s["type"] = "string"
		least, most = "minLength", "maxLength"
	}
	if m.Min != nil {
		s[least] = *m.Min
	}
	if m.Max != nil {
		s[most] = *m.Max
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

// orNull describes what may be null, too.
func orNull(s jsonSchema) jsonSchema {
	if kind, simple := s["type"].(string); simple && s["enum"] == nil {
		s["type"] = []string{kind, "null"}
		return s
	}
	return jsonSchema{"anyOf": []jsonSchema{s, {"type": "null"}}}
}

// example is a value of the member.
func (f *field) example() any {
	value := valueOf(*f.Example, f.kind.text)
	switch f.kind {
	case refKind:
		return jsonSchema{"id": value}
	case refsKind:
		refs := value.([]any)
		for i, id := range refs {
			refs[i] = jsonSchema{"id": id}
		}
	}
	return value
}

// valueOf is the value that an example's tag stands for.
func valueOf(example string, text bool) any {
	var value any
	if text || json.Unmarshal([]byte(example), &value) != nil {
		return example
	}
	return value
}

var refSchema = jsonSchema{"type": "object", "required": []string{"id"}, "description": "An item, by its id. The id alone is read, too.",
	"properties": jsonSchema{"id": jsonSchema{"type": "integer", "format": "int64", "examples": []any{1}}}}

// timestampSchema describes a moment, of which these members are always there.
func timestampSchema(required ...string) jsonSchema {
	object := newObject()
	object.add("iso_8601", jsonSchema{"type": "string", "format": "date-time", "examples": []any{"2026-11-20T10:00:00Z"}}, len(required) > 0)
	object.add("unix", jsonSchema{"type": "integer", "format": "int64", "examples": []any{1795168800}}, len(required) > 0)
	return object.schema()
}

// objectSchema is the description of an object that is being made.
type objectSchema struct {
	properties jsonSchema
	required   []string
}

func newObject() *objectSchema { return &objectSchema{properties: jsonSchema{}} }

func (o *objectSchema) add(name string, s jsonSchema, required bool) {
	o.properties[name] = s
	if required {
		o.required = append(o.required, name)
	}
}

func (o *objectSchema) schema() jsonSchema {
	s := jsonSchema{"type": "object", "properties": o.properties}
	if len(o.required) > 0 {
		s["required"] = o.required
	}
	return s
}
