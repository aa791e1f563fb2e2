package rest

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/ironplane/ironplane/pkg/postgres/pgerror"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/schema"
	"github.com/ironplane/ironplane/pkg/secret"
)

// Body is what a caller sent to make a B or to edit one. It knows which members were sent, so one type serves both. The
// members of B have the tags that package shape tells of; kind.go says what is read besides what JSON has for a type.
//
// Where something is made, null is as if it were not sent. On an edit it clears a member of pointer type, which is optional,
// sets the zero value of any other that is not required, and is refused for a boolean. An empty secret is as good as none:
// what is there stays.
//
// A member may be sent in several spellings. On an edit, those that say what is there already say nothing, so that an item
// can be read, changed in one spelling, and sent back. The others must agree.
type Body[B any] struct {
	value B // what was sent
	said  []spelling
	by    []string // by the plan's fields, the pointer of the spelling that decided; empty where none did
}

// resolver is what a B implements to check what its tags cannot say, to work out members that have no tag, and to write
// members the one way in which they are stored. It is called on the complete value: what is new, or what is there with
// the sent members over it.
type resolver interface{ Resolve(*problem.Fields) }

// Composite is a string type of members that say what other members say: v4.full is v4.address with v4.range_end. A member
// of such a type has no column, and stays empty.
type Composite interface {
	// Parts are the other members, by their pointers. An empty one clears its member.
	Parts() map[string]string
}

// spelling is a member as it was sent.
type spelling struct {
	pointer string
	parts   []part // one, but of a Composite
	null    bool
	wrong   problem.Fields
}

// part is what a spelling says of a field.
type part struct {
	field int           // of the plan's
	value reflect.Value // none where it cannot be read
}

// New is the complete value that the body makes, or all that is wrong with it.
func (b *Body[B]) New() (*B, error) {
	value := b.value
	said := slices.DeleteFunc(slices.Clone(b.said), func(s spelling) bool { return s.null })
	wrong := b.put(&value, said)
	for i, f := range planOf[B]().fields {
		if f.Required&schema.Create != 0 && !sends(said, i) {
			wrong.Add(f.Pointer, "required", "is required")
		}
	}
	return &value, b.resolve(&value, wrong)
}

// Over is the complete value that the body makes of current, which answers show as shown: what was sent, and of the rest
// what is there. Or it is all that is wrong with it.
func (b *Body[B]) Over(current *B, shown any) (*B, error) { return b.over(current, shown, schema.Edit) }

func (b *Body[B]) over(current *B, shown any, on schema.Occasion) (*B, error) {
	plan, value := planOf[B](), b.value
	from, to := reflect.ValueOf(current).Elem(), reflect.ValueOf(&value).Elem()
	for _, m := range plan.stored {
		to.FieldByIndex(m.Index).Set(from.FieldByIndex(m.Index))
	}
	there, err := plan.shown(shown)
	if err != nil {
		return nil, err
	}
	asItIs := func(p part, pointer string) bool {
		was, shown := there[said{pointer, p.field}]
		if !shown {
			was = from.FieldByIndex(plan.fields[p.field].Index)
		}
		return same(p.value, was)
	}
	wrong := b.put(&value, slices.DeleteFunc(slices.Clone(b.said), func(s spelling) bool {
		return len(s.wrong) == 0 && !slices.ContainsFunc(s.parts, func(p part) bool { return !asItIs(p, s.pointer) })
	}))
	for i, f := range plan.fields {
		unset := f.Optional && from.FieldByIndex(f.Index).IsNil() // which is left out of what was read, and may be here
		if f.Required&on != 0 && !unset && !sends(b.said, i) {
			wrong.Add(f.Pointer, "required", "is required")
		}
	}
	return &value, b.resolve(&value, wrong)
}

func same(a, b reflect.Value) bool {
	return a.IsValid() && b.IsValid() && reflect.DeepEqual(a.Interface(), b.Interface())
}

func sends(said []spelling, field int) bool {
	return slices.ContainsFunc(said, func(s spelling) bool {
		return slices.ContainsFunc(s.parts, func(p part) bool { return p.field == field })
	})
}

// put sets what is said, and tells what is wrong with it.
func (b *Body[B]) put(value *B, said []spelling) (wrong problem.Fields) {
	b.by = make([]string, len(planOf[B]().fields))
	for _, s := range said {
		wrong = append(wrong, s.wrong...)
		for _, p := range s.parts {
			f := planOf[B]().fields[p.field]
			switch at := reflect.ValueOf(value).Elem().FieldByIndex(f.Index); {
			case !p.value.IsValid():
				b.by[p.field] = s.pointer
			case s.null && f.Required != 0 && !f.Optional:
				wrong.Add(s.pointer, "required", "is required and cannot be null")
			case f.Future && !s.null && !reflect.Indirect(p.value).Interface().(Timestamp).After(time.Now()):
				wrong.Add(s.pointer, "out_of_range", "must be in the future")
			case b.by[p.field] == "":
				b.by[p.field] = s.pointer
				at.Set(p.value)
			case !same(at, p.value):
				wrong.Add(s.pointer, "disagrees", "says something else than %s", strings.TrimPrefix(b.by[p.field], "/"))
			}
		}
	}
	return wrong
}

func (b *Body[B]) resolve(value *B, wrong problem.Fields) error {
	if r, ok := any(value).(resolver); ok {
		var resolved problem.Fields
		r.Resolve(&resolved)
		for _, w := range b.named(resolved) {
			note(&wrong, w)
		}
	}
	return wrong.Err()
}

// named is the same of the members as they were spelt.
func (b *Body[B]) named(wrong problem.Fields) (named problem.Fields) {
	for _, w := range wrong {
		if i := planOf[B]().at(w.Pointer); i >= 0 && b.by[i] != "" {
			w.Pointer = b.by[i]
		}
		note(&named, w)
	}
	return named
}

// note adds what is wrong, unless something was noted of that member already.
func note(all *problem.Fields, w problem.Field) {
	n := len(*all)
	if all.Add(w.Pointer, w.Code, "%s", w.Message); len(*all) > n {
		(*all)[n] = w
	}
}

// blame makes an error name the members as they were spelt.
func (b *Body[B]) blame(err error) error {
	explained, ok := errors.AsType[*problem.Error](pgerror.Explain(err))
	if !ok || len(explained.Fields) == 0 {
		return err
	}
	return problem.From(b.named(explained.Fields).Err()).Because(err)
}

// changes tells whether value, which the body made of current, is another one, as far as it is stored. A secret that was
// sent always is: an answer would tell whether it was a right guess.
func (b *Body[B]) changes(value, current *B) bool {
	is, was := reflect.ValueOf(value).Elem(), reflect.ValueOf(current).Elem()
	set, before := b.secrets(value, current)
	return len(set)+len(before) > 0 || slices.ContainsFunc(planOf[B]().stored, func(m *schema.Member) bool {
		return m.Type != reflect.TypeFor[secret.String]() && !same(is.FieldByIndex(m.Index), was.FieldByIndex(m.Index))
	})
}

// secrets are those that were sent and that value, which came of the body, sets, and those of them that were there
// before. They are named by their path with dots.
func (b *Body[B]) secrets(value, before *B) (was, is []string) {
	for i, f := range planOf[B]().fields {
		if f.kind != secretKind || f.Passing || !sends(b.said, i) {
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

// decode fills the body from what was sent. What is wrong is kept for New or Over to tell, with the rest.
func (b *Body[B]) decode(sent object) {
	plan := planOf[B]()
	if told, ok := any(&b.value).(interface{ Sent(names []string) }); ok { // of which members means what the body is for
		var names []string
		for _, m := range sent {
			if m.value != nil {
				names = append(names, m.name)
			}
		}
		told.Sent(names)
	}
	b.said = plan.read(plan.root, sent)
	slices.SortStableFunc(
		b.said,
		func(a, other spelling) int { return len(a.wrong) - len(other.wrong) },
	) // what cannot be read decides nothing
	b.put(&b.value, b.said)
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
	stored []*schema.Member // what stands in the table or may be sent
}

// node is an object in a body: its members by name, in the order of the type's fields.
type node struct {
	of      reflect.Type
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
	*schema.Member
	kind *kind
}

// at is the number of the field at a pointer, or -1.
func (p *bodyPlan) at(pointer string) int {
	return slices.IndexFunc(p.fields, func(f *field) bool { return f.Pointer == pointer })
}

// said is a field in the words of a spelling.
type said struct {
	pointer string
	field   int
}

// shown is what an item says in an answer, read as it would be if it were sent.
func (p *bodyPlan) shown(item any) (map[said]reflect.Value, error) {
	text, err := json.Marshal(item)
	if err != nil {
		return nil, fmt.Errorf("read what is shown: %w", err)
	}
	sent, err := parseObject(text)
	if err != nil {
		return nil, fmt.Errorf("read what is shown: %w", err)
	}
	shown := map[said]reflect.Value{}
	for _, s := range p.read(p.root, sent) {
		for _, part := range s.parts {
			shown[said{s.pointer, part.field}] = part.value
		}
	}
	return shown, nil
}

// read reads an object that stands for a node. Unknown members mean nothing.
func (p *bodyPlan) read(n *node, sent object) (all []spelling) {
	for _, m := range sent {
		known, ok := n.members[m.name]
		switch {
		case !ok:
		case known.nested != nil:
			all = append(all, p.readNested(known.nested, m.value)...)
		default:
			pointer := p.fields[known.field].Pointer
			if known.alias {
				pointer = "/" + schema.Escape(m.name)
			}
			if s, ok := p.spelling(pointer, known.field, m.value); ok {
				all = append(all, s)
			}
		}
	}
	return all
}

func (p *bodyPlan) readNested(n *node, sent any) []spelling {
	switch value := n.form(sent).(type) {
	case object:
		return p.read(n, value)
	case nil: // clears all that is in it
		cleared := make(object, len(n.names))
		for i, name := range n.names {
			cleared[i] = member{name, nil}
		}
		return p.read(n, cleared)
	default:
		return []spelling{{pointer: n.pointer, wrong: problem.Fields{{Pointer: n.pointer, Code: "type", Message: "must be an object"}}}}
	}
}

// spelling reads what was sent for a field, unless it says nothing.
func (p *bodyPlan) spelling(pointer string, number int, sent any) (s spelling, ok bool) {
	f := p.fields[number]
	if sent, ok = f.form(sent); !ok {
		return s, false
	}
	s.pointer, s.null = pointer, sent == nil
	if s.null && f.kind == boolKind {
		s.wrong.Add(pointer, "type", "must be true or false")
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
		i := p.at(pointer)
		told, _ := p.fields[i].form(text)
		s.parts = append(s.parts, part{i, s.read(p.fields[i], told)})
	}
	return s, true
}

// read is the value of what was sent for a field: none where it cannot be read, which is noted.
func (s *spelling) read(f *field, sent any) reflect.Value {
	value := reflect.New(f.Type)
	if sent != nil {
		if code, message := f.kind.set(value.Elem(), sent, f.Member); code != "" {
			s.wrong.Add(s.pointer, code, "%s", message)
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

func makePlan(t reflect.Type) *bodyPlan {
	p := &bodyPlan{root: &node{of: t, members: map[string]nodeMember{}}}
	p.add(p.root, schema.Of(t))
	for _, m := range schema.Of(t).Values() {
		if m.JSON != "" || m.Column != "" {
			p.stored = append(p.stored, m)
		}
	}
	for _, f := range p.fields {
		if c, ok := reflect.Zero(f.Type).Interface().(Composite); ok {
			for pointer := range c.Parts() {
				if p.at(pointer) < 0 {
					panic(fmt.Sprintf("rest: a part of %s is %s, which %s does not have", f.Pointer, pointer, t))
				}
			}
		}
	}
	p.checkResolver(t)
	return p
}

func (p *bodyPlan) add(to *node, s *schema.Struct) {
	for _, m := range s.Members {
		if m.JSON == "" {
			continue
		}
		to.names = append(to.names, m.JSON)
		if m.Inner != nil {
			nested := &node{of: m.Type, pointer: m.Pointer, members: map[string]nodeMember{}}
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
		r, ok := value.Interface().(resolver)
		if !ok {
			return
		}
		var wrong problem.Fields
		r.Resolve(&wrong)
		for _, w := range wrong {
			if schema.Of(t).At(w.Pointer) == nil {
				panic(fmt.Sprintf("rest: %s blames %s, which it does not have", t, w.Pointer))
			}
		}
	}
}
