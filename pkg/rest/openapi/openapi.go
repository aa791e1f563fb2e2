// Package openapi has the OpenAPI 3.1 documents of services, and merges them into the document of the whole API.
package openapi

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Path is the path at which a service serves its document. The gateway serves the merged document there.
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
	Webhooks   map[string]Schema            `json:"webhooks,omitempty"` // the requests that one of the services sends to others
	Components map[string]map[string]Schema `json:"components"`         // by kind and name: schemas, parameters, …
}

// Tag is a group of operations.
type Tag struct {
	Name        string `json:"name"`
	Description string `json:"description"`
}

// Merge adds the tags, paths and components of other. An empty document takes over everything else from other. It fails if both
// describe the same path, or the same component in different ways.
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
	slices.SortFunc(d.Tags, func(a, b Tag) int { return cmp.Or(tagRank(a.Name)-tagRank(b.Name), strings.Compare(a.Name, b.Name)) })
	return nil
}

// tagOrder has the groups of operations in the order of a hosting company's day: sell, assign addresses, install, write to
// clients, connect other programs, manage accounts, run the installation.
var tagOrder = []string{
	"Clients",
	"IP groups", "IP entities", "Port speeds", "Forwarding", "Custom fields", "Computer parts",
	"Installs", "Profiles", "ISOs", "Drivers", "DHCP servers", "File servers",
	"Email templates", "Mails",
	"Webhooks", "Integrations",
	"API keys", "Admins", "Sessions", "Two-factor authentication", "Forgotten passwords", "Single sign-on", "OpenID Connect", "Browser",
	"Log", "Jobs", "Settings", "Theme", "SSL", "License", "Packages", "Todo items",
}

// tagRank returns the position of a group in the document. Groups that tagOrder does not have come last.
func tagRank(name string) int {
	if i := slices.Index(tagOrder, name); i >= 0 {
		return i
	}
	return len(tagOrder)
}

// Define adds a component. It reports whether the name was free, or had the same component.
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

// FirstElement returns the text between the first two slashes of a path: port-speed for /port-speed/3.
func FirstElement(path string) string {
	below, ok := strings.CutPrefix(path, "/")
	if !ok {
		return ""
	}
	first, _, _ := strings.Cut(below, "/")
	return first
}
