// Package model reads the API document, and arranges its operations the way people think of them: resources with methods.
package model

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

// Document has what this package needs of an OpenAPI document.
type Document struct {
	Paths      map[string]map[string]Operation `json:"paths"`
	Components struct {
		Schemas    map[string]*Schema   `json:"schemas"`
		Parameters map[string]Parameter `json:"parameters"`
	} `json:"components"`
}

// Operation is an operation as the document describes it.
type Operation struct {
	ID          string      `json:"operationId"`
	Summary     string      `json:"summary"`
	Description string      `json:"description"`
	Tags        []string    `json:"tags"`
	Parameters  []Parameter `json:"parameters"`
	Body        *struct {
		Content map[string]Content `json:"content"`
	} `json:"requestBody"`
	Responses map[string]struct {
		Content map[string]Content     `json:"content"`
		Headers map[string]interface{} `json:"headers"`
	} `json:"responses"`
	Security *[]any `json:"security"` // empty: needs no key
	Guard    string `json:"x-guard"`
	Retry    string `json:"x-again"` // what a repeated request does
	Several  int    `json:"x-several"`
}

// Content is a body in one media type.
type Content struct {
	Schema  *Schema         `json:"schema"`
	Answer  *Schema         `json:"x-answer"`
	Example json.RawMessage `json:"example"`
}

// Parameter is a parameter of a path, a query or a header.
type Parameter struct {
	Ref         string  `json:"$ref"`
	Name        string  `json:"name"`
	In          string  `json:"in"`
	Required    bool    `json:"required"`
	Description string  `json:"description"`
	Schema      *Schema `json:"schema"`
}

// Schema describes a JSON value.
type Schema struct {
	Ref         string             `json:"$ref"`
	Type        Types              `json:"type"`
	AnyOf       []*Schema          `json:"anyOf"`
	Items       *Schema            `json:"items"`
	Properties  map[string]*Schema `json:"properties"`
	Additional  *Schema            `json:"additionalProperties"`
	Required    []string           `json:"required"`
	Enum        []string           `json:"enum"`
	Format      string             `json:"format"`
	Minimum     *int64             `json:"minimum"`
	Description string             `json:"description"`
	WriteOnly   bool               `json:"writeOnly"` // a secret
}

// Types are the types of a value: one name, or several.
type Types []string

// UnmarshalJSON reads one name or an array of them.
func (t *Types) UnmarshalJSON(text []byte) error {
	if text[0] == '[' {
		return json.Unmarshal(text, (*[]string)(t))
	}
	*t = make(Types, 1)
	return json.Unmarshal(text, &(*t)[0])
}

// RefName returns the name of the component that the schema refers to, or an empty text.
func (s *Schema) RefName() string {
	return s.Ref[strings.LastIndex(s.Ref, "/")+1:]
}

// Nullable returns the schema without null, and whether null was allowed.
func (s *Schema) Nullable() (*Schema, bool) {
	if len(s.AnyOf) == 2 && len(s.AnyOf[1].Type) == 1 && s.AnyOf[1].Type[0] == "null" {
		inner := *s.AnyOf[0]
		inner.Description = s.Description
		return &inner, true
	}
	if len(s.Type) == 2 && s.Type[1] == "null" {
		inner := *s
		inner.Type = s.Type[:1]
		return &inner, true
	}
	return s, false
}

// Read reads the document in a file.
func Read(file string) (*Document, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var d Document
	if err := json.Unmarshal(text, &d); err != nil {
		return nil, fmt.Errorf("parse %s: %w", file, err)
	}
	return &d, nil
}
