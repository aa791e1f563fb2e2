package audit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/ironplane/ironplane/pkg/secret"
)

// Change is the change of one member.
type Change struct {
	Before json.RawMessage `json:"before,omitempty" doc:"The value before. Left out if there was none."`
	After  json.RawMessage `json:"after,omitempty" doc:"The value after. Left out if there is none."`
}

// Changes holds the changed members by name. Names of nested members are joined by dots.
type Changes map[string]Change

// Scan implements sql.Scanner.
func (c *Changes) Scan(from any) error { return scanJSON(from, c) }

// scanJSON decodes a JSON column, which the driver passes as a string or as bytes.
func scanJSON(from, into any) error {
	switch text := from.(type) {
	case string:
		return json.Unmarshal([]byte(text), into)
	case []byte:
		return json.Unmarshal(text, into)
	default:
		return fmt.Errorf("scan JSON: got %T, want a string or bytes", from)
	}
}

var redacted = json.RawMessage(`"[secret]"`)

// diff compares two JSON objects. Either may be empty. A secret that was set always counts as changed, because its marks
// look the same before and after.
func diff(before, after json.RawMessage) (Changes, error) {
	old, err := flattenObject(before)
	if err != nil {
		return nil, err
	}
	current, err := flattenObject(after)
	if err != nil {
		return nil, err
	}
	changed := Changes{}
	for name, value := range old {
		if other, exists := current[name]; !exists || secret.IsMark(value) || !reflect.DeepEqual(value, other) {
			changed[name] = Change{Before: redact(value)}
		}
	}
	for name, value := range current {
		if other, exists := old[name]; !exists || secret.IsMark(value) || !reflect.DeepEqual(value, other) {
			changed[name] = Change{Before: changed[name].Before, After: redact(value)}
		}
	}
	return changed, nil
}

// redact returns a value as JSON. Secrets become redacted.
func redact(value any) json.RawMessage {
	if secret.IsMark(value) {
		return redacted
	}
	text, _ := json.Marshal(value) // it was unmarshalled
	return text
}

// flattenObject returns the members of a JSON object that are neither objects nor null, by their dotted names.
func flattenObject(text json.RawMessage) (map[string]any, error) {
	leaves := map[string]any{}
	if len(text) == 0 {
		return leaves, nil
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var object map[string]any
	if err := d.Decode(&object); err != nil {
		return nil, fmt.Errorf("decode the changed object: %w", err)
	}
	flatten(leaves, "", object)
	return leaves, nil
}

// flatten adds the members of object to into, with prefix before their names.
func flatten(into map[string]any, prefix string, object map[string]any) {
	for name, value := range object {
		inner, nested := value.(map[string]any)
		switch {
		case value == nil:
		case nested && !secret.IsMark(value):
			flatten(into, prefix+name+".", inner)
		default:
			into[prefix+name] = value
		}
	}
}
