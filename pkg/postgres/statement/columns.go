// Package statement has what SQL statements are put together from, and what reads their rows: the columns that the members
// of a struct stand in, and arguments.
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

// Columns are the members of a struct that stand in the database: those with a tag `db:"column"`, and those of
// structs within it whose tag ends in an underscore, `db:"group_"`, which is then the prefix of their columns. A
// pointer to such a struct stays nil where all its columns are NULL. The members of an embedded struct count as the
// struct's own. Members of type secret.String, or a pointer to it, stand apart: they are sealed, and never read.
type Columns struct {
	Names      []string
	Sealed     []Column
	structType reflect.Type
	members    []columnMember
	id         []int
}

// Column is a column and the index of its member.
type Column struct {
	Name  string
	Index []int
}

type columnMember struct {
	index    []int
	optional bool // lies within a pointer to a struct
}

// ColumnsOf are the columns of a struct type. It panics where there are none, which is at start-up.
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

// ItemColumnsOf are the columns of a struct type of which one is id. It panics where none is.
func ItemColumnsOf(t reflect.Type) *Columns {
	c := ColumnsOf(t)
	if c.id = c.index("id"); c.id == nil {
		panic(fmt.Sprintf("statement: %s has no member for the column id", t))
	}
	return c
}

// ID is the id of an item.
func (c *Columns) ID(item reflect.Value) int64 { return item.FieldByIndex(c.id).Int() }

// Value is what an item has in one of its columns.
func (c *Columns) Value(item reflect.Value, column string) any {
	return item.FieldByIndex(c.index(column)).Interface()
}

// TypeOf is the Go type of a column; nil where there is no such column.
func (c *Columns) TypeOf(column string) reflect.Type {
	index := c.index(column)
	if index == nil {
		return nil
	}
	return c.structType.FieldByIndex(index).Type
}

func (c *Columns) index(column string) []int {
	i := slices.Index(c.Names, column)
	if i < 0 {
		return nil
	}
	return c.members[i].index
}

// List is the columns as a statement names them.
func (c *Columns) List() string {
	quoted := make([]string, len(c.Names))
	for i, name := range c.Names {
		quoted[i] = pgx.Identifier{name}.Sanitize()
	}
	return strings.Join(quoted, ", ")
}

// Scan fills v, which is addressable, from a row of these columns.
func (c *Columns) Scan(row pgx.Row, v reflect.Value) error { return c.scanner(v).scan(row) }

// Collect reads rows of the columns of V.
func Collect[V any](c *Columns, rows pgx.Rows) ([]V, error) {
	var value V
	into := c.scanner(reflect.ValueOf(&value).Elem())
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (V, error) {
		err := into.scan(row)
		return value, err
	})
}

// scanner fills a value from row after row. What one row made, such as what a pointer points to, the next leaves alone.
type scanner struct {
	v       reflect.Value
	members []columnMember
	targets []any
	spare   []reflect.Value // for the optional members: NULL is nil
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

// Leaves are v's members in the order of the columns, NULL for those of a struct that is not there.
func (c *Columns) Values(v reflect.Value) []any {
	values := make([]any, len(c.members))
	for i, m := range c.members {
		if member, err := v.FieldByIndexErr(m.index); err == nil {
			values[i] = member.Interface()
		}
	}
	return values
}
