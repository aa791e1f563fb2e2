package body

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/ironplane/ironplane/pkg/rest/openapi"
	"github.com/ironplane/ironplane/pkg/schema"
	"github.com/ironplane/ironplane/pkg/secret"
)

// Kind reads values of one Go type from a body, and describes them in the API document.
type Kind struct {
	Text   bool // sent as a string
	Schema openapi.Schema
	Items  reflect.Type // the type of the objects in an array
	// set stores the sent value, within the bounds of the member, or returns a code and a message. sent is never null.
	set func(to reflect.Value, sent any, m *schema.Member) (code, message string)
}

// MaxString is the default for the maximum number of characters of a string.
const MaxString = 255

var kinds = map[reflect.Type]*Kind{
	reflect.TypeFor[bool]():              KindBool,
	reflect.TypeFor[RefID]():             KindRef,
	reflect.TypeFor[[]RefID]():           KindRefs,
	reflect.TypeFor[[]int64]():           KindIntegers,
	reflect.TypeFor[[]string]():          KindTexts,
	reflect.TypeFor[map[string]string](): KindTextMap,
	reflect.TypeFor[RefOrName]():         KindRefOrName,
	reflect.TypeFor[Timestamp]():         KindTimestamp,
	reflect.TypeFor[secret.String]():     KindSecret,
}

// kindOf returns the kind of a member by its type, or nil for a type that bodies cannot have.
func kindOf(t reflect.Type) *Kind {
	if k, ok := kinds[t]; ok {
		return k
	}
	switch t.Kind() {
	case reflect.String:
		return KindString
	case reflect.Int, reflect.Int64, reflect.Int32:
		return KindInteger
	case reflect.Slice:
		if t.Elem().Kind() != reflect.Struct {
			return nil
		}
		return itemsKind(t.Elem())
	default:
		return nil
	}
}

var (
	KindString   = &Kind{Text: true, set: setString}
	KindInteger  = &Kind{set: setInteger}
	KindBool     = &Kind{Schema: openapi.Schema{"type": "boolean"}, set: setBool}
	KindRef      = &Kind{set: setRef}
	KindRefs     = &Kind{Schema: openapi.Schema{"type": "array", "maxItems": MaxRefs}, set: setRefs}
	KindIntegers = &Kind{
		Schema: openapi.Schema{"type": "array", "maxItems": MaxRefs, "items": openapi.Schema{"type": "integer", "format": "int64"}},
		set:    setIntegers,
	}
	KindTexts = &Kind{
		Schema: openapi.Schema{"type": "array", "maxItems": MaxRefs, "items": openapi.Schema{"type": "string", "maxLength": MaxString}},
		set:    setTexts,
	}
	KindTextMap = &Kind{
		Schema: openapi.Schema{"type": "object", "maxProperties": MaxRefs, "additionalProperties": openapi.Schema{"type": "string"}},
		set:    setTextMap,
	}
	KindRefOrName = &Kind{Text: true, set: setRefOrName}
	KindTimestamp = &Kind{set: setTimestamp}
	KindSecret    = &Kind{Text: true, Schema: openapi.Schema{"writeOnly": true}, set: setSecret}
)

// normalize returns the JSON value of what was sent. Forms, PHP and CSV send texts and numbers for any type, and "" for empty
// input. It returns nil for null, and false if the value counts as not sent.
func (f *Field) normalize(sent any) (any, bool) {
	switch {
	case f.Kind == KindRef, f.Kind == KindRefOrName:
		sent = idOf(sent)
	case f.Kind == KindTimestamp:
		sent = timestampParts(sent)
	case f.Kind == KindRefs && (sent == nil || sent == ""):
		sent = array{}
	}
	if text, ok := sent.(string); ok && f.Kind != KindSecret && !f.Untrimmed {
		sent = strings.TrimRightFunc(text, unicode.IsSpace)
	}
	if o, ok := sent.(object); ok && len(o) == 0 {
		return nil, false
	}
	if sent != "" {
		return sent, true
	}
	switch {
	case f.Kind == KindBool, f.Kind == KindTimestamp, f.Kind == KindSecret && f.Optional:
		return nil, false
	case f.Kind.Text && !f.Optional:
		return sent, true
	default:
		return nil, true
	}
}

// normalize returns the object that was sent for a node. PHP writes an empty object as an array, and some responses wrap an
// object in one. A reference may be an id alone. It is null if its id is.
func (n *Node) normalize(sent any) any {
	if items, ok := sent.(array); ok {
		items = slices.DeleteFunc(slices.Clone(items), func(item any) bool { return item == "" }) // from a hidden input of a form
		if len(items) == 0 {
			return object{}
		}
		if one, ok := items[0].(object); ok && len(items) == 1 { // as in some documented responses
			sent = one
		}
	}
	if text, ok := sent.(string); ok && len(n.Names) == 1 { // the only member of the object
		return object{{n.Names[0], text}}
	}
	if !slices.Contains(n.Names, "id") || !slices.Contains(n.Names, "name") {
		return sent
	}
	switch value := sent.(type) {
	case json.Number, string:
		sent = object{{"id", value}}
	}
	blank := func(v any) bool { return v == nil || v == "" }
	more := func(m member) bool {
		_, known := n.Members[m.name]
		return known && m.name != "name" && !blank(m.value)
	}
	if o, ok := sent.(object); ok && blank(idOf(o)) && !slices.ContainsFunc(o, more) {
		return nil
	}
	return sent
}

// idOf returns the id of an object that has one. Other values are returned as they are.
func idOf(sent any) any {
	if o, ok := sent.(object); ok {
		if i := slices.IndexFunc(o, func(m member) bool { return m.name == "id" }); i >= 0 {
			return o[i].value
		}
	}
	return sent
}

// decimal matches JSON numbers with an exponent that is small enough to write them out.
var decimal = regexp.MustCompile(`^-?[0-9]{1,40}(\.[0-9]{1,40})?([eE][+-]?[0-9]{1,2})?$`)

// Integer parses a whole number in any form that JSON has (1e3 is one), or a text of digits.
func Integer(sent any) (n int64, code, message string) {
	const notOne = "must be an integer"
	text, isText := sent.(string)
	if number, ok := sent.(json.Number); ok {
		text = number.String()
	} else if digits := strings.TrimPrefix(text, "-"); !isText || digits == "" || strings.Trim(digits, "0123456789") != "" {
		return 0, "type", notOne
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err == nil {
		return n, "", ""
	}
	exact := big.NewRat(1, 2)
	if decimal.MatchString(text) {
		exact.SetString(text)
	}
	switch {
	case errors.Is(err, strconv.ErrRange) || exact.IsInt() && !exact.Num().IsInt64():
		return 0, "out_of_range", "is out of range"
	case !exact.IsInt():
		return 0, "type", notOne
	default:
		return exact.Num().Int64(), "", ""
	}
}

func setInteger(to reflect.Value, sent any, m *schema.Member) (string, string) {
	n, code, message := Integer(sent)
	if code != "" {
		return code, message
	}
	minValue, maxValue := int64(math.MinInt32), int64(math.MaxInt32)
	if to.Kind() == reflect.Int64 {
		minValue, maxValue = math.MinInt64, math.MaxInt64
	}
	if m.Min != nil {
		minValue = *m.Min
	}
	if m.Max != nil {
		maxValue = *m.Max
	}
	if n < minValue || n > maxValue {
		return "out_of_range", fmt.Sprintf("must be from %d to %d", minValue, maxValue)
	}
	to.SetInt(n)
	return "", ""
}

func setBool(to reflect.Value, sent any, _ *schema.Member) (string, string) {
	switch strings.ToLower(fmt.Sprint(sent)) {
	case "true", "1":
		to.SetBool(true)
	case "false", "0":
		to.SetBool(false)
	default:
		return "type", "must be true or false"
	}
	return "", ""
}

func setRef(to reflect.Value, sent any, m *schema.Member) (string, string) {
	if code, _ := setInteger(to, sent, m); code != "" {
		return "type", `must be an id or an object with one, such as {"id": 3}`
	}
	return "", ""
}

func setRefOrName(to reflect.Value, sent any, m *schema.Member) (string, string) {
	if id, code, _ := Integer(sent); code == "" {
		to.SetString(byID + strconv.FormatInt(id, 10))
		return "", ""
	}
	if _, isObject := sent.(object); isObject {
		return "type", `must be a name, an id or an object with one, such as {"id": 3}`
	}
	return setString(to, sent, m)
}

// MaxRefs is the maximum number of items in a member.
const MaxRefs = 1000

// readItems calls read for each item of an array, or of a text that is separated by spaces or commas.
func readItems(sent any, wanted string, read func(item any) (code, message string)) (string, string) {
	items, ok := sent.(array)
	text, _ := sent.(string)
	for item := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ',' || unicode.IsSpace(r) }) {
		items, ok = append(items, item), true
	}
	if !ok {
		return "type", "must be an array of " + wanted
	}
	if len(items) > MaxRefs {
		return "too_long", fmt.Sprintf("can have at most %d items", MaxRefs)
	}
	for i, item := range items {
		if o, isObject := item.(object); item == "" || isObject && len(o) == 0 { // forms send this if nothing is selected
			continue
		}
		if code, message := read(item); code != "" {
			return code, fmt.Sprintf("item %d %s", i+1, message)
		}
	}
	return "", ""
}

// setIntegers reads integers in their order.
func setIntegers(to reflect.Value, sent any, _ *schema.Member) (string, string) {
	integers := []int64{}
	code, message := readItems(sent, "integers, such as [3, 4]", func(item any) (string, string) {
		n, code, message := Integer(item)
		integers = append(integers, n)
		return code, message
	})
	to.Set(reflect.ValueOf(integers))
	return code, message
}

// setTexts reads texts in their order.
func setTexts(to reflect.Value, sent any, m *schema.Member) (string, string) {
	texts := []string{}
	code, message := readItems(sent, "texts", func(item any) (string, string) {
		if text, ok := item.(string); ok {
			item = strings.TrimRightFunc(text, unicode.IsSpace)
		}
		var text string
		code, message := setString(reflect.ValueOf(&text).Elem(), item, &schema.Member{Pattern: m.Pattern, Max: m.Max})
		if text != "" {
			texts = append(texts, text)
		}
		return code, message
	})
	to.Set(reflect.ValueOf(texts))
	return code, message
}

// setTextMap reads texts by name.
func setTextMap(to reflect.Value, sent any, m *schema.Member) (code, message string) {
	o, ok := sent.(object)
	if !ok || len(o) > MaxRefs {
		return "type", fmt.Sprintf("must be an object of at most %d texts", MaxRefs)
	}
	named := map[string]string{}
	for _, one := range o {
		text, code, message := readText(one.value, m)
		if code != "" {
			return code, "has " + one.name + ", which " + message
		}
		named[one.name] = strings.TrimRightFunc(text, unicode.IsSpace)
	}
	to.Set(reflect.ValueOf(named))
	return "", ""
}

// setRefs reads references. Duplicates are removed, and the ids are sorted unless the member is ordered.
func setRefs(to reflect.Value, sent any, m *schema.Member) (string, string) {
	refs := []RefID{}
	code, message := readItems(sent, `ids or of objects with one, such as [{"id": 3}]`, func(item any) (string, string) {
		var ref RefID
		code, message := setRef(reflect.ValueOf(&ref).Elem(), idOf(item), &schema.Member{})
		if code == "" && !slices.Contains(refs, ref) {
			refs = append(refs, ref)
		}
		return code, message
	})
	if !m.Ordered {
		slices.Sort(refs)
	}
	to.Set(reflect.ValueOf(refs))
	return code, message
}

var plans sync.Map // reflect.Type → *Plan

func planFor[B any]() *Plan {
	t := reflect.TypeFor[B]()
	if p, ok := plans.Load(t); ok {
		return p.(*Plan)
	}
	p, _ := plans.LoadOrStore(t, NewPlan(t))
	return p.(*Plan)
}

// ReadValue reads the value of a parameter in the same way as a form's member.
func ReadValue(to reflect.Value, text string, m *schema.Member) (code, message string) {
	if !IsText(text) {
		return "type", "must be a text of UTF-8 without the character NUL"
	}
	return kindOf(to.Type()).set(to, text, m)
}

// IsText reports whether the database can store a text.
func IsText(text string) bool { return utf8.ValidString(text) && !strings.ContainsRune(text, 0) }
