package rest

import (
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/ironplane/ironplane/pkg/schema"
)

// parameters describes what an operation takes beside a body. Those that many have are components.
func (d *document) parameters(o *operation) (all []jsonSchema) {
	add := func(in, name, description string, of jsonSchema) jsonSchema {
		described := jsonSchema{"name": name, "in": in, "required": in == "path", "description": description, "schema": of}
		all = append(all, described)
		return described
	}
	shared := func(component, in, name, description string, of jsonSchema) {
		all = append(
			all,
			d.define("parameters", component, jsonSchema{"name": name, "in": in, "required": false, "description": description, "schema": of}),
		)
	}
	number := func(least, most int64) jsonSchema {
		return jsonSchema{"type": "integer", "format": "int64", "minimum": least, "maximum": most}
	}
	for _, name := range o.parameters {
		of, says := jsonSchema{
			"type":     "integer",
			"format":   "int64",
			"examples": []any{1},
		}, "The "+strings.ReplaceAll(
			strings.TrimSuffix(name, "_id"),
			"_",
			" ",
		)+"'s id."
		for _, p := range o.request.path {
			if p.name == name && p.Type.Kind() == reflect.String {
				of, says = jsonSchema{"type": "string"}, "The "+strings.ReplaceAll(name, "_", " ")+"."
			}
		}
		add("path", name, says, of)
	}
	for _, p := range o.request.query {
		of := ofParameter(p.Member)
		if p.name == include {
			of = jsonSchema{"type": "array", "items": jsonSchema{"type": "string", "enum": o.includes}}
		}
		add("query", p.name, p.Doc, of)["required"] = p.Required != 0
	}
	if o.list {
		own := slices.ContainsFunc(o.request.query, func(p parameter) bool { return p.name == "q" })
		if o.by.Search != nil && !own {
			shared("Q", "query", "q", "A part of a human-readable member, in either case.", jsonSchema{"type": "string"})
		}
		var sorts []string
		for _, sort := range o.by.sorts() {
			sorts = append(sorts, sort, "-"+sort)
		}
		by := o.by.Default
		if by == "" {
			by = "id"
		}
		add("query", "sort", "A member, with - before it from the last to the first.", jsonSchema{"type": "string", "enum": sorts, "default": by})
		shared("PerPage", "query", "per_page", "Answers a page of so many items.", number(1, maxPerPage))
		shared("Page", "query", "page", "The page's number, for the first 10,000 items. Without it, follow the Link headers.", number(1, maxDeep))
		shared("Cursor", "query", "cursor", "From a Link header.", jsonSchema{"type": "string"})
		shared("Count", "query", "count", "Whether to count the items in X-Total-Count.", jsonSchema{"type": "boolean"})
		for _, name := range slices.Sorted(maps.Keys(o.by.Filters)) {
			add("query", name, "Only items with this value.", ofParameter(schema.Of(o.responseType).ByColumn(unfolded(o.by.Filters[name]))))
		}
	}
	if o.request.match != nil {
		shared("IfMatch", "header", "If-Match", "ETags that the caller has seen; another one is refused.", jsonSchema{"type": "string"})
	}
	if o.Method == http.MethodPost {
		shared(
			"IdempotencyKey",
			"header",
			idempotencyHeader,
			"For 24 hours the same value and body get the first answer again.",
			jsonSchema{"type": "string", "maxLength": maxString},
		)
	}
	return all
}

// ofParameter describes the values of a parameter that fills a member, or that one is compared with.
func ofParameter(m *schema.Member) jsonSchema {
	switch {
	case m == nil: // of a column that nobody is shown
		return jsonSchema{"type": "string"}
	case m.Type == reflect.TypeFor[Timestamp]():
		return jsonSchema{"type": "string", "format": "date-time"}
	case m.Type.Kind() == reflect.Slice: // which has the value among its own
		return jsonSchema{"type": "integer", "format": "int64"}
	default:
		return scalar(m)
	}
}
