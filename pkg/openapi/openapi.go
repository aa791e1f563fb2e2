// Package openapi is a document of OpenAPI 3.1, as far as who passes one on has to know it.
package openapi

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Path is where a service, and the gateway for all of them, serves its document.
const Path = "/-/openapi.json"

// Schema is a piece of a document.
type Schema = map[string]any

// Document describes an API.
type Document struct {
	OpenAPI    string            `json:"openapi"`
	Info       Schema            `json:"info"`
	Security   []Schema          `json:"security"`
	Paths      map[string]Schema `json:"paths"`
	Components struct {
		Schemas         map[string]Schema `json:"schemas"`
		Responses       map[string]Schema `json:"responses"`
		SecuritySchemes map[string]Schema `json:"securitySchemes"`
	} `json:"components"`
}

// Merge adds the paths and components of other. What else other says, a document without paths takes over, and any other
// says already.
func (d *Document) Merge(other *Document) error {
	if d.Paths == nil {
		*d = *other
		return nil
	}
	for path, item := range other.Paths {
		if d.Paths[path] != nil {
			return fmt.Errorf("two services describe %s", path)
		}
		d.Paths[path] = item
	}
	for name, s := range other.Components.Schemas {
		if mine, ok := d.Components.Schemas[name]; ok && !sameJSON(mine, s) {
			return fmt.Errorf("two services describe %s, differently", name)
		}
		d.Components.Schemas[name] = s
	}
	return nil
}

func sameJSON(a, b any) bool {
	one, _ := json.Marshal(a)
	two, _ := json.Marshal(b)
	return string(one) == string(two)
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
