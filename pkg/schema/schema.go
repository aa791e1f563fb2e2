// Package schema reads the tags of a struct type, once: what its members are called in JSON and in the database, and what
// bounds them. Decoding, CSV, columns and the API document all come from this one description.
//
//	json:"group"                                 its name in JSON, with omitempty or omitzero where it may be left out
//	db:"group_id"                                its column; db:"group_" is the prefix of a nested struct's columns
//	path:"field_id", query:"since"               the parameter that fills it; path:"*" is the path's last one
//	required:"create" | "edit" | "create,edit"   when a body must have it
//	min:"1" max:"255"                            bounds of a number; max is the most characters of a string
//	enum:"date,text", pattern:"^[a-z]+$"         what a string may be, where it is not empty; in JavaScript, too
//	format:"email"                               what a string is, in the terms of JSON Schema
//	also:"apikey,port limit"                     other spellings, at the top of a body, which the API document leaves out
//	doc, example                                 what the API document says
//	ext:"true"                                   it is not in the documented API, but an addition to it
//	future:"true"                                of a moment: it is yet to come when it is sent
//	blanks:"kept"                                of a text: those at its end are not cut off
//	order:"kept"                                 of references: they stay in the order in which they are sent
//	kept:"false"                                 of a secret: it is compared, and not kept
//	recorded:"false"                             no record has it, as it changes without one: with other services' items, or by use
//
// A key that is not among these, and a value that a key cannot have, panic with the names of the struct and the field.
package schema

import (
	"encoding"
	"encoding/json"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Struct describes a struct type. The members of an embedded struct count as its own.
type Struct struct {
	Type     reflect.Type
	Members  []*Member             // in the order of the fields
	Untagged []reflect.StructField // the others of the struct itself
}

// Member is a member of a struct.
type Member struct {
	Type     reflect.Type // without the pointer of one that is optional
	Index    []int        // for reflect.Value.FieldByIndex, from the outermost struct on
	Optional bool         // it is a pointer
	Inner    *Struct      // of a nested struct, else nil

	JSON      string // its name; empty: none
	Pointer   string // the JSON pointer to it (RFC 6901) from the outermost struct; empty: none
	OmitEmpty bool
	Column    string // with the prefixes of the structs around it; empty: none
	Absent    bool   // it lies in a struct behind a pointer, which may be nil

	Path, Query string // parameters
	Required    Occasion
	Min, Max    *int64
	Enum        []string
	Pattern     *regexp.Regexp
	Format      string
	Also        []string
	Doc         string
	Example     *string
	Extension   bool
	Passing     bool // a secret that is not kept
	Blanks      bool // a text that keeps those at its end
	Future      bool // a moment that is yet to come where it is sent
	Ordered     bool // references in the order in which they were sent
	Unrecorded  bool // it changes without a record, so that no record has it
}

// Occasion is a set of what a body may be sent for.
type Occasion uint8

// The occasions.
const (
	Create Occasion = 1 << iota
	Edit
)

func (o Occasion) String() string {
	if o == Edit {
		return "Update"
	}
	return "Create"
}

var known sync.Map // reflect.Type → *Struct

// Of describes a struct type. It panics where a tag makes no sense, which is at start-up.
func Of(t reflect.Type) *Struct {
	if s, ok := known.Load(t); ok {
		return s.(*Struct)
	}
	s, _ := known.LoadOrStore(t, describe(t, &Member{}))
	return s.(*Struct)
}

// describe describes the struct that is the member around.
func describe(t reflect.Type, around *Member) *Struct {
	s := &Struct{Type: t}
	for i := range t.NumField() {
		field := t.Field(i)
		m := around.member(t, i)
		switch {
		case field.Anonymous && isNested(m.Type):
			s.Members = append(
				s.Members,
				describe(m.Type, &Member{Index: m.Index, Pointer: around.Pointer, Column: around.Column, Absent: around.Absent}).Members...)
			continue
		case m.JSON == "" && field.Tag.Get("db") == "" && m.Path == "" && m.Query == "":
			s.Untagged = append(s.Untagged, field)
			continue
		case isNested(m.Type):
			inner := *m
			inner.Absent = m.Absent || m.Optional
			m.Inner = describe(m.Type, &inner)
		}
		s.Members = append(s.Members, m)
	}
	return s
}

// isNested tells whether a type's members stand in JSON and in the database themselves: it is a struct that is not written
// as one value.
func isNested(t reflect.Type) bool {
	if t.Kind() != reflect.Struct {
		return false
	}
	p := reflect.PointerTo(t)
	return !p.Implements(reflect.TypeFor[json.Marshaler]()) && !p.Implements(reflect.TypeFor[encoding.TextMarshaler]())
}

// member describes a field of the struct that is the member around.
func (around *Member) member(t reflect.Type, i int) *Member {
	field := t.Field(i)
	checkTag(t, field)
	m := &Member{Type: field.Type, Index: append(slices.Clone(around.Index), i), Absent: around.Absent}
	if field.Type.Kind() == reflect.Pointer {
		m.Optional, m.Type = true, field.Type.Elem()
	}
	tag := func(name string) string { return field.Tag.Get(name) }
	name, options, _ := strings.Cut(tag("json"), ",")
	if name != "-" {
		m.JSON = name
	}
	if m.JSON != "" {
		m.Pointer = around.Pointer + "/" + Escape(name)
		m.OmitEmpty = strings.Contains(options, "omitempty") || strings.Contains(options, "omitzero")
	}
	if column := tag("db"); column != "" {
		m.Column = around.Column + column
	}
	m.Path, m.Query, m.Doc = tag("path"), tag("query"), tag("doc")
	if text, ok := field.Tag.Lookup("example"); ok {
		m.Example = &text
	}
	if also := tag("also"); also != "" {
		m.Also = strings.Split(also, ",")
	}
	if enum := tag("enum"); enum != "" {
		m.Enum = strings.Split(enum, ",")
	} else if values, ok := reflect.Zero(field.Type).Interface().(interface{ Enum() []string }); ok {
		m.Enum = values.Enum()
	}
	if pattern := tag("pattern"); pattern != "" {
		m.Pattern = regexp.MustCompile(pattern) // which checkTag has tried
	}
	m.Format = tag("format")
	m.Extension, m.Passing, m.Future = tag("ext") == "true", tag("kept") == "false", tag("future") == "true"
	m.Blanks, m.Ordered, m.Unrecorded = tag("blanks") == "kept", tag("order") == "kept", tag("recorded") == "false"
	m.Required = occasions(field)
	m.Min, m.Max = bound(field, "min"), bound(field, "max")
	return m
}

func occasions(field reflect.StructField) (all Occasion) {
	for when := range strings.SplitSeq(field.Tag.Get("required"), ",") {
		all |= required[when]
	}
	return all
}

func bound(field reflect.StructField, tag string) *int64 {
	text, ok := field.Tag.Lookup(tag)
	if !ok {
		return nil
	}
	n, _ := strconv.ParseInt(text, 10, 64) // which checkTag has tried
	return &n
}

// Escape writes a member's name as RFC 6901 says.
func Escape(name string) string {
	return strings.ReplaceAll(strings.ReplaceAll(name, "~", "~0"), "/", "~1")
}

// Dotted is the path to a member with dots: owner.server.id
func (m *Member) Dotted() string { return strings.ReplaceAll(m.Pointer[1:], "/", ".") }

// Values are the members that are no nested structs, those of nested structs in their place.
func (s *Struct) Values() []*Member {
	var all []*Member
	for _, m := range s.Members {
		if m.Inner != nil {
			all = append(all, m.Inner.Values()...)
		} else {
			all = append(all, m)
		}
	}
	return all
}

// ByColumn is the member of a column, or nil.
func (s *Struct) ByColumn(column string) *Member {
	for _, m := range s.Values() {
		if m.Column == column {
			return m
		}
	}
	return nil
}

// At is the member at a JSON pointer, or nil.
func (s *Struct) At(pointer string) *Member {
	for _, m := range s.Members {
		if m.Pointer == pointer && pointer != "" {
			return m
		}
		if m.Inner != nil {
			if found := m.Inner.At(pointer); found != nil {
				return found
			}
		}
	}
	return nil
}
