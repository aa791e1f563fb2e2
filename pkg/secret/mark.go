package secret

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// Marked returns a value that marshals as v does, with a mark in place of these members, which are named by their path
// with dots. A mark tells that there is a secret.
func Marked(v any, members ...string) any {
	if len(members) == 0 {
		return v
	}
	return marked{v, members}
}

type marked struct {
	value   any
	members []string
}

// Unmarked returns the value that Marked was called with, and any other value unchanged.
func Unmarked(v any) any {
	if m, ok := v.(marked); ok {
		return m.value
	}
	return v
}

// MarshalJSON marshals the value, which must be an object, with its marks.
func (m marked) MarshalJSON() ([]byte, error) {
	text, err := json.Marshal(m.value)
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var object map[string]any
	if err := d.Decode(&object); err != nil {
		return nil, fmt.Errorf("mark a secret: %w", err)
	}
	for _, path := range m.members {
		in, name := object, path
		for outer, inner, deeper := strings.Cut(name, "."); deeper; outer, inner, deeper = strings.Cut(name, ".") {
			next, ok := in[outer].(map[string]any)
			if !ok {
				next = map[string]any{}
				in[outer] = next
			}
			in, name = next, inner
		}
		in[name] = map[string]any{"secret": true}
	}
	return json.Marshal(object)
}

// IsMark tells whether an unmarshalled value is a mark.
func IsMark(v any) bool {
	object, ok := v.(map[string]any)
	return ok && len(object) == 1 && object["secret"] == true
}
