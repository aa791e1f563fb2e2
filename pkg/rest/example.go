package rest

import (
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/ironplane/ironplane/pkg/schema"
)

// plan is how the operation's body is decoded; nil where it takes none.
func (o *operation) plan() *bodyPlan {
	if o.request.body == nil {
		return nil
	}
	return reflect.New(o.requestType.FieldByIndex(o.request.body).Type).Interface().(bodyDecoder).plan()
}

// exemplify makes the operation's examples, of what is given or of the examples of the body's members.
func (o *operation) exemplify(example string) {
	p := o.plan()
	if p == nil {
		return
	}
	if o.Example = json.RawMessage(example); example == "" {
		o.Example = marshalled(p.example(p.root))
	}
	sent, err := parseObject(o.Example)
	if err != nil {
		panic(fmt.Sprintf("rest: the example of %s %s: %v", o.Method, o.Path, err))
	}
	o.Garbage = marshalled(p.garbage(p.root))
	o.Secrets = p.secretsIn(p.root, sent)
}

func marshalled(v any) json.RawMessage {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // made of maps and examples
	}
	return text
}

// example is an object of the examples that the members have, each in its first spelling.
func (p *bodyPlan) example(n *node) map[string]any {
	object := map[string]any{}
	for name, m := range n.members {
		if m.nested != nil {
			if inner := p.example(m.nested); len(inner) > 0 {
				object[name] = inner
			}
		} else if f := p.fields[m.field]; f.Example != nil && !m.alias {
			object[name] = f.example()
		}
	}
	return object
}

// garbage is an object in which every member is of a wrong type.
func (p *bodyPlan) garbage(n *node) map[string]any {
	object := map[string]any{}
	for name, m := range n.members {
		if m.nested != nil {
			object[name] = p.garbage(m.nested)
		} else {
			object[name] = []any{"garbage"}
		}
	}
	return object
}

// secretsIn are the members of an object that are kept and that nobody is shown.
func (p *bodyPlan) secretsIn(n *node, sent object) (names []string) {
	for _, m := range sent {
		known := n.members[m.name]
		if inner, ok := m.value.(object); ok && known.nested != nil {
			names = append(names, p.secretsIn(known.nested, inner)...)
		} else if f := p.fields[known.field]; known.nested == nil && f.kind == secretKind && !f.Passing {
			names = append(names, dotted(f.Member))
		}
	}
	return names
}

// occasion is what the operation's body is sent for.
func (o *operation) occasion() schema.Occasion {
	if o.Method == "PATCH" {
		return schema.Edit
	}
	return schema.Create
}
