// Package openapi is a document of OpenAPI 3.1, as far as who passes one on has to know it.
package openapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Path is where a service, and the gateway for all of them, serves its document.
const Path = "/-/openapi.json"

// Schema is a piece of a document.
type Schema = map[string]any

// Document describes an API.
type Document struct {
	OpenAPI    string                       `json:"openapi"`
	Info       Schema                       `json:"info"`
	Servers    []Schema                     `json:"servers"`
	Security   []Schema                     `json:"security"`
	Tags       []Tag                        `json:"tags"`
	Paths      map[string]Schema            `json:"paths"`
	Webhooks   map[string]Schema            `json:"webhooks,omitempty"` // what is sent to others, of one service
	Components map[string]map[string]Schema `json:"components"`         // by kind and name: schemas, parameters, …
}

// Tag is a part of the API.
type Tag struct {
	Name        string `json:"name"`
	Description string `json:"description"`
}

// Merge adds the tags, paths and components of other. What else other says, a document without paths takes over, and any
// other says already.
func (d *Document) Merge(other *Document) error {
	if d.Paths == nil {
		*d = *other
		return nil
	}
	if other.Webhooks != nil {
		d.Webhooks = other.Webhooks
	}
	for path, item := range other.Paths {
		if d.Paths[path] != nil {
			return fmt.Errorf("two services describe %s", path)
		}
		d.Paths[path] = item
	}
	for kind, all := range other.Components {
		for name, s := range all {
			if !d.Define(kind, name, s) {
				return fmt.Errorf("two services describe %s, differently", name)
			}
		}
	}
	d.Tags = append(d.Tags, other.Tags...)
	slices.SortFunc(d.Tags, func(a, b Tag) int { return strings.Compare(a.Name, b.Name) })
	return nil
}

// Define adds a component, and tells whether there is no other one of its name.
func (d *Document) Define(kind, name string, s Schema) bool {
	if d.Components[kind] == nil {
		d.Components[kind] = map[string]Schema{}
	}
	if existing, ok := d.Components[kind][name]; ok {
		return sameJSON(existing, s)
	}
	d.Components[kind][name] = s
	return true
}

func sameJSON(a, b any) bool {
	one, _ := json.Marshal(a)
	two, _ := json.Marshal(b)
	return bytes.Equal(one, two)
}

// FirstElement is what stands between the first two slashes of a path: of /port-speed/3, port-speed.
func FirstElement(path string) string {
	below, ok := strings.CutPrefix(path, "/")
	if !ok {
		return ""
	}
	first, _, _ := strings.Cut(below, "/")
	return first
}
