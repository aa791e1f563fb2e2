package provider

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"unicode"

	"github.com/ironplane/ironplane/pkg/client/operations"
)

// Kind is a kind of item: a resource, a data source, or both.
type Kind struct {
	spec
	Name       string       // without the provider's: port_speed
	Attributes []*Attribute // of the resource
	path       []pathParameter
	hasID      bool // whether the last parameter of the path is the item's own id

	create, get, update, delete, list *operations.Operation
}

// pathParameter is a parameter of an item's path, and the attribute with its value.
type pathParameter struct{ api, name string }

// Attribute is a member of an item.
type Attribute struct {
	Name       string // in Terraform: ignore_auto_suspend
	Kind       string // as in package operations, or object
	List       bool
	Doc        string
	Enum       []string
	Attributes []*Attribute // of an object

	Required, Optional, Computed, Sensitive bool

	api       string // in the body: billing.ignoreAutoSuspend. Empty: it cannot be set
	answer    string // in the answer. Empty: the API does not show it
	isRef     bool   // whether the answer has an object, with the id or the name of another item
	editable  bool   // whether an edit can change it; otherwise a change makes a new item
	null      bool   // whether null clears it
	always    bool   // whether each edit needs it
	stable    bool   // whether it never changes
	shownOnce bool   // whether only the answer to the creation has it
	inPath    bool
}

// Kinds returns all kinds, ordered by name. Callers do not change them.
var Kinds = sync.OnceValue(func() []*Kind {
	var all []*Kind
	for _, s := range specs {
		all = append(all, newKind(s))
	}
	slices.SortFunc(all, func(a, b *Kind) int { return strings.Compare(a.Name, b.Name) })
	return all
})

// IsResource reports whether Terraform manages items of the kind.
func (k *Kind) IsResource() bool { return k.update != nil || k.create != nil }

// HasList reports whether an item can be found by filters.
func (k *Kind) HasList() bool { return k.list != nil && len(k.filters()) > 0 }

// Operations returns the resources that call each operation, by its id. A data source stands there if no resource does.
func Operations() map[string][]string {
	all := map[string][]string{}
	for _, k := range Kinds() {
		name := "ironplane_" + k.Name
		if !k.IsResource() {
			name = "data." + name
		}
		for _, o := range []*operations.Operation{k.create, k.get, k.update, k.delete, k.list} {
			if o != nil {
				all[o.ID] = append(all[o.ID], name)
			}
		}
	}
	for id, name := range called {
		all[id] = append(all[id], name)
	}
	return all
}

func newKind(s spec) *Kind {
	k := &Kind{spec: s, Name: snake(cmp.Or(s.name, s.noun))}
	for _, o := range operations.All().Operations {
		switch {
		case s.get != "" && o.ID == s.get, s.get == "" && o.Noun == s.noun && o.Verb == "get":
			k.get = o
		case s.dataOnly, s.get != "" && o.ID != s.update:
			if s.get == "" && o.Noun == s.noun && o.Verb == "list" {
				k.list = o
			}
		case s.update != "", o.Noun == s.noun && o.Verb == "update":
			k.update = o
		case o.Noun != s.noun:
		case o.Verb == "create":
			k.create = o
		case o.Verb == "delete":
			k.delete = o
		case o.Verb == "list":
			k.list = o
		}
	}
	k.hasID = strings.HasSuffix(k.get.Route, "}")
	for i, p := range k.get.Path {
		name := snake(cmp.Or(s.paths[p.Name], p.Name))
		if k.hasID && i == len(k.get.Path)-1 && !k.isAdopted() {
			name = "id"
		}
		k.path = append(k.path, pathParameter{p.Name, name})
	}
	k.addAttributes()
	return k
}

// isAdopted reports whether items exist before Terraform manages them.
func (k *Kind) isAdopted() bool { return k.create == nil && k.update != nil }

// addAttributes derives the attributes from the members of the bodies and of the answer.
func (k *Kind) addAttributes() {
	table := operations.All()
	shown := map[string]operations.Parameter{}
	for _, p := range table.Answers[k.get.Item] {
		shown[p.Name] = p
	}
	editable := map[string]operations.Parameter{}
	var settable []operations.Parameter
	if k.update != nil {
		settable = table.Bodies[k.update.Body]
		for _, p := range settable {
			editable[p.Name] = p
		}
	}
	if k.create != nil {
		settable = table.Bodies[k.create.Body]
	}
	for i, p := range k.path {
		a := &Attribute{Name: p.name, Kind: k.get.Path[i].Kind, Doc: k.get.Path[i].Doc, Required: true, inPath: true, stable: true}
		if p.name == "id" {
			a.Required, a.Computed, a.answer = false, true, "id"
		}
		k.Attributes = append(k.Attributes, a)
	}
	used := map[string]bool{}
	for _, p := range settable {
		if k.omits(p.Name) || p.Kind == "json" {
			continue
		}
		isRequired := p.Required && !k.isAdopted()
		a := &Attribute{Kind: p.Kind, List: p.List, Doc: p.Doc, Enum: p.Enum, Sensitive: p.Secret, Required: isRequired, api: p.Name}
		if e, ok := editable[p.Name]; ok {
			a.editable, a.null, a.always = true, e.Null, e.Required
		}
		if a.answer, a.isRef = k.shownAs(shown, p); p.Secret && p.Name != k.shownOnce {
			a.answer = ""
		}
		used[a.answer] = true
		a.shownOnce = p.Name == k.shownOnce
		a.Optional = !a.Required
		a.Computed = a.Optional && a.answer != ""
		k.insert(a, p.Name)
	}
	for _, p := range table.Answers[k.get.Item] {
		if !used[p.Name] && !k.omits(p.Name) && p.Kind != "json" {
			k.insert(&Attribute{
				Kind:      p.Kind,
				List:      p.List,
				Doc:       p.Doc,
				Sensitive: p.Name == k.shownOnce,
				Computed:  true,
				answer:    p.Name,
				isRef:     p.Kind == "ref",
				stable:    p.Name == "id" || p.Name == "created_at",
				shownOnce: p.Name == k.shownOnce,
			}, p.Name)
		}
	}
}

// omits reports whether a member, or the object around it, is left out.
func (k *Kind) omits(name string) bool {
	return slices.ContainsFunc(strings.Fields(k.omit), func(o string) bool { return name == o || strings.HasPrefix(name, o+".") })
}

// shownAs returns the name in the answer of a member of the body: group for group_id. The name of an item is in an object with its id.
func (k *Kind) shownAs(shown map[string]operations.Parameter, p operations.Parameter) (name string, isRef bool) {
	if name := k.from[p.Name]; name != "" {
		return name, shown[name].Kind == "ref"
	}
	for _, name := range []string{p.Name, strings.TrimSuffix(p.Name, "_id")} {
		if s, ok := shown[name]; ok {
			return name, s.Kind == "ref"
		}
	}
	return "", false
}

// insert adds an attribute below the objects that its name with dots has. An attribute of the path has precedence.
func (k *Kind) insert(a *Attribute, name string) {
	into := &k.Attributes
	parts := strings.Split(name, ".")
	var parents []*Attribute
	for i, part := range parts {
		part = snake(part)
		at := slices.IndexFunc(*into, func(other *Attribute) bool { return other.Name == part })
		if i == len(parts)-1 {
			if a.Name = part; at < 0 {
				*into = append(*into, a)
			}
			break
		}
		if at < 0 {
			*into = append(*into, &Attribute{Name: part, Kind: "object"})
			at = len(*into) - 1
		}
		parents = append(parents, (*into)[at])
		into = &(*into)[at].Attributes
	}
	for _, parent := range parents { // an object is what its members are
		parent.Required = parent.Required || a.Required
		parent.Computed = parent.Computed || a.Computed
		parent.Optional = parent.Optional || a.Optional
		if parent.Required {
			parent.Optional, parent.Computed = false, false
		}
	}
}

// snake returns a name in Terraform's spelling: ignore_auto_suspend for ignoreAutoSuspend.
func snake(name string) string {
	var b strings.Builder
	for i, c := range name {
		if unicode.IsUpper(c) && i > 0 {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(c))
	}
	return strings.ReplaceAll(b.String(), "-", "_")
}
