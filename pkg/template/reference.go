package template

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/ironplane/ironplane/pkg/secret"
)

// FormatErrors returns errors in one line.
func FormatErrors(errors []Error) string {
	lines := make([]string, len(errors))
	for i, e := range errors {
		lines[i] = e.Error()
	}
	return strings.Join(lines, "; ")
}

// Table describes the variables in Markdown, with a note about secrets.
func (l *Language) Table(secretNote string) string {
	var b strings.Builder
	b.WriteString("| Variable | Description |\n|---|---|\n")
	for _, v := range l.Variables() {
		description := v.Doc
		if v.Secret {
			description += " (" + secretNote + ")"
		}
		fmt.Fprintf(&b, "| `%s` | %s |\n", v.Name, description)
	}
	return b.String()
}

// Example returns a struct of the same type, with fields as their tags example say.
func Example(of any) any {
	example := reflect.New(reflect.TypeOf(of)).Elem()
	for i := range example.NumField() {
		field, text := example.Field(i), example.Type().Field(i).Tag.Get("example")
		switch to := field.Addr().Interface().(type) {
		case *string:
			*to = text
		case *[]string:
			*to = []string{text}
		case *secret.String:
			*to = secret.New(text)
		case *time.Time:
			at, err := time.Parse(time.RFC3339, text)
			if err != nil {
				panic(fmt.Sprintf("template: the example of %s: %v", example.Type().Field(i).Name, err))
			}
			*to = at
		default:
			switch field.Kind() {
			case reflect.Struct:
				field.Set(reflect.ValueOf(Example(field.Interface())))
			case reflect.Slice:
				field.Set(reflect.Append(field, reflect.ValueOf(Example(reflect.Zero(field.Type().Elem()).Interface()))))
			}
		}
	}
	return example.Interface()
}
