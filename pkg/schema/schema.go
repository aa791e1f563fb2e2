// Package schema reads the tags of struct types: the names of their members in JSON and in the database, and their bounds.
// Each type is read once. Decoding, CSV, columns and the API document all use this one description.
//
//	json:"group"                                 the name in JSON; omitempty or omitzero leaves the member out if it is empty
//	db:"group_id"                                the column; db:"group_" is the prefix of a nested struct's columns
//	path:"field_id", query:"since"               the parameter that fills the member; path:"*" is the last one of the path
//	required:"create" | "edit" | "create,edit"   when a body must have the member
//	min:"1" max:"255"                            bounds of a number; max limits the characters of a string
//	enum:"date,text", pattern:"^[a-z]+$"         the allowed values of a string that is not empty; JavaScript must read the pattern
//	format:"email"                               the format of a string, in the terms of JSON Schema
//	alias:"apikey,port limit"                    other names at the top of a body, which the API document leaves out
//	doc, example                                 the member's description and example in the API document
//	ext:"true"                                   the member is an addition to the documented API
//	future:"true"                                a timestamp that must lie in the future when it is sent
//	lines:"true"                                 a string that may have several lines, and any characters but NUL
//	trim:"false"                                 a string whose trailing spaces are kept
//	ordered:"true"                               references that stay in the order in which they are sent
//	transient:"true"                             a secret that is compared and not stored
//	open:"true"                                  objects that may have other members, because they come from elsewhere
//	recorded:"false"                             a member that changes without a record, such as a count of other services' items
//
// An unknown key or an invalid value panics with the names of the struct and the field.
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

// Struct describes a struct type. Members of embedded structs count as its own.
type Struct struct {
	Type     reflect.Type
	Members  []*Member             // in the order of the fields
	Untagged []reflect.StructField // fields of the struct itself that have none of the tags
}

// Member describes one member of a struct.
type Member struct {
	Type     reflect.Type // an optional member's type without the pointer
	Index    []int        // for reflect.Value.FieldByIndex, from the outermost struct
	Optional bool         // the field is a pointer
	Inner    *Struct      // the members of a nested struct; nil for a value

	JSON         string // the name; empty if the member is not in JSON
	Pointer      string // the JSON pointer (RFC 6901) from the outermost struct; empty if the member is not in JSON
	OmitEmpty    bool
	Column       string // with the prefixes of the surrounding structs; empty if there is none
	MayBeMissing bool   // a surrounding struct is behind a pointer, which may be nil

	Path, Query string // the parameter that fills the member
	Required    Action
	Min, Max    *int64
	Enum        []string
	Pattern     *regexp.Regexp
	Format      string
	Aliases     []string
	Doc         string
	Example     *string
	Extension   bool
	Transient   bool // a secret that is not stored
	Lines       bool // a string that may have several lines
	Untrimmed   bool // a string that keeps its trailing spaces
	Future      bool // a timestamp that must lie in the future when it is sent
	Ordered     bool // references that stay in the order in which they are sent
	Open        bool // objects that may have members that the type does not have
	Unrecorded  bool // a member that changes without a record, so records leave it out
}

// Action is a set of the things that a body can be sent for.
type Action uint8

// The actions.
const (
	Create Action = 1 << iota
	Edit
)

func (a Action) String() string {
	if a == Edit {
		return "Update"
	}
	return "Create"
}

var structs sync.Map // reflect.Type → *Struct

// Describe returns the description of a struct type. It panics if a tag is invalid, which happens when a service starts.
func Describe(t reflect.Type) *Struct {
	if s, ok := structs.Load(t); ok {
		return s.(*Struct)
	}
	s, _ := structs.LoadOrStore(t, describeStruct(t, &Member{}))
	return s.(*Struct)
}

// describeStruct describes a struct type. outer is the member that holds the struct.
func describeStruct(t reflect.Type, outer *Member) *Struct {
	s := &Struct{Type: t}
	for i := range t.NumField() {
		field := t.Field(i)
		m := outer.member(t, i)
		switch {
		case field.Anonymous && IsNested(m.Type):
			s.Members = append(
				s.Members,
				describeStruct(
					m.Type,
					&Member{Index: m.Index, Pointer: outer.Pointer, Column: outer.Column, MayBeMissing: outer.MayBeMissing},
				).Members...)
			continue
		case m.JSON == "" && field.Tag.Get("db") == "" && m.Path == "" && m.Query == "":
			s.Untagged = append(s.Untagged, field)
			continue
		case IsNested(m.Type):
			inner := *m
			inner.MayBeMissing = m.MayBeMissing || m.Optional
			m.Inner = describeStruct(m.Type, &inner)
		}
		s.Members = append(s.Members, m)
	}
	return s
}

// IsNested reports whether a type is a struct with members of its own. Structs that marshal themselves are single values.
func IsNested(t reflect.Type) bool {
	if t.Kind() != reflect.Struct {
		return false
	}
	p := reflect.PointerTo(t)
	return !p.Implements(reflect.TypeFor[json.Marshaler]()) && !p.Implements(reflect.TypeFor[encoding.TextMarshaler]())
}

// member describes field i of a struct type. outer is the member that holds the struct.
func (outer *Member) member(t reflect.Type, i int) *Member {
	field := t.Field(i)
	checkTag(t, field)
	m := &Member{Type: field.Type, Index: append(slices.Clone(outer.Index), i), MayBeMissing: outer.MayBeMissing}
	if field.Type.Kind() == reflect.Pointer {
		m.Optional, m.Type = true, field.Type.Elem()
	}
	tag := func(name string) string { return field.Tag.Get(name) }
	name, options, _ := strings.Cut(tag("json"), ",")
	if name != "-" {
		m.JSON = name
	}
	if m.JSON != "" {
		m.Pointer = outer.Pointer + "/" + Escape(name)
		m.OmitEmpty = strings.Contains(options, "omitempty") || strings.Contains(options, "omitzero")
	}
	if column := tag("db"); column != "" {
		m.Column = outer.Column + column
	}
	m.Path, m.Query, m.Doc = tag("path"), tag("query"), tag("doc")
	if text, ok := field.Tag.Lookup("example"); ok {
		m.Example = &text
	}
	if alias := tag("alias"); alias != "" {
		m.Aliases = strings.Split(alias, ",")
	}
	if enum := tag("enum"); enum != "" {
		m.Enum = strings.Split(enum, ",")
	} else if values, ok := reflect.Zero(field.Type).Interface().(interface{ Enum() []string }); ok {
		m.Enum = values.Enum()
	}
	if pattern := tag("pattern"); pattern != "" {
		m.Pattern = regexp.MustCompile(pattern) // checkTag has compiled it before
	}
	m.Format = tag("format")
	m.Extension, m.Transient, m.Future = tag("ext") == "true", tag("transient") == "true", tag("future") == "true"
	m.Lines = tag("lines") == "true"
	m.Untrimmed, m.Ordered, m.Unrecorded = tag("trim") == "false", tag("ordered") == "true", tag("recorded") == "false"
	m.Open = tag("open") == "true"
	m.Required = parseRequired(field)
	m.Min, m.Max = parseBound(field, "min"), parseBound(field, "max")
	return m
}

func parseRequired(field reflect.StructField) (all Action) {
	for when := range strings.SplitSeq(field.Tag.Get("required"), ",") {
		all |= actionNames[when]
	}
	return all
}

func parseBound(field reflect.StructField, tag string) *int64 {
	text, ok := field.Tag.Lookup(tag)
	if !ok {
		return nil
	}
	n, _ := strconv.ParseInt(text, 10, 64) // checkTag has parsed it before
	return &n
}

// Escape returns a member's name as part of a JSON pointer (RFC 6901).
func Escape(name string) string {
	return strings.ReplaceAll(strings.ReplaceAll(name, "~", "~0"), "/", "~1")
}

// Dotted returns the path to the member with dots: owner.server.id
func (m *Member) Dotted() string { return strings.ReplaceAll(m.Pointer[1:], "/", ".") }

// Leaves returns the members that hold values. A nested struct is replaced by its own leaves.
func (s *Struct) Leaves() []*Member {
	var all []*Member
	for _, m := range s.Members {
		if m.Inner != nil {
			all = append(all, m.Inner.Leaves()...)
		} else {
			all = append(all, m)
		}
	}
	return all
}

// ByColumn returns the member with a column, or nil.
func (s *Struct) ByColumn(column string) *Member {
	for _, m := range s.Leaves() {
		if m.Column == column {
			return m
		}
	}
	return nil
}

// ByPointer returns the member at a JSON pointer, or nil.
func (s *Struct) ByPointer(pointer string) *Member {
	for _, m := range s.Members {
		if m.Pointer == pointer && pointer != "" {
			return m
		}
		if m.Inner != nil {
			if found := m.Inner.ByPointer(pointer); found != nil {
				return found
			}
		}
	}
	return nil
}
