package rest

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/shape"
)

// kind is how values of one Go type are read from a body and described in the API document.
type kind struct {
	text   bool // sent as a string
	schema schema
	// set puts what was sent into to, within the member's bounds, or answers a code and a message. sent is never null.
	set func(to reflect.Value, sent any, m *shape.Member) (code, message string)
}

// maxString is the most characters of a string whose member does not say otherwise.
const maxString = 255

var kinds = map[reflect.Type]*kind{
	reflect.TypeFor[bool]():          boolKind,
	reflect.TypeFor[RefID]():         refKind,
	reflect.TypeFor[[]RefID]():       refsKind,
	reflect.TypeFor[Timestamp]():     timestampKind,
	reflect.TypeFor[secret.String](): secretKind,
}

func kindOf(t reflect.Type) *kind {
	if k, ok := kinds[t]; ok {
		return k
	}
	switch t.Kind() {
	case reflect.String:
		return stringKind
	case reflect.Int, reflect.Int64, reflect.Int32:
		return integerKind
	default:
		return nil
	}
}

var (
	stringKind    = &kind{text: true, schema: schema{"type": "string"}, set: setString}
	integerKind   = &kind{schema: schema{"type": "integer"}, set: setInteger}
	boolKind      = &kind{schema: schema{"type": "boolean"}, set: setBool}
	refKind       = &kind{schema: refSchema, set: setRef}
	refsKind      = &kind{schema: schema{"type": "array", "items": refSchema, "maxItems": maxRefs}, set: setRefs}
	timestampKind = &kind{schema: schema{"$ref": "#/components/schemas/Timestamp"}, set: setTimestamp}
	secretKind    = &kind{text: true, schema: schema{"type": "string", "writeOnly": true}, set: setSecret}
	refSchema     = schema{"oneOf": []schema{
		{"type": "integer"},
		{"type": "object", "properties": schema{"id": schema{"type": "integer"}}, "required": []string{"id"}},
	}}
)

func setString(to reflect.Value, sent any, m *shape.Member) (string, string) {
	text, ok := sent.(string)
	if !ok {
		return "type", "must be a string"
	}
	longest := int64(maxString)
	if m.Max != nil {
		longest = *m.Max
	}
	if strings.ContainsRune(text, 0) {
		return "invalid", "cannot contain the character NUL"
	}
	if int64(utf8.RuneCountInString(text)) > longest {
		return "too_long", fmt.Sprintf("can have at most %d characters", longest)
	}
	to.SetString(text)
	return "", ""
}

func setSecret(to reflect.Value, sent any, m *shape.Member) (string, string) {
	var text string
	if code, message := setString(reflect.ValueOf(&text).Elem(), sent, m); code != "" {
		return code, message
	}
	to.Set(reflect.ValueOf(secret.New(text)))
	return "", ""
}

func setInteger(to reflect.Value, sent any, m *shape.Member) (string, string) {
	number, ok := sent.(json.Number)
	if !ok {
		return "type", "must be an integer"
	}
	n, err := strconv.ParseInt(number.String(), 10, 64)
	if err != nil {
		if strings.ContainsAny(number.String(), ".eE") {
			return "type", "must be an integer"
		}
		return "out_of_range", "is out of range"
	}
	smallest, largest := int64(math.MinInt32), int64(math.MaxInt32)
	if to.Kind() == reflect.Int64 {
		smallest, largest = math.MinInt64, math.MaxInt64
	}
	if m.Min != nil {
		smallest = *m.Min
	}
	if m.Max != nil {
		largest = *m.Max
	}
	if n < smallest || n > largest {
		return "out_of_range", fmt.Sprintf("must be from %d to %d", smallest, largest)
	}
	to.SetInt(n)
	return "", ""
}

func setBool(to reflect.Value, sent any, _ *shape.Member) (string, string) {
	value, ok := sent.(bool)
	if !ok {
		return "type", "must be true or false"
	}
	to.SetBool(value)
	return "", ""
}

func setRef(to reflect.Value, sent any, m *shape.Member) (string, string) {
	if o, ok := sent.(object); ok {
		for _, part := range o {
			if part.name == "id" {
				sent = part.value
			}
		}
	}
	if code, _ := setInteger(to, sent, m); code != "" {
		return "type", `must be an id or an object with one, such as {"id": 3}`
	}
	return "", ""
}

// maxRefs is how many references a member can hold.
const maxRefs = 1000

// setRefs takes references in any order, and each of them once.
func setRefs(to reflect.Value, sent any, _ *shape.Member) (string, string) {
	items, ok := sent.(array)
	if !ok {
		return "type", `must be an array of ids or of objects with one, such as [{"id": 3}]`
	}
	if len(items) > maxRefs {
		return "too_long", fmt.Sprintf("can have at most %d items", maxRefs)
	}
	refs := make([]RefID, len(items))
	for i, item := range items {
		if code, message := setRef(reflect.ValueOf(&refs[i]).Elem(), item, &shape.Member{}); code != "" {
			return code, fmt.Sprintf("item %d %s", i+1, message)
		}
	}
	slices.Sort(refs)
	to.Set(reflect.ValueOf(slices.Compact(refs)))
	return "", ""
}

func setTimestamp(to reflect.Value, sent any, member *shape.Member) (string, string) {
	const expected = `must be an object such as {"iso_8601": "2026-11-20T10:00:00Z", "unix": 1795168800}`
	o, ok := sent.(object)
	if !ok {
		return "type", expected
	}
	var iso, unix string
	for _, m := range o {
		switch value := m.value.(type) {
		case string:
			if m.name == "iso_8601" {
				iso = value
			}
		case json.Number:
			if m.name == "unix" {
				unix = value.String()
			}
		}
	}
	at, err := time.Parse(time.RFC3339, iso)
	if err != nil {
		return "type", expected
	}
	if seconds, err := strconv.ParseInt(unix, 10, 64); err != nil {
		return "type", expected
	} else if seconds != at.Unix() {
		return "disagrees", "names two moments: iso_8601 and unix differ"
	}
	if at.Year() < 1 || at.Year() > 9999 {
		return "out_of_range", "is out of range"
	}
	if member.Future && !at.After(time.Now()) {
		return "out_of_range", "must be in the future"
	}
	to.Set(reflect.ValueOf(Timestamp{at.UTC().Truncate(time.Second)}))
	return "", ""
}

var plans sync.Map // reflect.Type → *bodyPlan

func planOf[B any]() *bodyPlan {
	t := reflect.TypeFor[B]()
	if p, ok := plans.Load(t); ok {
		return p.(*bodyPlan)
	}
	p, _ := plans.LoadOrStore(t, makePlan(t))
	return p.(*bodyPlan)
}
