package body

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/schema"
	"github.com/ironplane/ironplane/pkg/secret"
)

// Plan decodes a type of bodies. It is built once for each type.
type Plan struct {
	Root   *Node
	Fields []*Field
	stored []*schema.Member // members that are in the table or may be sent
}

// Node is an object in a body: its members by name, in the order of the type's fields.
type Node struct {
	Of      reflect.Type
	Member  *schema.Member // the member that holds the object; nil for the body itself
	Names   []string
	Members map[string]NodeMember
	pointer string
}

// NodeMember is a nested object, or the index of a field.
type NodeMember struct {
	Nested *Node
	Field  int
	Alias  bool
}

// Field is a member with a value.
type Field struct {
	*schema.Member
	Kind *Kind
}

// fieldAt returns the index of the field at a pointer, or -1.
func (p *Plan) fieldAt(pointer string) int {
	return slices.IndexFunc(p.Fields, func(f *Field) bool { return f.Pointer == pointer })
}

// spelledField is a field under one of its names.
type spelledField struct {
	pointer string
	field   int
}

// readShown reads an item from its response, as if the response were sent as a body.
func (p *Plan) readShown(item any) (map[spelledField]reflect.Value, error) {
	text, err := json.Marshal(item)
	if err != nil {
		return nil, fmt.Errorf("read the item as responses show it: %w", err)
	}
	sent, err := parseObject(text)
	if err != nil {
		return nil, fmt.Errorf("read the item as responses show it: %w", err)
	}
	shown := map[spelledField]reflect.Value{}
	for _, s := range p.read(p.Root, sent) {
		for _, part := range s.parts {
			value := part.value
			if part.refused.IsValid() {
				value = part.refused
			}
			shown[spelledField{s.pointer, part.field}] = value
		}
	}
	return shown, nil
}

// read reads the object of a node. It skips unknown members, which Known finds.
func (p *Plan) read(n *Node, sent object) (all []spelling) {
	for _, m := range sent {
		known, ok := n.Members[m.name]
		switch {
		case !ok:
		case known.Nested != nil:
			all = append(all, p.readNested(known.Nested, m.value)...)
		default:
			pointer := p.Fields[known.Field].Pointer
			if known.Alias {
				pointer = "/" + schema.Escape(m.name)
			}
			if s, ok := p.readSpelling(pointer, known.Field, m.value); ok {
				all = append(all, s)
			}
		}
	}
	return all
}

// readNested reads the spellings of a nested object. null clears all of its members.
func (p *Plan) readNested(n *Node, sent any) []spelling {
	switch value := n.normalize(sent).(type) {
	case object:
		return p.read(n, value)
	case nil: // clears all of its members
		cleared := make(object, len(n.Names))
		for i, name := range n.Names {
			cleared[i] = member{name, nil}
		}
		return p.read(n, cleared)
	default:
		return []spelling{{pointer: n.pointer, invalid: problem.Fields{{Pointer: n.pointer, Code: "type", Message: "must be an object"}}}}
	}
}

// readSpelling reads the value of a field. ok is false if the value counts as not sent.
func (p *Plan) readSpelling(pointer string, number int, sent any) (s spelling, ok bool) {
	f := p.Fields[number]
	if sent, ok = f.normalize(sent); !ok {
		return s, false
	}
	s.pointer, s.null = pointer, sent == nil
	if s.null && f.Kind == KindBool {
		s.invalid.Add(pointer, "type", "must be true or false")
	}
	value, refused := s.read(f, sent)
	composite, ok := reflect.Zero(f.Type).Interface().(Composite)
	if !ok {
		s.parts = []part{{number, value, refused}}
		return s, true
	}
	if value = reflect.Indirect(value); value.IsValid() {
		composite = value.Interface().(Composite)
	}
	for pointer, text := range composite.Parts() {
		i := p.fieldAt(pointer)
		normalized, _ := p.Fields[i].normalize(text)
		value, refused := s.read(p.Fields[i], normalized)
		s.parts = append(s.parts, part{i, value, refused})
	}
	return s, true
}

// read returns the value of a field. If it cannot be read, the value is invalid, the error is added to the spelling, and a text
// is returned as refused.
func (s *spelling) read(f *Field, sent any) (value, refused reflect.Value) {
	to := reflect.New(f.Type)
	if sent != nil {
		if code, message := f.Kind.set(to.Elem(), sent, f.Member); code != "" {
			s.invalid.Add(s.pointer, code, "%s", message)
			if f.Kind == KindString && !f.Optional {
				refused = to.Elem()
			} else if f.Kind == KindString {
				refused = to
			}
			return value, refused
		}
	}
	switch {
	case !f.Optional:
		return to.Elem(), refused
	case sent == nil:
		return reflect.Zero(to.Type()), refused
	default:
		return to, refused
	}
}

// NewPlan returns the plan of a struct type. It panics if a member has a type that bodies cannot have.
func NewPlan(t reflect.Type) *Plan {
	p := &Plan{Root: &Node{Of: t, Members: map[string]NodeMember{}}}
	p.add(p.Root, schema.Describe(t))
	for _, m := range schema.Describe(t).Leaves() {
		if m.JSON != "" || m.Column != "" {
			p.stored = append(p.stored, m)
		}
	}
	for _, f := range p.Fields {
		if c, ok := reflect.Zero(f.Type).Interface().(Composite); ok {
			for pointer := range c.Parts() {
				if p.fieldAt(pointer) < 0 {
					panic(fmt.Sprintf("a part of %s is %s, which %s does not have", f.Pointer, pointer, t))
				}
			}
		}
	}
	p.checkResolver(t)
	return p
}

func (p *Plan) add(to *Node, s *schema.Struct) {
	for _, m := range s.Members {
		if m.JSON == "" {
			continue
		}
		to.Names = append(to.Names, m.JSON)
		if m.Inner != nil {
			nested := &Node{Of: m.Type, Member: m, pointer: m.Pointer, Members: map[string]NodeMember{}}
			to.Members[m.JSON] = NodeMember{Nested: nested}
			p.add(nested, m.Inner)
			continue
		}
		f := &Field{m, kindOf(m.Type)}
		if f.Kind == nil {
			panic(fmt.Sprintf("no body can have a member of type %s (%s of %s)", m.Type, m.Pointer, s.Type))
		}
		to.Members[m.JSON] = NodeMember{Field: len(p.Fields)}
		for _, alias := range m.Aliases {
			p.Root.Names = append(p.Root.Names, alias)
			p.Root.Members[alias] = NodeMember{Field: len(p.Fields), Alias: true}
		}
		p.Fields = append(p.Fields, f)
	}
}

// checkResolver panics if Resolve reports a member that the type does not have. It calls Resolve on an empty value, and on one
// that has a meaningless text or a number in every member.
func (p *Plan) checkResolver(t reflect.Type) {
	full := reflect.New(t)
	for _, f := range p.Fields {
		at := full.Elem().FieldByIndex(f.Index)
		if f.Optional {
			at.Set(reflect.New(f.Type))
			at = at.Elem()
		}
		switch {
		case f.Kind == KindSecret:
			at.Set(reflect.ValueOf(secret.New("?\x00")))
		case at.Kind() == reflect.String:
			at.SetString("?\x00")
		case at.CanInt():
			at.SetInt(1)
		}
	}
	for _, value := range []reflect.Value{reflect.New(t), full} {
		r, ok := value.Interface().(resolver)
		if !ok {
			return
		}
		var invalid problem.Fields
		r.Resolve(&invalid)
		for _, w := range invalid {
			if schema.Describe(t).ByPointer(w.Pointer) == nil {
				panic(fmt.Sprintf("%s reports an error of %s, which it does not have", t, w.Pointer))
			}
		}
	}
}
