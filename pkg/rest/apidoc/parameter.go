package apidoc

import (
	"cmp"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/ironplane/ironplane/pkg/rest/body"
	"github.com/ironplane/ironplane/pkg/rest/openapi"
	"github.com/ironplane/ironplane/pkg/rest/route"
	"github.com/ironplane/ironplane/pkg/schema"
)

// parameters describes what an operation takes beside a body. Those that many have are components.
func (d *document) parameters(o *route.Route) (all []openapi.Schema) {
	add := func(in, name, description string, of openapi.Schema) openapi.Schema {
		described := openapi.Schema{"name": name, "in": in, "required": in == "path", "description": description, "schema": of}
		all = append(all, described)
		return described
	}
	shared := func(component, in, name, description string, of openapi.Schema) {
		all = append(
			all,
			d.define("parameters", component, openapi.Schema{"name": name, "in": in, "required": false, "description": description, "schema": of}),
		)
	}
	number := func(minimum, maximum int64) openapi.Schema {
		return openapi.Schema{"type": "integer", "format": "int64", "minimum": minimum, "maximum": maximum}
	}
	for _, name := range o.Parameters {
		of, description := pathParameter(o, name)
		add("path", name, description, of)
	}
	for _, p := range o.Request.Query {
		of := parameterSchema(p.Member)
		if p.Name == route.Include {
			of = openapi.Schema{"type": "array", "items": openapi.Schema{"type": "string", "enum": o.Includes}}
		}
		add("query", p.Name, p.Doc, of)["required"] = p.Required != 0
	}
	if o.List != nil {
		own := slices.ContainsFunc(o.Request.Query, func(p route.Parameter) bool { return p.Name == "q" })
		if o.List.Search && !own {
			shared("Q", "query", "q", "A part of a human-readable member, in either case.", openapi.Schema{"type": "string"})
		}
		var sorts []string
		for _, sort := range o.List.Sorts {
			sorts = append(sorts, sort, "-"+sort)
		}
		defaultSort := cmp.Or(o.List.Default, "id")
		add(
			"query",
			"sort",
			"A member, with - before it from the last to the first.",
			openapi.Schema{"type": "string", "enum": sorts, "default": defaultSort},
		)
		shared("PerPage", "query", "per_page", "Answers a page of so many items.", number(1, route.MaxPerPage))
		shared(
			"Page",
			"query",
			"page",
			"The page's number, for the first 10,000 items. Without it, follow the Link headers.",
			number(1, route.MaxOffset),
		)
		shared("Cursor", "query", "cursor", "From a Link header.", openapi.Schema{"type": "string"})
		shared("Count", "query", "count", "Whether to count the items in X-Total-Count.", openapi.Schema{"type": "boolean"})
		for _, name := range slices.Sorted(maps.Keys(o.List.Filters)) {
			add("query", name, "Only items with this value.", parameterSchema(o.List.Filters[name]))
		}
	}
	if o.Request.HasIfMatch() {
		shared("IfMatch", "header", "If-Match", "ETags that the caller has seen; another one is refused.", openapi.Schema{"type": "string"})
	}
	if o.Method == http.MethodPost {
		shared(
			"IdempotencyKey",
			"header",
			route.IdempotencyHeader,
			"For 24 hours the same value and body get the first answer again.",
			openapi.Schema{"type": "string", "maxLength": body.MaxString},
		)
	}
	return all
}

// pathParameter describes an element of the path: an id, unless the operation takes a text there.
func pathParameter(o *route.Route, name string) (of openapi.Schema, description string) {
	for _, p := range o.Request.Path {
		if p.Name == name && p.Type.Kind() == reflect.String {
			return openapi.Schema{"type": "string"}, "The " + strings.ReplaceAll(name, "_", " ") + "."
		}
	}
	noun := strings.ReplaceAll(strings.TrimSuffix(name, "_id"), "_", " ")
	return openapi.Schema{"type": "integer", "format": "int64", "examples": []any{1}}, "The " + noun + "'s id."
}

// parameterSchema describes the values of a parameter that fills a member, or that one is compared with.
func parameterSchema(m *schema.Member) openapi.Schema {
	switch {
	case m == nil: // of a column that nobody is shown
		return openapi.Schema{"type": "string"}
	case m.Type == reflect.TypeFor[body.Timestamp]():
		return openapi.Schema{"type": "string", "format": "date-time"}
	case m.Type.Kind() == reflect.Slice: // which has the value among its own
		return openapi.Schema{"type": "integer", "format": "int64"}
	default:
		return scalar(m)
	}
}
