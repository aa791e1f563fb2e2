// Package body decodes requests: JSON, CSV and what forms send, into structs whose tags say what is accepted. One plan of a
// type decodes it, makes its examples, and is what the API document describes.
package body

import (
	"errors"
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
	value     B // what was sent
	spellings []spelling
	decidedBy []string // by the plan's fields, the pointer of the spelling that decided; empty where none did
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
	invalid problem.Fields
}

// part is what a spelling says of a field.
type part struct {
	field int           // of the plan's
	value reflect.Value // none where it cannot be read
}

// New is the complete value that the body makes, or all that is wrong with it.
func (b *Body[B]) New() (*B, error) {
	value := b.value
	spellings := slices.DeleteFunc(slices.Clone(b.spellings), func(s spelling) bool { return s.null })
	invalid := b.apply(&value, spellings)
	for i, f := range planFor[B]().Fields {
		if f.Required&schema.Create != 0 && !includesField(spellings, i) {
			invalid.Add(f.Pointer, "required", "is required")
		}
	}
	return &value, b.resolve(&value, invalid)
}

// Merge is the complete value that the body makes of current, which answers show as shown: what was sent, and of the rest
// what is there. Or it is all that is wrong with it.
func (b *Body[B]) Merge(current *B, shown any) (*B, error) {
	return b.MergeFor(schema.Edit, current, shown)
}

// MergeFor is Over where the body may be sent for something else than the edit of one item.
func (b *Body[B]) MergeFor(on schema.Action, current *B, shown any) (*B, error) {
	plan, value := planFor[B](), b.value
	from, to := reflect.ValueOf(current).Elem(), reflect.ValueOf(&value).Elem()
	for _, m := range plan.stored {
		to.FieldByIndex(m.Index).Set(from.FieldByIndex(m.Index))
	}
	shownValues, err := plan.readShown(shown)
	if err != nil {
		return nil, err
	}
	isUnchanged := func(p part, pointer string) bool {
		was, shown := shownValues[spelledField{pointer, p.field}]
		if !shown {
			was = from.FieldByIndex(plan.Fields[p.field].Index)
		}
		return same(p.value, was)
	}
	invalid := b.apply(&value, slices.DeleteFunc(slices.Clone(b.spellings), func(s spelling) bool {
		return len(s.invalid) == 0 && !slices.ContainsFunc(s.parts, func(p part) bool { return !isUnchanged(p, s.pointer) })
	}))
	for i, f := range plan.Fields {
		unset := f.Optional && from.FieldByIndex(f.Index).IsNil() // which is left out of what was read, and may be here
		if f.Required&on != 0 && !unset && !includesField(b.spellings, i) {
			invalid.Add(f.Pointer, "required", "is required")
		}
	}
	return &value, b.resolve(&value, invalid)
}

func same(a, b reflect.Value) bool {
	return a.IsValid() && b.IsValid() && reflect.DeepEqual(a.Interface(), b.Interface())
}

func includesField(spellings []spelling, field int) bool {
	return slices.ContainsFunc(spellings, func(s spelling) bool {
		return slices.ContainsFunc(s.parts, func(p part) bool { return p.field == field })
	})
}

// apply sets what is said, and tells what is wrong with it.
func (b *Body[B]) apply(value *B, spellings []spelling) (invalid problem.Fields) {
	b.decidedBy = make([]string, len(planFor[B]().Fields))
	for _, s := range spellings {
		invalid = append(invalid, s.invalid...)
		for _, p := range s.parts {
			f := planFor[B]().Fields[p.field]
			switch at := reflect.ValueOf(value).Elem().FieldByIndex(f.Index); {
			case !p.value.IsValid():
				b.decidedBy[p.field] = s.pointer
			case s.null && f.Required != 0 && !f.Optional:
				invalid.Add(s.pointer, "required", "is required and cannot be null")
			case f.Future && !s.null && !reflect.Indirect(p.value).Interface().(Timestamp).After(time.Now()):
				invalid.Add(s.pointer, "out_of_range", "must be in the future")
			case b.decidedBy[p.field] == "":
				b.decidedBy[p.field] = s.pointer
				at.Set(p.value)
			case !same(at, p.value):
				invalid.Add(s.pointer, "disagrees", "says something else than %s", strings.TrimPrefix(b.decidedBy[p.field], "/"))
			}
		}
	}
	return invalid
}

func (b *Body[B]) resolve(value *B, invalid problem.Fields) error {
	if r, ok := any(value).(resolver); ok {
		var resolved problem.Fields
		r.Resolve(&resolved)
		for _, w := range b.asSent(resolved) {
			AddOnce(&invalid, w)
		}
	}
	return invalid.Err()
}

// asSent is the same of the members as they were spelt.
func (b *Body[B]) asSent(invalid problem.Fields) (named problem.Fields) {
	for _, w := range invalid {
		if i := planFor[B]().fieldAt(w.Pointer); i >= 0 && b.decidedBy[i] != "" {
			w.Pointer = b.decidedBy[i]
		}
		AddOnce(&named, w)
	}
	return named
}

// AddOnce adds what is wrong, unless something was noted of that member already.
func AddOnce(all *problem.Fields, w problem.Field) {
	n := len(*all)
	if all.Add(w.Pointer, w.Code, "%s", w.Message); len(*all) > n {
		(*all)[n] = w
	}
}

// MapError makes an error name the members as they were spelt.
func (b *Body[B]) MapError(err error) error {
	explained, ok := errors.AsType[*problem.Error](pgerror.Explain(err))
	if !ok || len(explained.Fields) == 0 {
		return err
	}
	return problem.From(b.asSent(explained.Fields).Err()).Because(err)
}

// IsChanged tells whether value, which the body made of current, is another one, as far as it is stored. A secret that was
// sent always is: an answer would tell whether it was a right guess.
func (b *Body[B]) IsChanged(value, current *B) bool {
	is, was := reflect.ValueOf(value).Elem(), reflect.ValueOf(current).Elem()
	set, before := b.ChangedSecrets(value, current)
	return len(set)+len(before) > 0 || slices.ContainsFunc(planFor[B]().stored, func(m *schema.Member) bool {
		return m.Type != reflect.TypeFor[secret.String]() && !same(is.FieldByIndex(m.Index), was.FieldByIndex(m.Index))
	})
}

// ChangedSecrets are those that were sent and that value, which came of the body, sets, and those of them that were there
// before. They are named by their path with dots.
func (b *Body[B]) ChangedSecrets(value, before *B) (was, is []string) {
	for i, f := range planFor[B]().Fields {
		if f.Kind != KindSecret || f.Transient || !includesField(b.spellings, i) {
			continue
		}
		member, name := reflect.ValueOf(value).Elem().FieldByIndex(f.Index), f.Member.Dotted()
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

// NewSecrets are the secrets that a new value sets.
func NewSecrets[B any](value *B) (names []string) {
	for _, f := range planFor[B]().Fields {
		if f.Kind == KindSecret && !f.Transient && !reflect.ValueOf(value).Elem().FieldByIndex(f.Index).IsZero() {
			names = append(names, f.Member.Dotted())
		}
	}
	return names
}

// Sent is what was sent, of which nothing is checked yet.
func (b *Body[B]) Sent() *B { return &b.value }

// Decode fills the body from JSON. It fails where that is none; what else is wrong is kept for New or Over to tell, with the
// rest.
func (b *Body[B]) Decode(text []byte) error {
	sent, err := parseObject(text)
	if err == nil {
		b.decode(sent)
	}
	return err
}

func (b *Body[B]) decode(sent object) {
	plan := planFor[B]()
	if observer, ok := any(&b.value).(interface{ Sent(names []string) }); ok { // of which members means what the body is for
		var names []string
		for _, m := range sent {
			if m.value != nil {
				names = append(names, m.name)
			}
		}
		observer.Sent(names)
	}
	b.spellings = plan.read(plan.Root, sent)
	slices.SortStableFunc(
		b.spellings,
		func(a, other spelling) int { return len(a.invalid) - len(other.invalid) },
	) // what cannot be read decides nothing
	b.apply(&b.value, b.spellings)
}

// Plan is how a B is decoded.
func (b *Body[B]) Plan() *Plan { return planFor[B]() }

// Any is a *Body[B] of any B.
type Any interface {
	Decode(text []byte) error
	Plan() *Plan
}
