package rest

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/shape"
)

// response describes what a Go type is marshalled to. A named struct becomes a component.
func (d *document) response(t reflect.Type) schema {
	switch t {
	case reflect.TypeFor[Timestamp]():
		return component("Timestamp")
	case reflect.TypeFor[json.RawMessage]():
		return schema{} // anything
	case reflect.TypeFor[secret.String]():
		panic("rest: an answer holds a secret.String")
	}
	switch t.Kind() {
	case reflect.Pointer:
		return d.response(t.Elem())
	case reflect.Slice:
		return schema{"type": "array", "items": d.response(t.Elem())}
	case reflect.Map:
		return schema{"type": "object", "additionalProperties": d.response(t.Elem())}
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
		if known, ok := d.types[name]; ok && known != t {
			panic(fmt.Sprintf("rest: %s and %s have one name in the API document", known, t))
		} else if !ok {
			d.types[name] = t // first, which ends recursion
			d.Components.Schemas[name] = d.members(t)
		}
		return component(name)
	default:
		panic(fmt.Sprintf("rest: no answer can have a member of type %s", t))
	}
}

func (d *document) members(t reflect.Type) schema {
	properties, required := schema{}, []string{}
	for _, m := range shape.Of(t).Members {
		if m.JSON == "" {
			continue
		}
		described := d.response(m.Type)
		if m.Doc != "" {
			described["description"] = m.Doc
		}
		if m.Example != nil {
			described["examples"] = []any{valueOf(*m.Example, described["type"] == "string")}
		} else if m.JSON == "id" {
			described["examples"] = []any{1}
		}
		properties[m.JSON] = described
		if !m.OmitEmpty {
			required = append(required, m.JSON)
		}
	}
	object := schema{"type": "object", "properties": properties}
	if len(required) > 0 {
		object["required"] = required
	}
	return object
}

// exemplify gives the members of an answer the examples that the request's members of the same names have.
func (d *document) exemplify(answer schema, p *bodyPlan, n *node) {
	if name, ok := strings.CutPrefix(fmt.Sprint(answer["$ref"]), component("")["$ref"].(string)); ok {
		if t := d.types[name]; t == nil || t.PkgPath() == reflect.TypeFor[Ref]().PkgPath() {
			return // of which the same is said everywhere
		}
		answer = d.Components.Schemas[name]
	}
	properties, _ := answer["properties"].(schema)
	for _, name := range n.names {
		property, ok := properties[name].(schema)
		if m := n.members[name]; !ok || property["examples"] != nil {
			continue
		} else if m.nested != nil {
			d.exemplify(property, p, m.nested)
		} else if f := p.fields[m.field]; f.Example != nil && property["$ref"] == nil {
			property["examples"] = []any{valueOf(*f.Example, f.kind.text)}
		}
	}
}
