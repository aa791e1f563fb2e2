package route

import (
	"encoding/csv"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest/body"
	"github.com/ironplane/ironplane/pkg/schema"
)

// Table writes items of a type as rows: a column for each member, those of nested objects with a dot between.
type Table struct {
	names   []string
	members []*schema.Member
}

// NewTable works out how items of a type are written, of which callers see some members.
func NewTable(t reflect.Type, sees func(*schema.Member) bool) *Table {
	c := &Table{}
	for _, m := range schema.Describe(t).Leaves() {
		list := m.Type.Kind() == reflect.Slice && m.Type != reflect.TypeFor[[]problem.Ref]() // for which a cell is too small
		if m.JSON != "" && !list && sees(m) {
			c.names, c.members = append(c.names, m.Dotted()), append(c.members, m)
		}
	}
	return c
}

// row writes an item's members. What is not set is empty.
func (c *Table) row(item reflect.Value) []string {
	cells := make([]string, len(c.members))
	for i, m := range c.members {
		member, err := item.FieldByIndexErr(m.Index)
		if err != nil || member.Kind() == reflect.Pointer && member.IsNil() {
			continue
		}
		switch value := reflect.Indirect(member); m.Type {
		case reflect.TypeFor[body.Timestamp]():
			cells[i] = value.Interface().(body.Timestamp).UTC().Format(time.RFC3339)
		case reflect.TypeFor[[]problem.Ref]():
			cells[i] = refsCell(value.Interface().([]problem.Ref))
		default:
			if cells[i] = fmt.Sprint(value.Interface()); value.Kind() == reflect.String {
				cells[i] = escapeFormula(cells[i])
			}
		}
	}
	return cells
}

// escapeFormula is a text as a cell: spreadsheets take for a formula what begins like one, unless ' stands before it.
func escapeFormula(text string) string {
	if text != "" && strings.ContainsRune("=+-@'\t\r", rune(text[0])) {
		return "'" + text
	}
	return text
}

// refsCell is references in one cell: their ids.
func refsCell(refs []problem.Ref) string {
	ids := make([]string, len(refs))
	for i, ref := range refs {
		ids[i] = strconv.FormatInt(ref.ID, 10)
	}
	return strings.Join(ids, " ")
}

// csvRows writes a table.
type csvRows struct {
	out   *csv.Writer
	table *Table
}

func newCSVRows(out io.Writer, table *Table) *csvRows {
	rows := &csvRows{csv.NewWriter(out), table}
	_ = rows.out.Write(table.names) // its errors stick
	return rows
}

func (c *csvRows) write(item any) error {
	return c.out.Write(c.table.row(reflect.Indirect(reflect.ValueOf(item))))
}

func (c *csvRows) end() error {
	c.out.Flush()
	return c.out.Error()
}
