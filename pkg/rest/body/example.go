package body

import (
	"encoding/json"
	"fmt"

	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/schema"
)

// Example returns a body with the examples of the members, each under its first name.
func (p *Plan) Example() json.RawMessage { return mustMarshal(p.example(p.Root)) }

// Garbage returns a body in which every member has a wrong type.
func (p *Plan) Garbage() json.RawMessage { return mustMarshal(p.garbage(p.Root)) }

// Secrets returns the members of a body that are stored and never shown. It fails if the text is not a JSON object.
func (p *Plan) Secrets(text []byte) ([]string, error) {
	sent, err := parseObject(text)
	return p.secretsIn(p.Root, sent), err
}

// CheckExample returns an error if a body would be refused in any case: it is not a JSON object, a member is unknown or invalid,
// or a required one is missing. An empty text stands for Example.
func (p *Plan) CheckExample(text []byte, on schema.Action) error {
	if len(text) == 0 {
		if text = p.Example(); len(p.Fields) > 0 && string(text) == "{}" {
			return fmt.Errorf("is missing, and no member of %s has the tag example", p.Root.Of)
		}
	}
	sent, err := parseObject(text)
	if err != nil {
		return fmt.Errorf("is no JSON object: %s", problem.From(err).Detail)
	}
	if pointer := p.findUnknown(p.Root, sent); pointer != "" {
		return fmt.Errorf("has the member %s, which %s does not have", pointer, p.Root.Of)
	}
	spellings := p.read(p.Root, sent)
	for _, s := range spellings {
		for _, w := range s.invalid {
			return fmt.Errorf("has %s, which %s", w.Pointer, w.Message)
		}
	}
	for i, f := range p.Fields {
		if f.Required&on != 0 && !f.Optional && !includesField(spellings, i) {
			return fmt.Errorf("lacks %s, which is required", f.Pointer)
		}
	}
	return nil
}

// findUnknown returns the pointer to a member that the node does not have, or an empty string.
func (p *Plan) findUnknown(n *Node, sent object) string {
	for _, m := range sent {
		known, ok := n.Members[m.name]
		if !ok {
			return n.pointer + "/" + schema.Escape(m.name)
		}
		if inner, isObject := m.value.(object); isObject && known.Nested != nil {
			if pointer := p.findUnknown(known.Nested, inner); pointer != "" {
				return pointer
			}
		}
	}
	return ""
}

func mustMarshal(v any) json.RawMessage {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // it consists of maps and examples
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

// secretsIn returns the members of an object that are stored and never shown.
func (p *Plan) secretsIn(n *Node, sent object) (names []string) {
	for _, m := range sent {
		known := n.Members[m.name]
		if inner, ok := m.value.(object); ok && known.Nested != nil {
			names = append(names, p.secretsIn(known.Nested, inner)...)
		} else if f := p.Fields[known.Field]; known.Nested == nil && f.Kind == KindSecret && !f.Transient {
			names = append(names, f.Member.Dotted())
		}
	}
	return names
}

// ExampleValue returns the example of the member as a JSON value.
func (f *Field) ExampleValue() any {
	value := ParseExample(*f.Example, f.Kind.Text)
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

// ParseExample returns the value of the tag example. text says whether the member is a string.
func ParseExample(example string, text bool) any {
	var value any
	if text || json.Unmarshal([]byte(example), &value) != nil {
		return example
	}
	return value
}
