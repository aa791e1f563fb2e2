package openapi

import (
	"encoding/json"
	"slices"
	"strings"
)

// Older returns the document in OpenAPI 3.0, which many generators of clients need. It describes the same requests and responses, but
// has no webhooks.
func (d *Document) Older() (Schema, error) {
	text, err := json.Marshal(d)
	if err != nil {
		return nil, err
	}
	var all Schema
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, err
	}
	delete(all, "webhooks")
	older := olderValue(all).(Schema)
	older["openapi"] = "3.0.3"
	return older, nil
}

// olderValue returns a part of a document in OpenAPI 3.0.
func olderValue(value any) any {
	switch v := value.(type) {
	case []any:
		all := make([]any, len(v))
		for i, one := range v {
			all[i] = olderValue(one)
		}
		return all
	case Schema:
		return olderObject(v)
	default:
		return value
	}
}

func olderObject(from Schema) Schema {
	if from["$ref"] != nil {
		return Schema{"$ref": from["$ref"]} // 3.0 allows nothing beside it
	}
	to := Schema{}
	for name, value := range from {
		to[name] = olderValue(value)
	}
	if types, ok := to["type"].([]any); ok {
		to["type"], to["nullable"] = types[slices.IndexFunc(types, isNotNull)], true
	}
	if choices, ok := to["anyOf"].([]any); ok {
		others := slices.DeleteFunc(slices.Clone(choices), func(c any) bool { return !isNotNull(c.(Schema)["type"]) })
		if len(others) < len(choices) {
			to["nullable"] = true
		}
		if to["anyOf"] = others; len(others) == 1 {
			delete(to, "anyOf")
			to["allOf"] = others // a reference, with the description and nullable beside it
		}
	}
	if examples, ok := to["examples"].([]any); ok && len(examples) > 0 {
		delete(to, "examples")
		to["example"] = examples[0]
	}
	if _, isLicense := to["identifier"].(string); isLicense {
		delete(to, "identifier")
	}
	if values, ok := to["enum"].([]any); ok && slices.Contains(values, any("client")) {
		to["x-enum-varnames"] = constants(values)
	}
	return to
}

func isNotNull(kind any) bool { return kind != "null" }

// constants returns names for the values of an enum that has "client". Generators that make a constant of each value would call it
// Client, as the type that sends requests.
func constants(values []any) (names []string) {
	for _, value := range values {
		text := value.(string)
		names = append(names, "Of"+strings.ToUpper(text[:1])+text[1:])
	}
	return names
}
