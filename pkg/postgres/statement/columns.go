// Package statement maps the members of structs to columns, and collects arguments, for the packages that build SQL
// statements.
package statement

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/schema"
	"github.com/ironplane/ironplane/pkg/secret"
)

// Columns are the members of a struct that are stored in the database. A member has the tag `db:"column"`. For a struct
// within it, the tag ends in an underscore, `db:"group_"`, and is the prefix of its columns. A pointer to such a struct
// stays nil if all its columns are NULL. Members of an embedded struct count as the struct's own. Members of type
// secret.String or *secret.String are listed in Sealed: they are stored sealed and never read.
type Columns struct {
	Names      []string
	Sealed     []Column
	structType reflect.Type
	members    []columnMember
	id         []int
}

// Column is a column's name and the index of its member.
type Column struct {
	Name  string
	Index []int
}

type columnMember struct {
	index    []int
	optional bool // within a pointer to a struct
}

// ColumnsOf returns the columns of a struct type. It panics if there are none.
func ColumnsOf(t reflect.Type) *Columns {
	c := &Columns{structType: t}
	for _, m := range schema.Describe(t).Leaves() {
		switch {
		case m.Column == "":
		case m.Type == reflect.TypeFor[secret.String]():
			c.Sealed = append(c.Sealed, Column{m.Column, m.Index})
		default:
			c.Names = append(c.Names, m.Column)
			c.members = append(c.members, columnMember{m.Index, m.MayBeMissing})
		}
	}
	if len(c.Names) == 0 {
		panic(fmt.Sprintf("statement: %s has no column", t))
	}
	return c
}

// ItemColumnsOf returns the columns of a struct type with a column id. It panics if there is none.
func ItemColumnsOf(t reflect.Type) *Columns {
	c := ColumnsOf(t)
	if c.id = c.index("id"); c.id == nil {
		panic(fmt.Sprintf("statement: %s has no member for the column id", t))
	}
	return c
}

// ID returns the id of an item.
func (c *Columns) ID(item reflect.Value) int64 { return item.FieldByIndex(c.id).Int() }

// Value returns the member of an item that is stored in the column.
func (c *Columns) Value(item reflect.Value, column string) any {
	return item.FieldByIndex(c.index(column)).Interface()
}

// TypeOf returns the Go type of a column, or nil if there is no such column.
func (c *Columns) TypeOf(column string) reflect.Type {
	index := c.index(column)
	if index == nil {
		return nil
	}
	return c.structType.FieldByIndex(index).Type
}

// index returns the index of the column's member, or nil.
func (c *Columns) index(column string) []int {
	i := slices.Index(c.Names, column)
	if i < 0 {
		return nil
	}
	return c.members[i].index
}

// List returns the quoted column names, separated by commas.
func (c *Columns) List() string {
	quoted := make([]string, len(c.Names))
	for i, name := range c.Names {
		quoted[i] = pgx.Identifier{name}.Sanitize()
	}
	return strings.Join(quoted, ", ")
}

// Scan reads a row with these columns into v, which must be addressable.
func (c *Columns) Scan(row pgx.Row, v reflect.Value) error { return c.scanner(v).scan(row) }

// Collect reads rows with the columns of V.
func Collect[V any](c *Columns, rows pgx.Rows) ([]V, error) {
	var value V
	into := c.scanner(reflect.ValueOf(&value).Elem())
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (V, error) {
		err := into.scan(row)
		return value, err
	})
}

// scanner reads row after row into one value. Pointers that it set for one row are not changed by the next.
type scanner struct {
	v       reflect.Value
	members []columnMember
	targets []any
	spare   []reflect.Value // scan targets of the optional members; nil for NULL
}

func (c *Columns) scanner(v reflect.Value) *scanner {
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

// allocate returns v's member at index, and creates the structs on the path to it.
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

// Values returns v's members in the order of the columns, with nil for the members of a missing struct.
func (c *Columns) Values(v reflect.Value) []any {
	values := make([]any, len(c.members))
	for i, m := range c.members {
		if member, err := v.FieldByIndexErr(m.index); err == nil {
			values[i] = member.Interface()
		}
	}
	return values
}
