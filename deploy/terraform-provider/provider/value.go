package provider

import (
	"encoding/json"
	"fmt"
	"math/big"
	"net/netip"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/ironplane/ironplane/pkg/client/operations"
)

// An item's values are a tree of map[string]any, []any, string, int64 and bool, by the names in Terraform. nil is null.

// unknown is a value that is known after the apply.
type unknown struct{}

// fromTerraform returns the tree of a value.
func fromTerraform(v tftypes.Value) (any, error) {
	if !v.IsKnown() {
		return unknown{}, nil
	}
	if v.IsNull() {
		return nil, nil
	}
	switch t := v.Type(); {
	case t.Is(tftypes.String):
		var text string
		err := v.As(&text)
		return text, err
	case t.Is(tftypes.Bool):
		var b bool
		err := v.As(&b)
		return b, err
	case t.Is(tftypes.Number):
		var f big.Float
		err := v.As(&f)
		n, _ := f.Int64()
		return n, err
	case t.Is(tftypes.List{}):
		var values []tftypes.Value
		if err := v.As(&values); err != nil {
			return nil, err
		}
		all := make([]any, len(values))
		for i := range values {
			var err error
			if all[i], err = fromTerraform(values[i]); err != nil {
				return nil, err
			}
		}
		return all, nil
	default:
		var values map[string]tftypes.Value
		if err := v.As(&values); err != nil {
			return nil, err
		}
		all := map[string]any{}
		for name := range values {
			var err error
			if all[name], err = fromTerraform(values[name]); err != nil {
				return nil, err
			}
		}
		return all, nil
	}
}

// toTerraform returns a tree as a value of a type.
func toTerraform(t tftypes.Type, value any) (tftypes.Value, error) {
	switch v := value.(type) {
	case nil:
		return tftypes.NewValue(t, nil), nil
	case unknown:
		return tftypes.NewValue(t, tftypes.UnknownValue), nil
	case map[string]any:
		values := map[string]tftypes.Value{}
		object, isObject := t.(tftypes.Object)
		if !isObject {
			for name := range v {
				text, err := asText(v[name])
				if err != nil {
					return tftypes.Value{}, err
				}
				values[name] = tftypes.NewValue(tftypes.String, text)
			}
			return tftypes.NewValue(t, values), nil
		}
		for name, inner := range object.AttributeTypes {
			var err error
			if values[name], err = toTerraform(inner, v[name]); err != nil {
				return tftypes.Value{}, err
			}
		}
		return tftypes.NewValue(t, values), nil
	case []any:
		list, isList := t.(tftypes.List)
		if !isList {
			return tftypes.Value{}, fmt.Errorf("got a list, want %s", t)
		}
		values := make([]tftypes.Value, len(v))
		for i := range v {
			var err error
			if values[i], err = toTerraform(list.ElementType, v[i]); err != nil {
				return tftypes.Value{}, err
			}
		}
		return tftypes.NewValue(t, values), nil
	default:
		if err := tftypes.ValidateValue(t, value); err != nil {
			return tftypes.Value{}, err
		}
		return tftypes.NewValue(t, value), nil
	}
}

// asText returns a value of a map: a text as it is, and anything else as JSON.
func asText(value any) (string, error) {
	if text, ok := value.(string); ok {
		return text, nil
	}
	text, err := json.Marshal(value)
	return string(text), err
}

// member returns a member of an object, or nil. Of an unknown object all members are unknown.
func member(of any, name string) any {
	switch v := of.(type) {
	case unknown:
		return v
	case map[string]any:
		return v[name]
	default:
		return nil
	}
}

// leaves calls do for each attribute that is no object, with its name with dots.
func leaves(attributes []*Attribute, prefix string, do func(name string, a *Attribute)) {
	for _, a := range attributes {
		if a.Kind == "object" {
			leaves(a.Attributes, prefix+a.Name+".", do)
		} else {
			do(prefix+a.Name, a)
		}
	}
}

// at returns the value with a name with dots.
func at(of any, name string) any {
	for part := range strings.SplitSeq(name, ".") {
		of = member(of, part)
	}
	return of
}

// encode returns a value as the API reads it.
func (a *Attribute) encode(value any) any {
	if text, ok := value.(string); ok && a.Kind == "time" {
		return map[string]any{"iso_8601": text}
	}
	return value
}

// body returns the body of a creation: all that the configuration has.
func (k *Kind) body(config any) map[string]any {
	body := map[string]any{}
	leaves(k.Attributes, "", func(name string, a *Attribute) {
		if value := at(config, name); a.api != "" && value != nil {
			operations.Put(body, a.api, a.encode(value))
		}
	})
	return body
}

// changes returns the body of an edit: the members that the plan changes, and those that each edit needs. wasSet are the members
// that the configuration had at the last apply. It is empty if nothing changes.
func (k *Kind) changes(config, plan, state any, wasSet map[string]bool) map[string]any {
	body, needed := map[string]any{}, map[string]any{}
	leaves(k.Attributes, "", func(name string, a *Attribute) {
		if !a.editable {
			return
		}
		wanted, present := at(config, name), at(state, name)
		switch {
		case a.isRemoved(wanted, present, wasSet[name]):
			operations.Put(body, a.api, a.empty())
		case wanted != nil && !same(at(plan, name), present):
			operations.Put(body, a.api, a.encode(wanted))
		case a.always && wanted != nil:
			operations.Put(needed, a.api, a.encode(wanted))
		case a.always:
			operations.Put(needed, a.api, a.encode(present))
		}
	})
	if len(body) == 0 {
		return nil
	}
	for secret, beside := range k.resend {
		if value := at(config, secret); body[beside] != nil && value != nil {
			operations.Put(body, secret, value)
		}
	}
	for name := range needed {
		if _, ok := body[name]; !ok {
			body[name] = needed[name]
		}
	}
	return body
}

// isRemoved reports whether the configuration had a member at the last apply, and has it no longer, so that it is cleared.
func (a *Attribute) isRemoved(wanted, present any, wasSet bool) bool {
	return wanted == nil && present != nil && wasSet && a.editable && (a.null || a.List)
}

// empty returns what clears a member.
func (a *Attribute) empty() any {
	if a.null {
		return nil
	}
	return []any{}
}

// decode returns the tree of an answer. prior has the values that the API does not show, and the spelling of those that it spells
// in another way.
func decode(attributes []*Attribute, prior, answer any) map[string]any {
	all := map[string]any{}
	for _, a := range attributes {
		before := member(prior, a.Name)
		_, isUnknown := before.(unknown)
		if isUnknown {
			before = nil
		}
		switch {
		case a.Kind == "object":
			inner := decode(a.Attributes, before, answer)
			if all[a.Name] = inner; before == nil && isEmpty(inner) {
				all[a.Name] = nil
			}
		case a.answer == "":
			all[a.Name] = before
		default:
			value := a.read(answer)
			if a.alike(before, value) || a.shownOnce && value == nil {
				value = before
			}
			all[a.Name] = value
		}
	}
	return all
}

// read returns the value of an attribute in an answer.
func (a *Attribute) read(answer any) any {
	value := answer
	for part := range strings.SplitSeq(a.answer, ".") {
		switch v := value.(type) {
		case map[string]any:
			value = v[part]
		case []any:
			i, err := strconv.Atoi(part)
			if err != nil || i >= len(v) {
				return nil
			}
			value = v[i]
		default:
			return nil
		}
	}
	return a.plain(value)
}

// plain returns a value without the objects that the API puts around times and references.
func (a *Attribute) plain(value any) any {
	switch v := value.(type) {
	case []any:
		all := make([]any, len(v))
		for i := range v {
			all[i] = a.plain(v[i])
		}
		return all
	case map[string]any:
		switch {
		case a.Kind == "time":
			return v["iso_8601"]
		case a.isRef && a.Kind == "name":
			return v["name"]
		case a.isRef || a.Kind == "ref":
			return a.plain(v["id"])
		}
		return v
	case json.Number:
		n, err := v.Int64()
		if err != nil || !a.isNumber() {
			return v.String()
		}
		return n
	default:
		return v
	}
}

func isEmpty(value any) bool {
	switch v := value.(type) {
	case map[string]any:
		for name := range v {
			if !isEmpty(v[name]) {
				return false
			}
		}
		return true
	default:
		return v == nil
	}
}

func same(a, b any) bool { return reflect.DeepEqual(a, b) }

// alike reports whether two values are the same in two spellings. The API knows names in upper and lower case.
func (a *Attribute) alike(x, y any) bool {
	return spelledAlike(x, y) || a.Kind == "name" && strings.EqualFold(fmt.Sprint(x), fmt.Sprint(y))
}

// spelledAlike reports whether two values are the same in two spellings: of a time, an address, or of nothing.
func spelledAlike(a, b any) bool {
	if same(a, b) {
		return true
	}
	if b == nil {
		list, isList := a.([]any)
		return a == "" || a == false || isList && len(list) == 0
	}
	x, isText := a.(string)
	y, isTextToo := b.(string)
	if !isText || !isTextToo {
		return false
	}
	return spell(x) == spell(y)
}

// spell returns a time, an address, a range or a prefix in one spelling, and any other text as it is.
func spell(text string) string {
	if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return at.UTC().Format(time.RFC3339Nano)
	}
	if first, last, ok := strings.Cut(text, "-"); ok {
		if first, last = spell(first), spell(last); first != last {
			return first + "-" + last
		}
		return first
	}
	if address, err := netip.ParseAddr(text); err == nil {
		return address.String()
	}
	prefix, err := netip.ParsePrefix(text)
	switch {
	case err != nil:
		return text
	case prefix.IsSingleIP():
		return prefix.Addr().String()
	default:
		return prefix.String()
	}
}
