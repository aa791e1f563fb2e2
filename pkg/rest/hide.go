package rest

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"strings"

	"github.com/ironplane/ironplane/pkg/schema"
)

// Hide lists members that some callers do not see. Responses and CSV leave them out or empty, as if they were not set. These
// callers can neither filter nor sort by them. The search still finds everything that List.Search covers.
type Hide struct {
	From    func(context.Context) bool // whether the members are hidden from this caller
	Members []string                   // paths with dots: email.template
}

// hidden is a Hide for items of a type.
type hidden struct {
	from     func(context.Context) bool
	members  []*schema.Member
	columns  map[string]bool // of hidden members, including nested ones
	pointers map[string]bool // likewise
}

// newHidden panics if the type lacks one of the members.
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

// add hides a member. For a struct that is not optional it hides each of its members.
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

// visibleColumns returns the columns, by the names of parameters, without the hidden ones.
func (h *hidden) visibleColumns(columns map[string]string) map[string]string {
	columns = maps.Clone(columns)
	maps.DeleteFunc(columns, func(_, column string) bool { return h.columns[filterColumn(column)] })
	return columns
}

// appliesTo reports whether the members are hidden from the caller.
func (h *hidden) appliesTo(ctx context.Context) bool { return h.from != nil && h.from(ctx) }

// mask clears the hidden members of an item. Structs behind pointers are copied first.
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

// maskFor returns an item as the caller may see it.
func maskFor[V any](ctx context.Context, h *hidden, item V) V {
	if h.appliesTo(ctx) {
		h.mask(reflect.ValueOf(&item).Elem())
	}
	return item
}
