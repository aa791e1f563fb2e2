package body

import (
	"encoding/json"
)

// Example is a body made of the examples that the members have, each in its first spelling.
func (p *Plan) Example() json.RawMessage { return marshalled(p.example(p.Root)) }

// Garbage is a body in which every member is of a wrong type.
func (p *Plan) Garbage() json.RawMessage { return marshalled(p.garbage(p.Root)) }

// Secrets are the members of a body that are kept and that nobody is shown. It fails where the text is no JSON object.
func (p *Plan) Secrets(text []byte) ([]string, error) {
	sent, err := parseObject(text)
	if err != nil {
		return nil, err
	}
	return p.secretsIn(p.Root, sent), nil
}

func marshalled(v any) json.RawMessage {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // made of maps and examples
	}
	return text
}

func (p *Plan) example(n *Node) map[string]any {
	object := map[string]any{}
	for name, m := range n.Members {
		if m.Nested != nil {
			if inner := p.example(m.Nested); len(inner) > 0 {
				object[name] = inner
			}
		} else if f := p.Fields[m.Field]; f.Example != nil && !m.Alias {
			object[name] = f.ExampleValue()
		}
	}
	return object
}

func (p *Plan) garbage(n *Node) map[string]any {
	object := map[string]any{}
	for name, m := range n.Members {
		if m.Nested != nil {
			object[name] = p.garbage(m.Nested)
		} else {
			object[name] = []any{"garbage"}
		}
	}
	return object
}

// secretsIn are the members of an object that are kept and that nobody is shown.
func (p *Plan) secretsIn(n *Node, sent object) (names []string) {
	for _, m := range sent {
		known := n.Members[m.name]
		if inner, ok := m.value.(object); ok && known.Nested != nil {
			names = append(names, p.secretsIn(known.Nested, inner)...)
		} else if f := p.Fields[known.Field]; known.Nested == nil && f.Kind == KindSecret && !f.Passing {
			names = append(names, f.Member.Dotted())
		}
	}
	return names
}

// ExampleValue is a value of the member.
func (f *Field) ExampleValue() any {
	value := ValueOf(*f.Example, f.Kind.Text)
	switch f.Kind {
	case KindRef:
		return map[string]any{"id": value}
	case KindRefs:
		refs := value.([]any)
		for i, id := range refs {
			refs[i] = map[string]any{"id": id}
		}
	}
	return value
}

// ValueOf is the value that an example's tag stands for.
func ValueOf(example string, text bool) any {
	var value any
	if text || json.Unmarshal([]byte(example), &value) != nil {
		return example
	}
	return value
}
