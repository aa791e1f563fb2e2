package rest

import (
	"fmt"
	"reflect"

	"github.com/ironplane/ironplane/pkg/shape"
)

// itemsKind reads an array of objects into a slice of structs. In these, null is as if it were not sent.
func itemsKind(of reflect.Type) *kind {
	return &kind{items: of, schema: schema{"type": "array", "maxItems": maxRefs}, set: func(to reflect.Value, sent any, _ *shape.Member) (string, string) {
		sentItems, ok := sent.(array)
		if !ok {
			return "type", "must be an array of objects"
		}
		if len(sentItems) > maxRefs {
			return "too_long", fmt.Sprintf("can have at most %d items", maxRefs)
		}
		plan, read := makePlan(of), reflect.MakeSlice(reflect.SliceOf(of), 0, len(sentItems))
		for i, item := range sentItems {
			if item == "" { // as forms send where nothing is chosen
				continue
			}
			o, ok := item.(object)
			if !ok {
				return "type", fmt.Sprintf("item %d must be an object", i+1)
			}
			value := reflect.New(of).Elem()
			for _, s := range plan.read(plan.root, o) {
				if len(s.wrong) > 0 {
					return s.wrong[0].Code, fmt.Sprintf("item %d: %s %s", i+1, s.pointer[1:], s.wrong[0].Message)
				}
				for _, p := range s.parts {
					if !s.null {
						value.FieldByIndex(plan.fields[p.field].Index).Set(p.value)
					}
				}
			}
			read = reflect.Append(read, value)
		}
		to.Set(read)
		return "", ""
	}}
}
