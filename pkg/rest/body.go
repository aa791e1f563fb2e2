package rest

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/ironplane/ironplane/pkg/problem"
)

// Body is what a caller sent to make a B or to edit one. It knows which members were sent, so one type serves both.
//
// A member of B has the tags of encoding/json and these:
//
//	required:"create" | "edit" | "create,edit"   it must be sent, and is neither null nor empty
//	max:"255"            most characters of a string (255 where it does not say), or the largest number
//	min:"1"              the smallest number
//	also:"port limit"    other spellings, at the top of the body
//	example, doc         what the API document shows
//	ext:"true"           it is not in the documented API, but an addition to it
//	kept:"false"         of a secret: it is not kept, but compared
//
// A member of pointer type is optional: null clears it, and so does the empty string. A null on any other member
// that is not required sets its zero value. An empty secret is as good as none: what is there stays.
type Body[B any] struct {
	value B
	sent  []bool // by the plan's leaves
	wrong problem.Fields
}

// Validator is what a B implements to say what its tags cannot. It is called on the complete value: what is new,
// or what is there with the sent members over it. It may fill in what it worked out in members that have no tag.
type Validator interface{ Validate(*problem.Fields) }

// New is the complete value that the body makes, or all that is wrong with it.
func (b *Body[B]) New() (*B, error) {
	value := b.value
	return &value, b.check(&value, create)
}

// Over is the complete value that the body makes of current: what was sent, and of the rest what is there. Or it is
// all that is wrong with it.
func (b *Body[B]) Over(current *B) (*B, error) {
	value := b.value
	from, to := reflect.ValueOf(current).Elem(), reflect.ValueOf(&value).Elem()
	for i, leaf := range planOf[B]().leaves {
		if !b.sent[i] {
			to.FieldByIndex(leaf.index).Set(from.FieldByIndex(leaf.index))
		}
	}
	return &value, b.check(&value, edit)
}

// Sent tells whether the member at pointer was sent, in whichever spelling.
func (b *Body[B]) Sent(pointer string) bool {
	i := slices.IndexFunc(planOf[B]().leaves, func(l *leaf) bool { return l.pointer == pointer })
	return b.sent[i]
}

// Secrets are the secrets that value, which came of the body, has from it, and those of them that were there before.
// They are named by their path with dots. before is nil where the value is new.
func (b *Body[B]) Secrets(value, before *B) (was, is []string) {
	for i, leaf := range planOf[B]().leaves {
		if leaf.kind != secretKind || leaf.passing || !b.sent[i] {
			continue
		}
		name := strings.ReplaceAll(leaf.pointer[1:], "/", ".")
		if before != nil && (!leaf.optional || !reflect.ValueOf(before).Elem().FieldByIndex(leaf.index).IsNil()) {
			was = append(was, name)
		}
		if member := reflect.ValueOf(value).Elem().FieldByIndex(leaf.index); !member.IsZero() {
			is = append(is, name)
		} else if !leaf.optional { // as it was
			was = slices.DeleteFunc(was, func(other string) bool { return other == name })
		}
	}
	return was, is
}

func (b *Body[B]) check(value *B, on occasion) error {
	wrong := slices.Clone(b.wrong)
	for i, leaf := range planOf[B]().leaves {
		if leaf.required&on != 0 && !b.sent[i] {
			wrong.Add(leaf.pointer, "required", "is required")
		}
	}
	if v, ok := any(value).(Validator); ok {
		v.Validate(&wrong)
	}
	return wrong.Err()
}

// decode fills the body from what was sent. What is wrong is kept for New or Over to tell, with the rest.
func (b *Body[B]) decode(sent object) {
	plan := planOf[B]()
	b.sent = make([]bool, len(plan.leaves))
	d := decoding{plan: plan, into: reflect.ValueOf(&b.value).Elem(), sent: b.sent, bad: map[int]bool{}, wrong: &b.wrong}
	d.object(plan.root, sent)
}

func (b *Body[B]) plan() *bodyPlan { return planOf[B]() }

// bodyDecoder is a *Body[B] of any B.
type bodyDecoder interface {
	decode(object)
	plan() *bodyPlan
}

type occasion uint8

const (
	create occasion = 1 << iota
	edit
)

// bodyPlan is what is known of a B from its type, worked out once.
type bodyPlan struct {
	root   *shape
	leaves []*leaf
}

// shape is an object in a body: its members by name, in the order of the type's fields.
type shape struct {
	names   []string
	members map[string]shapeMember
}

// shapeMember is a member: a nested object, or the number of a leaf.
type shapeMember struct {
	nested *shape
	leaf   int
	alias  bool
}

// leaf is a member that holds a value.
type leaf struct {
	pointer   string
	index     []int
	kind      *kind
	optional  bool // a pointer in B
	required  occasion
	rules     rules
	doc       string
	example   string
	extension bool // not in the documented API
	passing   bool // a secret that is not kept
}

type decoding struct {
	plan  *bodyPlan
	into  reflect.Value
	sent  []bool
	bad   map[int]bool // leaves that were sent in a way that cannot be read
	wrong *problem.Fields
}

func (d *decoding) object(s *shape, sent object) {
	for _, m := range sent {
		known, ok := s.members[m.name]
		if !ok {
			continue // unknown members mean nothing
		}
		if known.nested != nil {
			d.nested(known.nested, m)
			continue
		}
		d.leaf(known, m)
	}
}

func (d *decoding) nested(s *shape, m member) {
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
		d.wrong.Add(d.plan.pointerOf(s), "type", "must be an object")
	}
}

func (d *decoding) leaf(known shapeMember, m member) {
	leaf := d.plan.leaves[known.leaf]
	if m.value == "" && leaf.kind == secretKind && leaf.optional {
		return
	}
	value := reflect.New(d.into.Type().FieldByIndex(leaf.index).Type).Elem()
	pointer := leaf.pointer
	if known.alias {
		pointer = "/" + escapePointer(m.name)
	}
	if !leaf.set(value, m.value, pointer, d.wrong) {
		d.sent[known.leaf] = true // it was sent, if wrongly: it is not missing
		d.bad[known.leaf] = true
		return
	}
	at := d.into.FieldByIndex(leaf.index)
	if d.sent[known.leaf] && !d.bad[known.leaf] && !reflect.DeepEqual(at.Interface(), value.Interface()) {
		d.wrong.Add(pointer, "disagrees", "says something else than another spelling of the same member")
		return
	}
	at.Set(value)
	d.sent[known.leaf] = true
}

// set puts what was sent into a member, and tells whether it could.
func (l *leaf) set(to reflect.Value, sent any, pointer string, wrong *problem.Fields) bool {
	if sent == "" && l.optional && l.kind.text {
		sent = nil
	}
	if sent == nil {
		if l.required != 0 && !l.optional {
			wrong.Add(pointer, "required", "is required and cannot be null")
			return false
		}
		return true
	}
	if l.optional {
		to.Set(reflect.New(to.Type().Elem()))
		to = to.Elem()
	}
	code, message := l.kind.set(to, sent, l.rules)
	if code == "" && l.required != 0 && l.kind == stringKind && strings.TrimSpace(to.String()) == "" {
		code, message = "required", "is required and cannot be empty"
	}
	if code != "" {
		wrong.Add(pointer, code, "%s", message)
		return false
	}
	return true
}

// pointerOf is where in the body a nested object stands.
func (p *bodyPlan) pointerOf(s *shape) string {
	var find func(in *shape, at string) string
	find = func(in *shape, at string) string {
		for _, name := range in.names {
			if nested := in.members[name].nested; nested != nil {
				if nested == s {
					return at + "/" + name
				}
				if found := find(nested, at+"/"+name); found != "" {
					return found
				}
			}
		}
		return ""
	}
	return find(p.root, "")
}

func makePlan(t reflect.Type) *bodyPlan {
	p := &bodyPlan{root: &shape{members: map[string]shapeMember{}}}
	p.add(p.root, t, nil, "")
	return p
}

func (p *bodyPlan) add(to *shape, t reflect.Type, at []int, pointer string) {
	for i := range t.NumField() {
		field := t.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" || name == "-" {
			continue
		}
		index := append(slices.Clone(at), i)
		here := pointer + "/" + escapePointer(name)
		to.names = append(to.names, name)
		if field.Type.Kind() == reflect.Struct && kindOf(field.Type) == nil {
			nested := &shape{members: map[string]shapeMember{}}
			to.members[name] = shapeMember{nested: nested}
			p.add(nested, field.Type, index, here)
			continue
		}
		l := newLeaf(field, index, here)
		to.members[name] = shapeMember{leaf: len(p.leaves)}
		for alias := range strings.SplitSeq(field.Tag.Get("also"), ",") {
			if alias != "" {
				p.root.names = append(p.root.names, alias)
				p.root.members[alias] = shapeMember{leaf: len(p.leaves), alias: true}
			}
		}
		p.leaves = append(p.leaves, l)
	}
}

func newLeaf(field reflect.StructField, index []int, pointer string) *leaf {
	l := &leaf{pointer: pointer, index: index, doc: field.Tag.Get("doc"), example: field.Tag.Get("example"), extension: field.Tag.Get("ext") == "true", passing: field.Tag.Get("kept") == "false"}
	t := field.Type
	if t.Kind() == reflect.Pointer {
		l.optional, t = true, t.Elem()
	}
	if l.kind = kindOf(t); l.kind == nil {
		panic(fmt.Sprintf("rest: no body can have a member of type %s (%s)", field.Type, pointer))
	}
	for when := range strings.SplitSeq(field.Tag.Get("required"), ",") {
		switch when {
		case "":
		case "create":
			l.required |= create
		case "edit":
			l.required |= edit
		default:
			panic(fmt.Sprintf("rest: %s is required on %q", pointer, when))
		}
	}
	l.rules = rulesOf(field)
	return l
}
