package gateway

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/rest/openapi"
)

// keepUsable removes from the API document the operations that the caller may not use, and the groups and components that no other
// operation needs. An operation of a service of an earlier version, which does not say who may use it, stays.
func keepUsable(d *openapi.Document, caller *principal.Principal) {
	for path, item := range d.Paths {
		maps.DeleteFunc(item, func(_ string, operation any) bool {
			described, _ := operation.(map[string]any)
			text, err := json.Marshal(described["x-callers"])
			var may guard.Callers
			return err == nil && described["x-callers"] != nil && json.Unmarshal(text, &may) == nil && !may.Admit(caller)
		})
		if len(item) == 0 {
			delete(d.Paths, path)
		}
	}
	used := usage{components: map[string]bool{}, tags: map[string]bool{}, of: d}
	for _, item := range d.Paths {
		used.add(map[string]any(item))
	}
	d.Tags = slices.DeleteFunc(d.Tags, func(t openapi.Tag) bool { return !used.tags[t.Name] })
	maps.DeleteFunc(d.Webhooks, func(_ string, item openapi.Schema) bool {
		sent, _ := item["post"].(map[string]any)
		tags, _ := sent["tags"].([]any)
		return !slices.ContainsFunc(tags, func(t any) bool { name, _ := t.(string); return used.tags[name] })
	})
	for _, item := range d.Webhooks {
		used.add(map[string]any(item))
	}
	for kind, all := range d.Components {
		maps.DeleteFunc(all, func(name string, _ openapi.Schema) bool {
			return kind != "securitySchemes" && !used.components["#/components/"+kind+"/"+name]
		})
	}
}

// usage collects which components and groups the operations of a document use.
type usage struct {
	components map[string]bool // by reference
	tags       map[string]bool
	of         *openapi.Document
}

// add adds what a part of the document uses.
func (u *usage) add(part any) {
	switch value := part.(type) {
	case []any:
		for _, one := range value {
			u.add(one)
		}
	case map[string]any:
		if tags, ok := value["tags"].([]any); ok && value["operationId"] != nil {
			for _, tag := range tags {
				name, _ := tag.(string)
				u.tags[name] = true
			}
		}
		if reference, ok := value["$ref"].(string); ok && !u.components[reference] {
			u.components[reference] = true
			if kind, name, ok := strings.Cut(strings.TrimPrefix(reference, "#/components/"), "/"); ok {
				u.add(map[string]any(u.of.Components[kind][name]))
			}
		}
		for _, one := range value {
			u.add(one)
		}
	}
}
