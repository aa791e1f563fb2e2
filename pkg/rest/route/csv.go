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

// Table writes items of a type as rows, with a column for each member. Names of nested members have a dot.
type Table struct {
	names   []string
	members []*schema.Member
}

// NewTable returns the table of a type, with the members that callers see.
func NewTable(t reflect.Type, sees func(*schema.Member) bool) *Table {
	c := &Table{}
	for _, m := range schema.Describe(t).Leaves() {
		list := m.Type.Kind() == reflect.Slice && m.Type != reflect.TypeFor[[]problem.Ref]() // a cell cannot hold a list
		if m.JSON != "" && !list && sees(m) {
			c.names, c.members = append(c.names, m.Dotted()), append(c.members, m)
		}
	}
	return c
}

// Names returns the names of the columns.
func (c *Table) Names() []string { return c.names }

// Cells returns the cells of an item by the names of their columns.
func (c *Table) Cells(item reflect.Value) map[string]string {
	named := make(map[string]string, len(c.names))
	for i, cell := range c.row(item) {
		named[c.names[i]] = cell
	}
	return named
}

// row returns the cells of an item. Members that are not set are empty.
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

// escapeFormula puts ' before a text that spreadsheets would take for a formula.
func escapeFormula(text string) string {
	if text != "" && strings.ContainsRune("=+-@'\t\r", rune(text[0])) {
		return "'" + text
	}
	return text
}

// refsCell returns the ids of references as one cell.
func refsCell(refs []problem.Ref) string {
	ids := make([]string, len(refs))
	for i, ref := range refs {
		ids[i] = strconv.FormatInt(ref.ID, 10)
	}
	return strings.Join(ids, " ")
}

// csvRows writes rows as CSV.
type csvRows struct {
	out   *csv.Writer
	table *Table
}

func newCSVRows(out io.Writer, table *Table) *csvRows {
	rows := &csvRows{csv.NewWriter(out), table}
	_ = rows.out.Write(table.names) // csv.Writer keeps the error
	return rows
}

func (c *csvRows) write(item any) error {
	return c.out.Write(c.table.row(reflect.Indirect(reflect.ValueOf(item))))
}

func (c *csvRows) end() error {
	c.out.Flush()
	return c.out.Error()
}
