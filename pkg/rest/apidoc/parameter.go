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

// parameterList collects the parameters of one operation.
type parameterList struct {
	document *document
	all      []openapi.Schema
}

// add adds a parameter of this operation alone, and returns its description.
func (l *parameterList) add(in, name, description string, values openapi.Schema) openapi.Schema {
	described := openapi.Schema{"name": name, "in": in, "required": in == "path", "description": description, "schema": values}
	l.all = append(l.all, described)
	return described
}

// share adds a parameter that many operations have, as a component.
func (l *parameterList) share(component, in, name, description string, values openapi.Schema) {
	described := openapi.Schema{"name": name, "in": in, "required": false, "description": description, "schema": values}
	l.all = append(l.all, l.document.define("parameters", component, described))
}

// parameters describes the path, query and header parameters of an operation.
func (d *document) parameters(o *route.Route) []openapi.Schema {
	l := &parameterList{document: d}
	for _, name := range o.Parameters {
		values, description := pathParameter(o, name)
		l.add("path", name, description, values)
	}
	for _, p := range o.Request.Query {
		values := parameterSchema(p.Member)
		if p.Name == route.Include {
			values = openapi.Schema{"type": "array", "items": openapi.Schema{"type": "string", "enum": o.Includes}}
		}
		l.add("query", p.Name, p.Doc, values)["required"] = p.Required != 0
	}
	if o.Request.DryRun {
		l.share("DryRun", "query", route.DryRun,
			"Whether to change nothing. The response, or the error, is the one that the request would have without it.",
			openapi.Schema{"type": "boolean"})
	}
	if o.CSV != nil {
		l.share("Partial", "query", "partial",
			"For a body of text/csv: whether rows with errors are left out. Otherwise one error refuses the whole body.",
			openapi.Schema{"type": "boolean"})
		l.share("CSVDryRun", "query", route.DryRun,
			"For a body of text/csv: whether to change nothing. The response is the one that the request would have without it.",
			openapi.Schema{"type": "boolean"})
	}
	if o.List != nil {
		l.addList(o)
	}
	if o.Request.HasIfMatch() {
		l.share("IfMatch", "header", "If-Match",
			"The ETag of the item as the caller has seen it. The request is refused if the item has changed since.",
			openapi.Schema{"type": "string"})
	}
	if o.Method == http.MethodPost {
		l.share("IdempotencyKey", "header", route.IdempotencyHeader,
			"A value of your own, such as a UUID. For 24 hours the same request with this value returns the first response.",
			openapi.Schema{"type": "string", "maxLength": body.MaxString})
	}
	return l.all
}

// addList adds the parameters of a list: search, sort, paging and filters.
func (l *parameterList) addList(o *route.Route) {
	hasOwnSearch := slices.ContainsFunc(o.Request.Query, func(p route.Parameter) bool { return p.Name == "q" })
	if o.List.Search && !hasOwnSearch {
		l.share("Q", "query", "q", "Searches names and other text for this part, in upper or lower case.", openapi.Schema{"type": "string"})
	}
	var sorts []string
	for _, sort := range o.List.Sorts {
		sorts = append(sorts, sort, "-"+sort)
	}
	l.add("query", "sort", "The member to sort by. - before it reverses the order.",
		openapi.Schema{"type": "string", "enum": sorts, "default": cmp.Or(o.List.Default, "id")})
	number := func(maximum int64) openapi.Schema {
		return openapi.Schema{"type": "integer", "format": "int64", "minimum": int64(1), "maximum": maximum}
	}
	l.share("PerPage", "query", "per_page",
		"Returns a page of this many items. Without it, and without page and cursor, the list is complete.", number(route.MaxPerPage))
	l.share("Page", "query", "page",
		"The number of the page, within the first 10,000 items. To go further, follow the Link header.", number(route.MaxOffset))
	l.share("Cursor", "query", "cursor", "A position in the list. Take the whole URL from the Link header.", openapi.Schema{"type": "string"})
	l.share("Count", "query", "count", "Whether X-Total-Count has the number of items.", openapi.Schema{"type": "boolean"})
	for _, name := range slices.Sorted(maps.Keys(o.List.Filters)) {
		l.add("query", name, "Only items with this value of "+name+".", parameterSchema(o.List.Filters[name]))
	}
}

// pathParameter describes a parameter in the path: an id, or a text if the operation has a string for it.
func pathParameter(o *route.Route, name string) (of openapi.Schema, description string) {
	for _, p := range o.Request.Path {
		if p.Name == name && p.Type.Kind() == reflect.String {
			return openapi.Schema{"type": "string"}, "The " + strings.ReplaceAll(name, "_", " ") + "."
		}
	}
	noun := strings.ReplaceAll(strings.TrimSuffix(name, "_id"), "_", " ")
	return openapi.Schema{"type": "integer", "format": "int64", "examples": []any{1}}, "The " + noun + "'s id."
}

// parameterSchema describes the values of a parameter that fills a member, or that a member is compared with.
func parameterSchema(m *schema.Member) openapi.Schema {
	switch {
	case m == nil: // a column that no response shows
		return openapi.Schema{"type": "string"}
	case m.Type == reflect.TypeFor[body.Timestamp]():
		return openapi.Schema{"type": "string", "format": "date-time"}
	case m.Type.Kind() == reflect.Slice: // the filter selects arrays that contain the value
		return openapi.Schema{"type": "integer", "format": "int64"}
	default:
		return scalar(m)
	}
}
