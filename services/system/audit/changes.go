package audit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/ironplane/ironplane/pkg/secret"
)

// Change is what became of one member.
type Change struct {
	Before json.RawMessage `json:"before,omitempty" doc:"left out where it was not set"`
	After  json.RawMessage `json:"after,omitempty" doc:"left out where it is not set"`
}

// Changes are by the members' names, those of nested members with a dot between.
type Changes map[string]Change

// Scan reads them from the database.
func (c *Changes) Scan(from any) error { return scanJSON(from, c) }

func scanJSON(from, into any) error {
	switch text := from.(type) {
	case string:
		return json.Unmarshal([]byte(text), into)
	case []byte:
		return json.Unmarshal(text, into)
	default:
		return fmt.Errorf("%T is no JSON", from)
	}
}

var redacted = json.RawMessage(`"[secret]"`)

// diff compares two objects, each of which may be absent. A secret that was set is a change, though its values
// look alike.
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

func redact(value any) json.RawMessage {
	if secret.IsMark(value) {
		return redacted
	}
	text, _ := json.Marshal(value) // it was unmarshalled
	return text
}

// flattenObject are the members of an object that are no objects themselves, and not null.
func flattenObject(text json.RawMessage) (map[string]any, error) {
	leaves := map[string]any{}
	if len(text) == 0 {
		return leaves, nil
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var object map[string]any
	if err := d.Decode(&object); err != nil {
		return nil, fmt.Errorf("read what was changed: %w", err)
	}
	flatten(leaves, "", object)
	return leaves, nil
}

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
