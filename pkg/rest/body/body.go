// Package body decodes requests: JSON, CSV and forms, into structs whose tags say what is accepted. The plan of a type decodes
// it, builds its examples and describes it in the API document.
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

// Body is the body of a request that creates or edits a B. It knows which members were sent, so one type serves both. Tags of B
// are those of package schema. kind.go lists the other forms of values that are accepted.
//
// In a create, null counts as not sent. In an edit, null clears a member of a pointer type. It sets other members to their zero
// value, unless they are required; a boolean refuses it. An empty secret counts as not sent.
//
// A member may be sent under several names. In an edit, names whose values match the present item count as not sent. So a caller
// can read an item, change it under one name and send it back. The other names must agree.
type Body[B any] struct {
	value     B // what was sent
	spellings []spelling
	decidedBy []string // by field of the plan: the pointer of the spelling that set it; empty if none did
	unknown   problem.Fields
}

// resolver is implemented by a B with rules that tags cannot express. Resolve checks these rules, computes members without tags
// and normalizes others. It is called on the complete value.
type resolver interface{ Resolve(*problem.Fields) }

// Composite is a string type for members that combine others: v4.full stands for v4.address and v4.range_end. Such a member has
// no column and stays empty.
type Composite interface {
	// Parts returns the other members by their pointers. An empty part clears its member.
	Parts() map[string]string
}

// spelling is a member as it was sent.
type spelling struct {
	pointer string
	parts   []part // one, or several for a Composite
	null    bool
	invalid problem.Fields
}

// part is the value of a spelling for one field.
type part struct {
	field int           // index in the plan
	value reflect.Value // invalid if the value cannot be read
	// refused is a text that earlier versions may have accepted. An edit that repeats the present one changes nothing.
	refused reflect.Value
}

// New returns the value that the body creates. The error has all invalid members.
func (b *Body[B]) New() (*B, error) {
	value := b.value
	spellings := slices.DeleteFunc(slices.Clone(b.spellings), func(s spelling) bool { return s.null })
	invalid := append(b.apply(&value, spellings), b.unknown...)
	for i, f := range planFor[B]().Fields {
		if f.Required&schema.Create != 0 && !includesField(spellings, i) {
			invalid.Add(f.Pointer, "required", "is required")
		}
	}
	return &value, b.resolve(&value, invalid)
}

// Merge returns current with the members that were sent. shown is the present item as responses show it. The error has all
// invalid members.
func (b *Body[B]) Merge(current *B, shown any) (*B, error) {
	return b.MergeFor(schema.Edit, current, shown)
}

// MergeFor is Merge with required members for another action than the edit of one item.
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
		return same(p.value, was) || same(p.refused, was)
	}
	invalid := b.apply(&value, slices.DeleteFunc(slices.Clone(b.spellings), func(s spelling) bool {
		wasAccepted := len(s.invalid) == 0 || slices.ContainsFunc(s.parts, func(p part) bool { return p.refused.IsValid() })
		return wasAccepted && !slices.ContainsFunc(s.parts, func(p part) bool { return !isUnchanged(p, s.pointer) })
	}))
	invalid = append(invalid, b.unknown...)
	for i, f := range plan.Fields {
		unset := f.Optional && from.FieldByIndex(f.Index).IsNil() // responses leave it out, so the body may too
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

// apply sets the members that were sent, and returns the invalid ones.
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
				invalid.Add(s.pointer, "disagrees", "must agree with %s", strings.TrimPrefix(b.decidedBy[p.field], "/"))
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

// asSent returns the errors with the names under which the members were sent.
func (b *Body[B]) asSent(invalid problem.Fields) (named problem.Fields) {
	for _, w := range invalid {
		if i := planFor[B]().fieldAt(w.Pointer); i >= 0 && b.decidedBy[i] != "" && b.decidedBy[i] != w.Pointer {
			w.Pointer = b.decidedBy[i]
			AddOnce(&named, w) // two members may have been sent as one
			continue
		}
		named = append(named, w)
	}
	return named
}

// AddOnce adds an error, unless the member has one already.
func AddOnce(all *problem.Fields, w problem.Field) {
	n := len(*all)
	if all.Add(w.Pointer, w.Code, "%s", w.Message); len(*all) > n {
		(*all)[n] = w
	}
}

// MapError makes an error use the names under which the members were sent.
func (b *Body[B]) MapError(err error) error {
	explained, ok := errors.AsType[*problem.Error](pgerror.Explain(err))
	if !ok || len(explained.Fields) == 0 {
		return err
	}
	return problem.From(b.asSent(explained.Fields).Err()).Because(err)
}

// IsChanged reports whether value differs from current in a stored member. A secret that was sent always counts as a change.
// Otherwise the response would confirm a guess.
func (b *Body[B]) IsChanged(value, current *B) bool {
	is, was := reflect.ValueOf(value).Elem(), reflect.ValueOf(current).Elem()
	set, before := b.ChangedSecrets(value, current)
	return len(set)+len(before) > 0 || slices.ContainsFunc(planFor[B]().stored, func(m *schema.Member) bool {
		return m.Type != reflect.TypeFor[secret.String]() && !same(is.FieldByIndex(m.Index), was.FieldByIndex(m.Index))
	})
}

// ChangedSecrets returns the secrets that were sent: those that existed before, and those that value has now. Names are paths
// with dots.
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
		} else if !f.Optional { // it stays
			was = slices.DeleteFunc(was, func(other string) bool { return other == name })
		}
	}
	return was, is
}

// NewSecrets returns the secrets that a new value sets.
func NewSecrets[B any](value *B) (names []string) {
	for _, f := range planFor[B]().Fields {
		if f.Kind == KindSecret && !f.Transient && !reflect.ValueOf(value).Elem().FieldByIndex(f.Index).IsZero() {
			names = append(names, f.Member.Dotted())
		}
	}
	return names
}

// Sent returns the members that were sent. They are not validated yet.
func (b *Body[B]) Sent() *B { return &b.value }

// Decode fills the body from JSON. It fails if the text is not a JSON object. New and Merge report other errors, such as members
// that known does not have.
func (b *Body[B]) Decode(text []byte, known *Known) error {
	sent, err := parseObject(text)
	if err == nil {
		b.decode(sent)
		b.unknown = known.findUnknown(nil, sent)
	}
	return err
}

func (b *Body[B]) decode(sent object) {
	plan := planFor[B]()
	if observer, ok := any(&b.value).(interface{ Sent(names []string) }); ok { // the meaning of the body depends on its members
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
	) // values that cannot be read come last
	b.apply(&b.value, b.spellings)
}

// Plan returns the plan that decodes B.
func (b *Body[B]) Plan() *Plan { return planFor[B]() }

// Any is a *Body[B] of any B.
type Any interface {
	Decode(text []byte, known *Known) error
	Plan() *Plan
}
