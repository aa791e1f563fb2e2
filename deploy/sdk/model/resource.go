package model

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"unicode"
)

// Resource is a kind of item with its operations.
type Resource struct {
	Path     string // of the collection, such as /client/{client_id}/sub
	Singular string // Entity
	Plural   string // Entities
	noun     string // as operation ids have it: IPEntity
	Methods  []*Method
}

// Method is an operation of a resource.
type Method struct {
	*Resource
	Operation
	Name  string // Create
	Verb  string // GET
	Route string // /entity/{entity_id}
	Path  []Parameter
	Query []Parameter
	// Paged is whether the operation lists items page by page.
	Paged bool
	// Body is the schema of a JSON body, or nil.
	Body *Schema
	// Answer is the schema of the JSON answer. It is nil for an answer without JSON, and for a sentence about what was done.
	Answer *Schema
	// Raw is whether the answer is not JSON, and RawBody whether the request's body is not.
	Raw, RawBody bool
	// ReadsCSV is whether a body of CSV creates and edits many items.
	ReadsCSV bool
	// DryRun, IfMatch and Key are whether the operation has the parameter.
	DryRun, IfMatch, Key bool
	// HasETag is whether the answer names the item's version.
	HasETag bool
}

var verbs = []string{"get", "post", "put", "patch", "delete"}

// Resources returns the resources of a document, ordered by name. Each operation belongs to one.
func (d *Document) Resources() []*Resource {
	anchors := d.anchors()
	byPath := map[string]*Resource{}
	for _, path := range slices.Sorted(maps.Keys(d.Paths)) {
		anchor := collectionOf(anchors, path)
		r := byPath[anchor]
		if r == nil {
			r = d.newResource(anchor)
			byPath[anchor] = r
		}
		for _, verb := range verbs {
			if o, ok := d.Paths[path][verb]; ok {
				r.Methods = append(r.Methods, d.newMethod(r, o, verb, path))
			}
		}
	}
	return slices.SortedFunc(maps.Values(byPath), func(a, b *Resource) int { return strings.Compare(a.Plural, b.Plural) })
}

// anchors returns the paths of collections: those with a list, those above the path of an item, and those that no other
// collection is above of.
func (d *Document) anchors() map[string]bool {
	found := map[string]bool{}
	paths := slices.Sorted(maps.Keys(d.Paths))
	for _, path := range paths {
		if strings.HasPrefix(d.Paths[path]["get"].ID, "list") {
			found[path] = true
		}
		if _, ok := d.Paths[path]["get"]; ok && strings.HasSuffix(path, "}") {
			found[path[:strings.LastIndex(path, "/")]] = true
		}
	}
	for _, path := range paths {
		if collectionOf(found, path) == "" {
			for strings.HasSuffix(path, "}") {
				path = path[:strings.LastIndex(path, "/")]
			}
			found[path] = true
		}
	}
	return found
}

func collectionOf(anchors map[string]bool, path string) string {
	for path != "" && !anchors[path] {
		path = path[:strings.LastIndex(path, "/")]
	}
	return path
}

// newResource names a resource by the operation that returns its item, or by any other.
func (d *Document) newResource(path string) *Resource {
	r := &Resource{Path: path}
	for other, operations := range d.Paths {
		if below, ok := strings.CutPrefix(other, path+"/"); ok && strings.HasPrefix(below, "{") && !strings.Contains(below, "/") {
			for _, verb := range verbs {
				if o, ok := operations[verb]; ok && r.noun == "" {
					r.noun = afterVerb(o.ID)
				}
			}
		}
	}
	isCollection := r.noun != ""
	if o := d.Paths[path]["get"]; !isCollection && o.ID != "" {
		r.noun = afterVerb(o.ID)
		if strings.HasPrefix(o.ID, "list") {
			r.noun, isCollection = strings.TrimSuffix(r.noun, "s"), true
		}
	}
	if r.noun == "" {
		r.noun, isCollection = afterVerb(d.Paths[path]["post"].ID), true
	}
	r.Singular, r.Plural = shorten(r.noun), shorten(r.noun)
	if isCollection {
		r.Plural = plural(r.Singular)
	}
	return r
}

// shorten returns the word for an IP entity or an IP group that callers use.
func shorten(noun string) string {
	for _, short := range []string{"Entity", "Entities", "Group"} {
		noun = strings.ReplaceAll(noun, "IP"+short, short)
	}
	return noun
}

func plural(noun string) string {
	if before, ok := strings.CutSuffix(noun, "y"); ok && !strings.ContainsAny(before[len(before)-1:], "aeiou") {
		return before + "ies"
	}
	return noun + "s"
}

// afterVerb returns an operation's id without its first word: IPEntity for getIPEntity.
func afterVerb(id string) string {
	return id[len(verbOf(id)):]
}

func verbOf(id string) string {
	return id[:max(0, strings.IndexFunc(id, unicode.IsUpper))]
}

// nameMethod returns a method's name: the operation's id without the resource's noun.
func (r *Resource) nameMethod(o Operation, path string) string {
	verb, rest := verbOf(o.ID), afterVerb(o.ID)
	isItem := strings.HasPrefix(path, r.Path+"/{") && !strings.Contains(path[len(r.Path)+1:], "/")
	switch {
	case path == r.Path && (verb == "list" || verb == "create"), isItem && (verb == "get" || verb == "update" || verb == "delete"):
		rest = ""
	default:
		for _, noun := range []string{plural(r.noun), r.noun} {
			rest = strings.Replace(rest, noun, "", 1)
		}
	}
	return strings.ToUpper(verb[:1]) + verb[1:] + shorten(rest)
}

func (d *Document) newMethod(r *Resource, o Operation, verb, path string) *Method {
	m := &Method{Resource: r, Operation: o, Name: r.nameMethod(o, path), Verb: strings.ToUpper(verb), Route: path}
	for _, p := range o.Parameters {
		name := p.Ref[strings.LastIndex(p.Ref, "/")+1:]
		if p.Ref != "" {
			p = d.Components.Parameters[name]
		}
		switch {
		case name == "CSVDryRun" || name == "Partial": // options of the CSV body alone
		case p.Name == "dry_run":
			m.DryRun = true
		case p.In == "header":
			m.IfMatch = m.IfMatch || p.Name == "If-Match"
			m.Key = m.Key || p.Name == "Idempotency-Key"
		case p.In == "path":
			m.Path = append(m.Path, p)
		default:
			m.Paged = m.Paged || name == "PerPage"
			m.Query = append(m.Query, p)
		}
	}
	slices.SortFunc(m.Path, func(a, b Parameter) int {
		return cmp.Compare(strings.Index(path, "{"+a.Name+"}"), strings.Index(path, "{"+b.Name+"}"))
	})
	if o.Body != nil {
		m.Body = o.Body.Content["application/json"].Schema
		m.RawBody = m.Body == nil
		m.ReadsCSV = o.Body.Content["text/csv"].Schema != nil
	}
	ok := o.Responses["200"]
	m.Answer = ok.Content["application/json"].Schema
	m.Raw = m.Answer == nil || m.Answer.Format == "binary"
	m.HasETag = ok.Headers["ETag"] != nil
	if m.Raw || m.Answer.RefName() == "Message" {
		m.Answer = nil
	}
	return m
}
