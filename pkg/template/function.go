package template

import (
	"cmp"
	"fmt"
	"reflect"
)

// maxText is the maximal length of a function's arguments and of its result, in bytes. Without it a template could make
// texts without end.
const maxText = 64 << 10

// Function is a function that templates can call.
type Function struct {
	// Do gets and returns values as variables have them; secrets are texts. It may return an error, too.
	Do any
	// Secrets is true if arguments may be secrets. The result is then a secret, too.
	Secrets bool
	// Hides is true if the function shows the mark itself for a secret that is not revealed, instead of processing the
	// mark.
	Hides bool
	// Steps is the cost of a call, as a multiple of showing a variable.
	Steps int
}

// masked stands for a secret that is not revealed.
type masked string

// call returns the function in the form that Go's templates call. The number and types of its arguments were checked
// before.
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
			return nil, fmt.Errorf("the arguments of %s have more than %d bytes", name, maxText)
		}
		if hidden && f.Hides {
			return masked(Mark), nil
		}
		answers := do.Call(args)
		if len(answers) > 1 && !answers[1].IsNil() {
			return nil, answers[1].Interface().(error)
		}
		if textBytes(answers[0]) > maxText {
			return nil, fmt.Errorf("the result of %s has more than %d bytes", name, maxText)
		}
		if hidden {
			return masked(answers[0].String()), nil
		}
		return answers[0].Interface(), nil
	}
}

// convert returns a template's value with the type of a function's parameter.
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

// textBytes returns the length of all texts in a value.
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

// Default is a function that returns its first argument if the second one is empty, and otherwise the second one.
var Default = Function{Do: func(instead, text string) string { return cmp.Or(text, instead) }}
