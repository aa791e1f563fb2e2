package pg

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/shape"
)

// columns are the members of a struct that stand in the database: those with a tag `db:"column"`, and those of
// structs within it whose tag ends in an underscore, `db:"group_"`, which is then the prefix of their columns. A
// pointer to such a struct stays nil where all its columns are NULL. The members of an embedded struct count as the
// struct's own. Members of type secret.String, or a pointer to it, stand apart: they are sealed, and never read.
type columns struct {
	names   []string
	members []columnMember
	sealed  []sealedColumn
}

type columnMember struct {
	index    []int
	optional bool // lies within a pointer to a struct
}

func columnsOf(t reflect.Type) *columns {
	c := &columns{}
	for _, m := range shape.Of(t).Values() {
		switch {
		case m.Column == "":
		case m.Type == reflect.TypeFor[secret.String]():
			c.sealed = append(c.sealed, sealedColumn{m.Column, m.Index})
		default:
			c.names = append(c.names, m.Column)
			c.members = append(c.members, columnMember{m.Index, m.Absent})
		}
	}
	if len(c.names) == 0 {
		panic(fmt.Sprintf("pg: %s has no column", t))
	}
	return c
}

// member is the one of this column, or nil.
func (c *columns) member(column string) *columnMember {
	for i, name := range c.names {
		if name == column {
			return &c.members[i]
		}
	}
	return nil
}

// list is the columns for a statement.
func (c *columns) list() string {
	quoted := make([]string, len(c.names))
	for i, name := range c.names {
		quoted[i] = pgx.Identifier{name}.Sanitize()
	}
	return strings.Join(quoted, ", ")
}

// scan fills v, which is addressable, from a row of these columns.
func (c *columns) scan(row pgx.Row, v reflect.Value) error { return c.scanner(v).scan(row) }

// scanner fills a value from row after row. What one row made, such as what a pointer points to, the next leaves alone.
type scanner struct {
	v       reflect.Value
	members []columnMember
	targets []any
	spare   []reflect.Value // for the optional members: NULL is nil
}

func (c *columns) scanner(v reflect.Value) *scanner {
	s := &scanner{v, c.members, make([]any, len(c.members)), make([]reflect.Value, len(c.members))}
	for i, m := range c.members {
		if !m.optional {
			s.targets[i] = v.FieldByIndex(m.index).Addr().Interface()
			continue
		}
		t := v.Type().FieldByIndex(m.index).Type
		if t.Kind() != reflect.Pointer {
			t = reflect.PointerTo(t)
		}
		spare := reflect.New(t)
		s.targets[i], s.spare[i] = spare.Interface(), spare.Elem()
	}
	return s
}

func (s *scanner) scan(row pgx.Row) error {
	s.v.SetZero()
	if err := row.Scan(s.targets...); err != nil {
		return err
	}
	for i, spare := range s.spare {
		if !spare.IsValid() || spare.IsNil() {
			continue
		}
		member := allocate(s.v, s.members[i].index)
		if member.Kind() != reflect.Pointer {
			spare = spare.Elem()
		}
		member.Set(spare)
	}
	return nil
}

// allocate is v's member at index, with the structs on the way to it made.
func allocate(v reflect.Value, index []int) reflect.Value {
	for _, i := range index {
		if v.Kind() == reflect.Pointer {
			if v.IsNil() {
				v.Set(reflect.New(v.Type().Elem()))
			}
			v = v.Elem()
		}
		v = v.Field(i)
	}
	return v
}

// values are v's members in the order of the columns, NULL for those of a struct that is not there.
func (c *columns) values(v reflect.Value) []any {
	values := make([]any, len(c.members))
	for i, m := range c.members {
		if member, err := v.FieldByIndexErr(m.index); err == nil {
			values[i] = member.Interface()
		}
	}
	return values
}
