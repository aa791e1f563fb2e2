package body

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/agnivade/levenshtein"

	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/schema"
)

// Known says which members an object of a body may have: those that the body declares, and those that responses show of the
// item. So a caller can read an item and send it back whole. A nil Known allows any member.
type Known struct {
	members map[string]*Known // by name, aliases included; nil: the value may be anything
	names   []string          // without aliases; those of the body come first
}

// wrapped is a member that documented clients add to bodies. It has no effect.
const wrapped = "isWrapped"

// Known returns the members that a body may have beside those of the plan if responses show the item as values of these types.
func (p *Plan) Known(views ...reflect.Type) *Known {
	k := newKnown(p)
	for _, view := range views {
		k.addView(view, nil)
	}
	if _, ok := k.members[wrapped]; !ok {
		k.members[wrapped] = nil
	}
	return k
}

func newKnown(p *Plan) *Known {
	k := &Known{members: map[string]*Known{}}
	k.addNode(p, p.Root)
	return k
}

// addNode adds the members of an object that the body declares.
func (k *Known) addNode(p *Plan, n *Node) {
	for _, name := range n.Names {
		m := n.Members[name]
		if !m.Alias {
			k.names = append(k.names, name)
		}
		k.members[name] = p.knownIn(m)
	}
}

// knownIn returns the members that the value of a member may have.
func (p *Plan) knownIn(m NodeMember) *Known {
	if m.Nested != nil {
		if m.Nested.Member.Open {
			return nil
		}
		k := &Known{members: map[string]*Known{}}
		k.addNode(p, m.Nested)
		return k
	}
	switch f := p.Fields[m.Field]; {
	case f.Kind == KindTimestamp:
		return knownTimestamp
	case f.Kind.Items != nil && !f.Open:
		return newKnown(NewPlan(f.Kind.Items))
	default:
		return nil
	}
}

var knownTimestamp = &Known{
	members: map[string]*Known{"iso_8601": nil, "unix": nil},
	names:   []string{"iso_8601", "unix"},
}

// addView adds the members of a type of responses. outer are the types that it is a part of.
func (k *Known) addView(t reflect.Type, outer []reflect.Type) {
	t = element(t)
	if !schema.IsNested(t) || slices.Contains(outer, t) {
		return
	}
	outer = append(slices.Clone(outer), t)
	for _, m := range schema.Describe(t).Members {
		if m.JSON == "" {
			continue
		}
		if !slices.Contains(k.names, m.JSON) {
			k.names = append(k.names, m.JSON)
		}
		inner, declared := k.members[m.JSON]
		switch shown := element(m.Type); {
		case inner != nil && inner != knownTimestamp:
			inner.addView(m.Type, outer)
		case declared, shown == reflect.TypeFor[problem.Ref](): // a whole object may stand for a reference
			k.members[m.JSON] = inner
		case shown == reflect.TypeFor[Timestamp]():
			k.members[m.JSON] = knownTimestamp
		case schema.IsNested(shown) && !slices.Contains(outer, shown):
			k.members[m.JSON] = &Known{members: map[string]*Known{}}
			k.members[m.JSON].addView(shown, outer)
		default:
			k.members[m.JSON] = nil
		}
	}
}

// element returns the type of the objects in a value: that behind pointers and in arrays.
func element(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	return t
}

const (
	// maxUnknown is the maximum number of unknown members that are reported for a body.
	maxUnknown = 100
	// maxUnknownName is the maximum number of characters of a member's name that are reported.
	maxUnknownName = 100
)

// findUnknown returns the errors of unknown members in a value, at most maxUnknown.
func (k *Known) findUnknown(at *location, value any) (unknown problem.Fields) {
	if k == nil {
		return nil
	}
	k.addUnknown(&unknown, at, value)
	return unknown
}

func (k *Known) addUnknown(unknown *problem.Fields, at *location, value any) {
	switch value := value.(type) {
	case array:
		for i, item := range value {
			k.addUnknown(unknown, &location{in: at, index: i}, item)
		}
	case object:
		for _, m := range value {
			if len(*unknown) == maxUnknown {
				return
			}
			if inner, ok := k.members[m.name]; !ok {
				k.addName(unknown, at, m.name)
			} else if inner != nil {
				inner.addUnknown(unknown, &location{in: at, name: m.name}, m.value)
			}
		}
	}
}

// addName adds the error of an unknown member.
func (k *Known) addName(unknown *problem.Fields, at *location, name string) {
	if utf8.RuneCountInString(name) > maxUnknownName {
		name = string([]rune(name)[:maxUnknownName]) + "…"
	}
	*unknown = append(*unknown, problem.Field{
		Pointer: at.pointer() + "/" + schema.Escape(name),
		Code:    "unknown",
		Message: k.describeUnknown(name),
	})
}

// describeUnknown returns the message about an unknown member. It has the name that the caller probably means, or all names.
func (k *Known) describeUnknown(name string) string {
	if nearest := k.nearest(name); nearest != "" {
		return fmt.Sprintf("is unknown; the nearest known member is %s", nearest)
	}
	return fmt.Sprintf("is unknown; known members are %s", strings.Join(k.names, ", "))
}

// nearest returns the member with the most similar name, or an empty string if none is similar.
func (k *Known) nearest(name string) (nearest string) {
	least := utf8.RuneCountInString(name)/2 + 1 // at most half of the characters differ
	for _, known := range k.names {
		distance := levenshtein.ComputeDistance(strings.ToLower(name), strings.ToLower(known))
		if distance < least {
			nearest, least = known, distance
		}
	}
	return nearest
}
