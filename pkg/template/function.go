package template

import (
	"cmp"
	"fmt"
	"reflect"
)

// maxText is how long a text is, at most, that a function is given or makes: or a template could make one without end.
const maxText = 64 << 10

// Function is one that templates can call.
type Function struct {
	// Do takes and answers values as variables have them, of which secrets are texts. It may answer an error, too.
	Do any
	// Secrets says that it may be given secrets. What it makes of one is a secret.
	Secrets bool
	// Hides says that of a secret that is not to be revealed it shows the mark, and nothing that it made of the mark.
	Hides bool
	// Steps is what a call counts for, as a multiple of a node that shows a variable.
	Steps int
}

// masked is what stands for a secret that is not to be revealed.
type masked string

// call is the function as Go's templates call it. How many values it is given, and of which types, was checked.
func (f Function) call(name string) any {
	do := reflect.ValueOf(f.Do)
	return func(values ...any) (any, error) {
		args, size, hidden := make([]reflect.Value, len(values)), 0, false
		for i, value := range values {
			if text, is := value.(masked); is {
				hidden, value = true, string(text)
			}
			args[i] = convert(value, do.Type().In(i))
			size += textBytes(args[i])
		}
		if size > maxText {
			return nil, fmt.Errorf("%s is given more than %d bytes", name, maxText)
		}
		if hidden && f.Hides {
			return masked(Mark), nil
		}
		answers := do.Call(args)
		if len(answers) > 1 && !answers[1].IsNil() {
			return nil, answers[1].Interface().(error)
		}
		if textBytes(answers[0]) > maxText {
			return nil, fmt.Errorf("%s makes more than %d bytes", name, maxText)
		}
		if hidden {
			return masked(answers[0].String()), nil
		}
		return answers[0].Interface(), nil
	}
}

// convert is a value, as templates get it, of the type that a function takes.
func convert(value any, of reflect.Type) reflect.Value {
	switch value := value.(type) {
	case []any:
		list := reflect.MakeSlice(of, len(value), len(value))
		for i, item := range value {
			list.Index(i).Set(convert(item, of.Elem()))
		}
		return list
	case map[string]any:
		group := reflect.New(of).Elem()
		for name, field := range value {
			group.FieldByName(name).Set(convert(field, group.FieldByName(name).Type()))
		}
		return group
	default:
		return reflect.ValueOf(value).Convert(of)
	}
}

// textBytes is how many bytes the texts have that a value is or holds.
func textBytes(v reflect.Value) (n int) {
	switch v.Kind() {
	case reflect.String:
		n = v.Len()
	case reflect.Slice:
		for i := range v.Len() {
			n += textBytes(v.Index(i))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			n += textBytes(v.Field(i))
		}
	}
	return n
}

// Default is for what may be empty: a text instead of it, and it.
var Default = Function{Do: func(instead, text string) string { return cmp.Or(text, instead) }}
