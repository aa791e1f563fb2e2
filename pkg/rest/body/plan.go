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

// Plan is how a B is decoded, worked out once.
type Plan struct {
	Root   *Node
	Fields []*Field
	stored []*schema.Member // what stands in the table or may be sent
}

// Node is an object in a body: its members by name, in the order of the type's fields.
type Node struct {
	Of      reflect.Type
	Member  *schema.Member // the member that holds the object; nil for the body itself
	Names   []string
	Members map[string]NodeMember
	pointer string
}

// NodeMember is a member: a nested object, or the number of a field.
type NodeMember struct {
	Nested *Node
	Field  int
	Alias  bool
}

// Field is a member that holds a value.
type Field struct {
	*schema.Member
	Kind *Kind
}

// fieldAt is the number of the field at a pointer, or -1.
func (p *Plan) fieldAt(pointer string) int {
	return slices.IndexFunc(p.Fields, func(f *Field) bool { return f.Pointer == pointer })
}

// spelledField is a field in the words of a spelling.
type spelledField struct {
	pointer string
	field   int
}

// readShown is what an item says in an answer, read as it would be if it were sent.
func (p *Plan) readShown(item any) (map[spelledField]reflect.Value, error) {
	text, err := json.Marshal(item)
	if err != nil {
		return nil, fmt.Errorf("read what is shown: %w", err)
	}
	sent, err := parseObject(text)
	if err != nil {
		return nil, fmt.Errorf("read what is shown: %w", err)
	}
	shown := map[spelledField]reflect.Value{}
	for _, s := range p.read(p.Root, sent) {
		for _, part := range s.parts {
			shown[spelledField{s.pointer, part.field}] = part.value
		}
	}
	return shown, nil
}

// read reads an object that stands for a node. Unknown members mean nothing.
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

func (p *Plan) readNested(n *Node, sent any) []spelling {
	switch value := n.normalize(sent).(type) {
	case object:
		return p.read(n, value)
	case nil: // clears all that is in it
		cleared := make(object, len(n.Names))
		for i, name := range n.Names {
			cleared[i] = member{name, nil}
		}
		return p.read(n, cleared)
	default:
		return []spelling{{pointer: n.pointer, invalid: problem.Fields{{Pointer: n.pointer, Code: "type", Message: "must be an object"}}}}
	}
}

// readSpelling reads what was sent for a field, unless it says nothing.
func (p *Plan) readSpelling(pointer string, number int, sent any) (s spelling, ok bool) {
	f := p.Fields[number]
	if sent, ok = f.normalize(sent); !ok {
		return s, false
	}
	s.pointer, s.null = pointer, sent == nil
	if s.null && f.Kind == KindBool {
		s.invalid.Add(pointer, "type", "must be true or false")
	}
	value := s.read(f, sent)
	composite, ok := reflect.Zero(f.Type).Interface().(Composite)
	if !ok {
		s.parts = []part{{number, value}}
		return s, true
	}
	if value = reflect.Indirect(value); value.IsValid() {
		composite = value.Interface().(Composite)
	}
	for pointer, text := range composite.Parts() {
		i := p.fieldAt(pointer)
		normalized, _ := p.Fields[i].normalize(text)
		s.parts = append(s.parts, part{i, s.read(p.Fields[i], normalized)})
	}
	return s, true
}

// read is the value of what was sent for a field: none where it cannot be read, which is noted.
func (s *spelling) read(f *Field, sent any) reflect.Value {
	value := reflect.New(f.Type)
	if sent != nil {
		if code, message := f.Kind.set(value.Elem(), sent, f.Member); code != "" {
			s.invalid.Add(s.pointer, code, "%s", message)
			return reflect.Value{}
		}
	}
	switch {
	case !f.Optional:
		return value.Elem()
	case sent == nil:
		return reflect.Zero(value.Type())
	default:
		return value
	}
}

// NewPlan works out how a struct type is decoded. It panics where a body cannot have one of its members.
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

// checkResolver panics where a type's Resolve blames a member that it does not have. It is tried on a value without
// anything and on one that has a text that means nothing, or a number, everywhere.
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
				panic(fmt.Sprintf("%s blames %s, which it does not have", t, w.Pointer))
			}
		}
	}
}
