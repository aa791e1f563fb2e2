package rest

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"strings"

	"github.com/ironplane/ironplane/pkg/schema"
)

// Hide says which members of an item some callers do not see: neither in an answer nor in a list's CSV, and they can neither
// filter nor sort by them. What is hidden looks like what is not set: it is left out, or empty. A search finds what By.Search
// has it find, also for them.
type Hide struct {
	From    func(context.Context) bool // whether the caller is one of those
	Members []string                   // by their paths with dots: email.template
}

// hidden is a Hide for items of a type.
type hidden struct {
	from     func(context.Context) bool
	members  []*schema.Member
	columns  map[string]bool // of the members, and of those within them
	pointers map[string]bool // likewise
}

// newHidden panics where the type does not have one of the members.
func newHidden(t reflect.Type, h Hide) *hidden {
	all := &hidden{from: h.From, columns: map[string]bool{}, pointers: map[string]bool{}}
	if (h.From == nil) != (len(h.Members) == 0) {
		panic("Hide has no From or no Members")
	}
	for _, path := range h.Members {
		m := schema.Describe(t).ByPointer("/" + strings.ReplaceAll(path, ".", "/"))
		if m == nil {
			panic(fmt.Sprintf("Hide.Members names %s, which %s does not have", path, t))
		}
		all.add(m)
	}
	return all
}

// add hides a member; of a struct that is always there, each of its own.
func (h *hidden) add(m *schema.Member) {
	leaves := []*schema.Member{m}
	if m.Inner != nil {
		leaves = m.Inner.Leaves()
	}
	for _, leaf := range leaves {
		h.columns[leaf.Column], h.pointers[leaf.Pointer] = true, true
	}
	if m.Inner == nil || m.Optional {
		h.members = append(h.members, m)
		return
	}
	for _, inner := range m.Inner.Members {
		h.add(inner)
	}
}

// visibleColumns leaves out what is hidden of columns by the names that callers have for them.
func (h *hidden) visibleColumns(columns map[string]string) map[string]string {
	columns = maps.Clone(columns)
	maps.DeleteFunc(columns, func(_, column string) bool { return h.columns[filterColumn(column)] })
	return columns
}

// appliesTo tells whether this caller does not see the members.
func (h *hidden) appliesTo(ctx context.Context) bool { return h.from != nil && h.from(ctx) }

// mask takes the members from an item. What the item points to stays as it is.
func (h *hidden) mask(item reflect.Value) {
	for _, m := range h.members {
		member := item
		for _, i := range m.Index {
			if member.Kind() == reflect.Pointer {
				if member.IsNil() {
					break
				}
				copied := reflect.New(member.Type().Elem())
				copied.Elem().Set(member.Elem())
				member.Set(copied)
				member = copied.Elem()
			}
			member = member.Field(i)
		}
		if member.SetZero(); member.Kind() == reflect.Slice {
			member.Set(reflect.MakeSlice(member.Type(), 0, 0))
		}
	}
}

// maskFor is an item as this caller sees it.
func maskFor[V any](ctx context.Context, h *hidden, item V) V {
	if h.appliesTo(ctx) {
		h.mask(reflect.ValueOf(&item).Elem())
	}
	return item
}
