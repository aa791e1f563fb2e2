// Package template lets operators write Go templates that can show their variables and do nothing else.
//
// A template is checked without being run when it is saved: each variable must exist with a type that fits, and the
// number of steps is bounded. Rendering passes maps, texts and numbers only. They have no methods to call, and lead to
// no other values.
package template

import (
	"bytes"
	"errors"
	"fmt"
	htmltemplate "html/template"
	"io"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	texttemplate "text/template"
	"text/template/parse"
	"time"

	"github.com/ironplane/ironplane/pkg/secret"
)

const (
	// maxItems is how many items of a list are rendered at most. The bound on steps assumes that many.
	maxItems = 100
	// maxSteps is how many nodes of a template may be executed.
	maxSteps = 1_000_000
	// maxDepth is how deep blocks and parentheses can be nested.
	maxDepth = 30
	// maxOutput is the maximal length of a template's output, in bytes.
	maxOutput = 1 << 20
	// maxSource is the maximal length of a template, in bytes.
	maxSource = 256 << 10
)

// ErrTooLong means that a template's output exceeds maxOutput.
var ErrTooLong = fmt.Errorf("the output of a template must have at most %d bytes", maxOutput)

// Error is an error in a template.
type Error struct {
	Line, Column int // from 1; columns are characters
	Message      string
}

func (e Error) Error() string {
	return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, e.Message)
}

// Language has the variables and functions of one kind of template.
type Language struct {
	variables []reflect.Type // structs; their fields are the variables
	functions map[string]Function
	calls     map[string]any // the functions, as Go's templates call them
}

// NewLanguage returns the language with the fields of these structs as variables. Its functions are these, comparisons
// and date. It panics if templates do not support a field's type.
func NewLanguage(functions map[string]Function, variables ...any) *Language {
	l := &Language{
		functions: functions,
		calls:     map[string]any{"date": func(layout string, m timestamp) string { return m.at.UTC().Format(layout) }},
	}
	for name, f := range functions {
		l.calls[name] = f.call(name)
	}
	for _, v := range variables {
		t := reflect.TypeOf(v)
		checkType(t)
		l.variables = append(l.variables, t)
	}
	return l
}

var (
	secretType = reflect.TypeFor[secret.String]()
	timeType   = reflect.TypeFor[time.Time]()
)

// checkType panics if templates do not support values of a type.
func checkType(t reflect.Type) {
	switch {
	case t == secretType, t == timeType, t.Kind() == reflect.String, t.Kind() == reflect.Bool, t.Kind() == reflect.Int64:
	case t.Kind() == reflect.Slice && t.Elem() != secretType:
		checkType(t.Elem())
	case t.Kind() == reflect.Struct:
		for i := range t.NumField() {
			checkType(t.Field(i).Type)
		}
	default:
		panic(fmt.Sprintf("template: variables cannot have the type %s", t))
	}
}

// Variable is a variable of a language.
type Variable struct {
	Name   string `json:"name"` // .To.Name; for items of a list .Changes[].Name
	Doc    string `json:"doc"`  // the field's tag doc
	Secret bool   `json:"secret,omitempty"`
}

// FunctionDoc describes a function of a language.
type FunctionDoc struct {
	Example string `json:"example"` // an action without its braces
	Result  string `json:"result"`
}

// Variables returns the language's variables.
func (l *Language) Variables() (all []Variable) {
	var add func(prefix string, t reflect.Type)
	add = func(prefix string, t reflect.Type) {
		for i := range t.NumField() {
			f := t.Field(i)
			name, of := prefix+"."+f.Name, f.Type
			if of.Kind() == reflect.Slice {
				name, of = name+"[]", of.Elem()
			}
			if of.Kind() == reflect.Struct && of != secretType && of != timeType {
				add(name, of)
				continue
			}
			all = append(all, Variable{name, f.Tag.Get("doc"), of == secretType})
		}
	}
	for _, t := range l.variables {
		add("", t)
	}
	return all
}

// Template is a checked template.
type Template struct {
	language *Language
	source   string
	execute  func(io.Writer, any) error
}

// Text checks a template of plain text.
func (l *Language) Text(source string) (*Template, []Error) { return l.text(source, true, false) }

// MailText checks a template of plain text that people read in a mail program. A secret needs white space or a line end
// before and after it, because mail programs make links of texts.
func (l *Language) MailText(source string) (*Template, []Error) { return l.text(source, true, true) }

// Open checks a template of plain text that everybody may read: it cannot show secrets.
func (l *Language) Open(source string) (*Template, []Error) { return l.text(source, false, false) }

func (l *Language) text(source string, secrets, isMail bool) (*Template, []Error) {
	tree, shown, invalid := l.check(source, secrets)
	if len(invalid) == 0 && isMail && len(shown) > 0 {
		invalid = findJoinedSecrets(source, tree.Root, shown)
	}
	if len(invalid) > 0 {
		return nil, invalid
	}
	t, err := texttemplate.New(name).Option("missingkey=error").Funcs(l.calls).AddParseTree(name, tree)
	if err != nil {
		return nil, []Error{{1, 1, err.Error()}}
	}
	return &Template{l, source, t.Execute}, nil
}

// HTML checks a template of HTML. Values are escaped as their position requires. A secret can be the whole text of an
// element, or the whole address of a link. A template that shows one has plain tags only: see markup.
func (l *Language) HTML(source string) (*Template, []Error) {
	tree, secrets, invalid := l.check(source, true)
	if len(invalid) > 0 {
		return nil, invalid
	}
	t, err := htmltemplate.New(name).Option("missingkey=error").Funcs(l.calls).AddParseTree(name, tree)
	if err != nil {
		return nil, []Error{{1, 1, err.Error()}}
	}
	// The first execution adds the escaping to all branches of the tree.
	if err := t.Execute(io.Discard, l.sampleData()); err != nil {
		return nil, []Error{escapeError(source, err)}
	}
	if invalid := findMisplacedSecrets(source, t.Tree.Root, secrets); len(invalid) > 0 {
		return nil, invalid
	}
	return &Template{l, source, t.Execute}, nil
}

const name = "template"

// escapeError returns the error of a template that cannot be escaped.
func escapeError(source string, err error) Error {
	why, ok := errors.AsType[*htmltemplate.Error](err)
	switch {
	case !ok:
		return Error{1, 1, err.Error()}
	case why.Node != nil:
		return errorAt(source, why.Node.Position(), "%s", why.Description)
	case why.Line > 0:
		return Error{why.Line, 1, why.Description}
	default:
		return errorAt(source, parse.Pos(len(source)), "%s", why.Description)
	}
}

// sampleData returns data in which each variable is empty.
func (l *Language) sampleData() map[string]any {
	empty := make([]any, len(l.variables))
	for i, t := range l.variables {
		empty[i] = reflect.Zero(t).Interface()
	}
	data, err := l.data(false, empty)
	if err != nil {
		panic(err) // impossible: it has no long lists
	}
	return data
}

// Render returns the template's output for these variables: values of the structs that the language was made from.
// Secrets show as Mark, unless reveal is true.
func (t *Template) Render(reveal bool, variables ...any) (string, error) {
	data, err := t.language.data(reveal, variables)
	if err != nil {
		return "", err
	}
	out := &boundedBuffer{}
	err = t.execute(out, data)
	if out.full {
		return "", ErrTooLong
	}
	if found := executionError.FindStringSubmatch(fmt.Sprint(err)); err != nil && found != nil {
		return "", t.failed(found[1], found[2], found[3])
	}
	if err != nil {
		return "", fmt.Errorf("render a template: %w", err)
	}
	return out.String(), nil
}

// executionError matches an error of Go's templates: the line, the column in bytes from 0, and a function's error.
var executionError = regexp.MustCompile(
	`(?s)^template: ` + name + `:(\d+):(\d+): executing "` + name + `" at <.*?>: (?:error calling )?(.*)$`,
)

// failed returns the error of a function with its position.
func (t *Template) failed(line, column, message string) Error {
	e := Error{Message: message}
	e.Line, _ = strconv.Atoi(line)
	e.Column, _ = strconv.Atoi(column)
	if lines := strings.Split(t.source, "\n"); e.Line >= 1 && e.Line <= len(lines) {
		e.Column = len([]rune(lines[e.Line-1][:min(e.Column, len(lines[e.Line-1]))])) + 1
	}
	return e
}

// boundedBuffer stores what is written, up to maxOutput.
type boundedBuffer struct {
	bytes.Buffer
	full bool
}

func (b *boundedBuffer) Write(p []byte) (int, error) {
	if b.full = b.full || b.Len()+len(p) > maxOutput; b.full {
		return 0, ErrTooLong
	}
	return b.Buffer.Write(p)
}

func (l *Language) data(reveal bool, variables []any) (map[string]any, error) {
	all := map[string]any{}
	for i, v := range variables {
		if i >= len(l.variables) || reflect.TypeOf(v) != l.variables[i] {
			return nil, fmt.Errorf("the template has no variables of the type %T", v)
		}
		fields, err := toPlain(reflect.ValueOf(v), reveal)
		if err != nil {
			return nil, err
		}
		maps.Copy(all, fields.(map[string]any))
	}
	return all, nil
}

// Mark is shown in place of a secret.
const Mark = "[secret]"

// timestamp is a time without its methods.
type timestamp struct{ at time.Time }

// String returns the time as templates show it without a function.
func (m timestamp) String() string {
	if m.at.IsZero() {
		return ""
	}
	return m.at.UTC().Format("2006-01-02 15:04 UTC")
}

// toPlain returns a value as templates get it: without methods, and without a way to other values.
func toPlain(v reflect.Value, reveal bool) (any, error) {
	switch value := v.Interface().(type) {
	case secret.String:
		if reveal {
			return value.Reveal(), nil
		}
		return masked(Mark), nil
	case time.Time:
		return timestamp{value}, nil
	}
	switch v.Kind() {
	case reflect.String:
		return v.String(), nil
	case reflect.Bool:
		return v.Bool(), nil
	case reflect.Int64:
		return v.Int(), nil
	case reflect.Slice:
		if v.Len() > maxItems {
			return nil, fmt.Errorf("a list in a template has at most %d items, got %d", maxItems, v.Len())
		}
		items := make([]any, v.Len())
		for i := range items {
			item, err := toPlain(v.Index(i), reveal)
			if err != nil {
				return nil, err
			}
			items[i] = item
		}
		return items, nil
	default: // a struct: NewLanguage refuses all others
		fields := map[string]any{}
		for i := range v.NumField() {
			field, err := toPlain(v.Field(i), reveal)
			if err != nil {
				return nil, err
			}
			fields[v.Type().Field(i).Name] = field
		}
		return fields, nil
	}
}

// position returns the line and the character of a byte in a text, both from 1.
func position(text string, pos parse.Pos) (line, column int) {
	before := text[:min(int(pos), len(text))]
	return strings.Count(before, "\n") + 1, len([]rune(before[strings.LastIndex(before, "\n")+1:])) + 1
}

func errorAt(text string, pos parse.Pos, format string, args ...any) Error {
	line, column := position(text, pos)
	return Error{line, column, fmt.Sprintf(format, args...)}
}

// memberNames lists the variables at one level, for the error about an unknown one.
func memberNames(prefix string, types ...reflect.Type) string {
	var all []string
	for _, t := range types {
		for i := range t.NumField() {
			all = append(all, prefix+"."+t.Field(i).Name)
		}
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}
