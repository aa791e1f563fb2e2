package body

import (
	"reflect"

	"github.com/ironplane/ironplane/pkg/rest/openapi"
	"github.com/ironplane/ironplane/pkg/schema"
)

// itemsKind reads an array of objects into a slice of structs. Within them null counts as not sent.
func itemsKind(of reflect.Type) *Kind {
	return &Kind{
		Items:  of,
		Schema: openapi.Schema{"type": "array", "maxItems": MaxRefs},
		set: func(to reflect.Value, sent any, _ *schema.Member) (string, string) {
			plan, items := NewPlan(of), reflect.MakeSlice(reflect.SliceOf(of), 0, 0)
			code, message := readItems(sent, "objects", func(item any) (string, string) {
				o, ok := item.(object)
				if !ok {
					return "type", "must be an object"
				}
				value := reflect.New(of).Elem()
				for _, s := range plan.read(plan.Root, o) {
					if len(s.invalid) > 0 {
						return s.invalid[0].Code, "has " + s.pointer[1:] + ", which " + s.invalid[0].Message
					}
					for _, p := range s.parts {
						if !s.null {
							value.FieldByIndex(plan.Fields[p.field].Index).Set(p.value)
						}
					}
				}
				items = reflect.Append(items, value)
				return "", ""
			})
			to.Set(items)
			return code, message
		},
	}
}
