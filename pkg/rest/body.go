package rest

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/shape"
)

// Body is what a caller sent to make a B or to edit one. It knows which members were sent, so one type serves both. The
// members of B have the tags that package shape tells of.
//
// A member of pointer type is optional: null clears it, and so does the empty string. A null on any other member
// that is not required sets its zero value. An empty secret is as good as none: what is there stays.
type Body[B any] struct {
	value B
	sent  []bool // by the plan's fields
	wrong problem.Fields
}

// Resolver is what a B implements to check what its tags cannot say, and to work out members that have no tag. It is
// called on the complete value: what is new, or what is there with the sent members over it.
type Resolver interface{ Resolve(*problem.Fields) }

// New is the complete value that the body makes, or all that is wrong with it.
func (b *Body[B]) New() (*B, error) {
	value := b.value
	return &value, b.check(&value, shape.Create)
}

// Over is the complete value that the body makes of current: what was sent, and of the rest what is there. Or it is
// all that is wrong with it.
func (b *Body[B]) Over(current *B) (*B, error) {
	value := b.value
	from, to := reflect.ValueOf(current).Elem(), reflect.ValueOf(&value).Elem()
	keep := func(m *shape.Member) { to.FieldByIndex(m.Index).Set(from.FieldByIndex(m.Index)) }
	for i, f := range planOf[B]().fields {
		if !b.sent[i] {
			keep(f.Member)
		}
	}
	for _, m := range planOf[B]().unsent {
		keep(m)
	}
	return &value, b.check(&value, shape.Edit)
}

// Sent tells whether the member at pointer was sent, in whichever spelling.
func (b *Body[B]) Sent(pointer string) bool {
	i := slices.IndexFunc(planOf[B]().fields, func(f *field) bool { return f.Pointer == pointer })
	return b.sent[i]
}

// secrets are those that were sent and that value, which came of the body, sets, and those of them that were there
// before. They are named by their path with dots.
func (b *Body[B]) secrets(value, before *B) (was, is []string) {
	for i, f := range planOf[B]().fields {
		if f.kind != secretKind || f.Passing || !b.sent[i] {
			continue
		}
		member, name := reflect.ValueOf(value).Elem().FieldByIndex(f.Index), dotted(f.Member)
		if !f.Optional || !reflect.ValueOf(before).Elem().FieldByIndex(f.Index).IsNil() {
			was = append(was, name)
		}
		if !member.IsZero() {
			is = append(is, name)
		} else if !f.Optional { // as it was
			was = slices.DeleteFunc(was, func(other string) bool { return other == name })
		}
	}
	return was, is
}

// secretsOf are the secrets that a new value sets.
func secretsOf[B any](value *B) (names []string) {
	for _, f := range planOf[B]().fields {
		if f.kind == secretKind && !f.Passing && !reflect.ValueOf(value).Elem().FieldByIndex(f.Index).IsZero() {
			names = append(names, dotted(f.Member))
		}
	}
	return names
}

func (b *Body[B]) check(value *B, on shape.Occasion) error {
	wrong := slices.Clone(b.wrong)
	for i, f := range planOf[B]().fields {
		if f.Required&on != 0 && !b.sent[i] {
			wrong.Add(f.Pointer, "required", "is required")
		}
	}
	if r, ok := any(value).(Resolver); ok {
		r.Resolve(&wrong)
	}
	return wrong.Err()
}

// decode fills the body from what was sent. What is wrong is kept for New or Over to tell, with the rest.
func (b *Body[B]) decode(sent object) {
	plan := planOf[B]()
	b.sent = make([]bool, len(plan.fields))
	d := decoding{plan: plan, into: reflect.ValueOf(&b.value).Elem(), sent: b.sent, bad: map[int]bool{}, wrong: &b.wrong}
	d.object(plan.root, sent)
}

func (b *Body[B]) plan() *bodyPlan { return planOf[B]() }

// bodyDecoder is a *Body[B] of any B.
type bodyDecoder interface {
	decode(object)
	plan() *bodyPlan
}

// bodyPlan is how a B is decoded, worked out once.
type bodyPlan struct {
	root   *node
	fields []*field
	unsent []*shape.Member // columns that no body has a member for
}

// node is an object in a body: its members by name, in the order of the type's fields.
type node struct {
	pointer string
	names   []string
	members map[string]nodeMember
}

// nodeMember is a member: a nested object, or the number of a field.
type nodeMember struct {
	nested *node
	field  int
	alias  bool
}

// field is a member that holds a value.
type field struct {
	*shape.Member
	kind *kind
}

type decoding struct {
	plan  *bodyPlan
	into  reflect.Value
	sent  []bool
	bad   map[int]bool // fields that were sent in a way that cannot be read
	wrong *problem.Fields
}

func (d *decoding) object(s *node, sent object) {
	for _, m := range sent {
		known, ok := s.members[m.name]
		if !ok {
			continue // unknown members mean nothing
		}
		if known.nested != nil {
			d.nested(known.nested, m)
			continue
		}
		d.field(known, m)
	}
}

func (d *decoding) nested(s *node, m member) {
	switch value := m.value.(type) {
	case object:
		d.object(s, value)
	case nil: // clears all that is in it
		cleared := make(object, len(s.names))
		for i, name := range s.names {
			cleared[i] = member{name, nil}
		}
		d.object(s, cleared)
	default:
		d.wrong.Add(s.pointer, "type", "must be an object")
	}
}

func (d *decoding) field(known nodeMember, m member) {
	f := d.plan.fields[known.field]
	if m.value == "" && f.kind == secretKind && f.Optional {
		return
	}
	at := d.into.FieldByIndex(f.Index)
	value := reflect.New(at.Type()).Elem()
	pointer := f.Pointer
	if known.alias {
		pointer = "/" + shape.Escape(m.name)
	}
	if !f.set(value, m.value, pointer, d.wrong) {
		d.sent[known.field] = true // it was sent, if wrongly: it is not missing
		d.bad[known.field] = true
		return
	}
	if d.sent[known.field] && !d.bad[known.field] && !reflect.DeepEqual(at.Interface(), value.Interface()) {
		d.wrong.Add(pointer, "disagrees", "says something else than another spelling of the same member")
		return
	}
	at.Set(value)
	d.sent[known.field] = true
}

// set puts what was sent into a member, and tells whether it could.
func (f *field) set(to reflect.Value, sent any, pointer string, wrong *problem.Fields) bool {
	if sent == "" && f.Optional && f.kind.text {
		sent = nil
	}
	if sent == nil {
		if f.Required != 0 && !f.Optional {
			wrong.Add(pointer, "required", "is required and cannot be null")
			return false
		}
		return true
	}
	if f.Optional {
		to.Set(reflect.New(to.Type().Elem()))
		to = to.Elem()
	}
	code, message := f.kind.set(to, sent, f.Member)
	if code == "" && f.Required != 0 && f.kind == stringKind && strings.TrimSpace(to.String()) == "" {
		code, message = "required", "is required and cannot be empty"
	}
	if code != "" {
		wrong.Add(pointer, code, "%s", message)
		return false
	}
	return true
}

func makePlan(t reflect.Type) *bodyPlan {
	p := &bodyPlan{root: &node{members: map[string]nodeMember{}}}
	p.add(p.root, shape.Of(t))
	for _, m := range shape.Of(t).Values() {
		if m.JSON == "" && m.Column != "" {
			p.unsent = append(p.unsent, m)
		}
	}
	p.checkResolver(t)
	return p
}

func (p *bodyPlan) add(to *node, s *shape.Struct) {
	for _, m := range s.Members {
		if m.JSON == "" {
			continue
		}
		to.names = append(to.names, m.JSON)
		if m.Inner != nil {
			nested := &node{pointer: m.Pointer, members: map[string]nodeMember{}}
			to.members[m.JSON] = nodeMember{nested: nested}
			p.add(nested, m.Inner)
			continue
		}
		f := &field{m, kindOf(m.Type)}
		if f.kind == nil {
			panic(fmt.Sprintf("rest: no body can have a member of type %s (%s of %s)", m.Type, m.Pointer, s.Type))
		}
		to.members[m.JSON] = nodeMember{field: len(p.fields)}
		for _, alias := range m.Also {
			p.root.names = append(p.root.names, alias)
			p.root.members[alias] = nodeMember{field: len(p.fields), alias: true}
		}
		p.fields = append(p.fields, f)
	}
}

// checkResolver panics where a type's Resolve blames a member that it does not have. It is tried on a value without
// anything and on one that has a text that means nothing, or a number, everywhere.
func (p *bodyPlan) checkResolver(t reflect.Type) {
	full := reflect.New(t)
	for _, f := range p.fields {
		at := full.Elem().FieldByIndex(f.Index)
		if f.Optional {
			at.Set(reflect.New(f.Type))
			at = at.Elem()
		}
		switch {
		case f.kind == secretKind:
			at.Set(reflect.ValueOf(secret.New("?\x00")))
		case at.Kind() == reflect.String:
			at.SetString("?\x00")
		case at.CanInt():
			at.SetInt(1)
		}
	}
	for _, value := range []reflect.Value{reflect.New(t), full} {
		r, ok := value.Interface().(Resolver)
		if !ok {
			return
		}
		var wrong problem.Fields
		r.Resolve(&wrong)
		for _, w := range wrong {
			if shape.Of(t).At(w.Pointer) == nil {
				panic(fmt.Sprintf("rest: %s blames %s, which it does not have", t, w.Pointer))
			}
		}
	}
}
