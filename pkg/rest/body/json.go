package body

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/schema"
)

// maxDepth is the maximum depth of nested objects and arrays.
const maxDepth = 32

// object and array are the containers of a parsed body. Other values are string, json.Number, bool and nil.
type (
	object []member
	array  []any
	member struct {
		name  string
		value any
	}
)

// parseObject parses a body: one JSON object in UTF-8 without duplicate members. encoding/json alone would take the last
// duplicate, and replace invalid UTF-8.
func parseObject(text []byte) (object, error) {
	if !utf8.Valid(text) {
		return nil, problem.New(problem.BadRequest, "The body is not valid UTF-8.")
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	value, err := parseValue(d, nil, 0)
	if err == nil {
		_, err = d.Token()
		if err == nil {
			return nil, problem.New(problem.BadRequest, "The body has text after its JSON object.")
		}
		if errors.Is(err, io.EOF) {
			err = nil
		}
	}
	if err != nil {
		if _, ok := errors.AsType[*problem.Error](err); ok {
			return nil, err
		}
		return nil, jsonError(err, d.InputOffset())
	}
	if at := loneSurrogate(text); at >= 0 {
		return nil, problem.New(problem.BadRequest, "The body has half of a surrogate pair at byte %d.", at+1)
	}
	if items, ok := value.(array); ok && len(items) == 0 { // PHP writes an empty object like this
		value = object{}
	}
	o, ok := value.(object)
	if !ok {
		return nil, problem.New(problem.BadRequest, "The body must be a JSON object.")
	}
	return o, nil
}

// loneSurrogate returns the position of an escaped surrogate without its other half, or -1.
func loneSurrogate(text []byte) int {
	for i := bytes.IndexByte(text, '\\'); i >= 0 && i+6 <= len(text); {
		skip := 2
		if first := escaped(text[i:]); utf16.IsSurrogate(first) {
			if utf16.DecodeRune(first, escaped(text[i+6:])) == unicode.ReplacementChar {
				return i
			}
			skip = 12
		}
		next := bytes.IndexByte(text[i+skip:], '\\')
		if next < 0 {
			break
		}
		i += skip + next
	}
	return -1
}

// escaped returns the code unit of the escape at the beginning of a text, or 0.
func escaped(text []byte) rune {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return 0
	}
	unit, _ := strconv.ParseUint(string(text[2:6]), 16, 16) // four hexadecimal digits, since it is JSON
	return rune(unit)
}

func jsonError(err error, offset int64) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return problem.New(problem.BadRequest, "The body ends in the middle of its JSON.").Because(err)
	}
	if at, ok := errors.AsType[*json.SyntaxError](err); ok {
		offset = at.Offset
	}
	return problem.New(problem.BadRequest, "The body is not valid JSON: syntax error at byte %d.", offset).Because(err)
}

// location is the place of a value in a body. It becomes a pointer only for an error, since a body may have many values.
type location struct {
	in    *location
	name  string // of a member
	index int    // of an array's item, where there is no name
}

func (p *location) pointer() string {
	if p == nil {
		return ""
	}
	name := schema.Escape(p.name)
	if p.name == "" {
		name = strconv.Itoa(p.index)
	}
	return p.in.pointer() + "/" + name
}

func parseValue(d *json.Decoder, at *location, depth int) (any, error) {
	if depth > maxDepth {
		return nil, problem.New(problem.BadRequest, "The body nests deeper than %d levels.", maxDepth)
	}
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch token {
	case json.Delim('{'):
		return parseMembers(d, at, depth)
	case json.Delim('['):
		var items array
		for d.More() {
			item, err := parseValue(d, &location{in: at, index: len(items)}, depth+1)
			if err != nil {
				return nil, err
			}
			items = append(items, item)
		}
		_, err := d.Token()
		return items, err
	default:
		return token, nil
	}
}

func parseMembers(d *json.Decoder, at *location, depth int) (any, error) {
	members := object{}
	seen := map[string]bool{}
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return nil, err
		}
		name := token.(string) // the decoder accepts nothing else here
		inner := &location{in: at, name: name}
		if seen[name] {
			return nil, problem.New(problem.BadRequest, "The body has the member %.200s twice.", inner.pointer())
		}
		seen[name] = true
		value, err := parseValue(d, inner, depth+1)
		if err != nil {
			return nil, err
		}
		members = append(members, member{name, value})
	}
	_, err := d.Token()
	return members, err
}
