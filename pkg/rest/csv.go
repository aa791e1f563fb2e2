package rest

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ironplane/ironplane/pkg/problem"
)

// csvTable writes items of a type as rows: a column for each member, those of nested objects with a dot between.
type csvTable struct {
	names   []string
	indexes [][]int
}

func newTable(t reflect.Type) *csvTable {
	c := &csvTable{}
	c.add(t, "", nil)
	return c
}

func (c *csvTable) add(t reflect.Type, prefix string, at []int) {
	for i := range t.NumField() {
		field := t.Field(i)
		index := append(slices.Clone(at), i)
		if field.Anonymous {
			c.add(field.Type, prefix, index)
			continue
		}
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" || name == "-" {
			continue
		}
		inner := field.Type
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		if inner.Kind() == reflect.Struct && inner != reflect.TypeFor[Timestamp]() {
			c.add(inner, prefix+name+".", index)
			continue
		}
		if inner.Kind() == reflect.Slice && inner != reflect.TypeFor[[]Ref]() {
			continue // a cell holds no list of anything else
		}
		c.names = append(c.names, prefix+name)
		c.indexes = append(c.indexes, index)
	}
}

// row writes an item's members. What is not set is empty.
func (c *csvTable) row(item reflect.Value) []string {
	cells := make([]string, len(c.indexes))
	for i, index := range c.indexes {
		member, err := item.FieldByIndexErr(index)
		if err != nil || member.Kind() == reflect.Pointer && member.IsNil() {
			continue
		}
		switch value := reflect.Indirect(member); {
		case value.Type() == reflect.TypeFor[Timestamp]():
			cells[i] = value.Interface().(Timestamp).UTC().Format(time.RFC3339)
		case value.Type() == reflect.TypeFor[[]Ref]():
			cells[i] = refsCell(value.Interface().([]Ref))
		case value.Kind() == reflect.Slice:
			text, _ := json.Marshal(value.Interface()) // as it is marshalled in an answer
			cells[i] = string(text)
		default:
			cells[i] = fmt.Sprint(value.Interface())
		}
	}
	return cells
}

// refsCell is references in one cell: their ids.
func refsCell(refs []Ref) string {
	ids := make([]string, len(refs))
	for i, ref := range refs {
		ids[i] = strconv.FormatInt(ref.ID, 10)
	}
	return strings.Join(ids, " ")
}

// csvRows writes a table.
type csvRows struct {
	out   *csv.Writer
	table *csvTable
}

func newCSVRows(out io.Writer, table *csvTable) *csvRows {
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

const (
	// maxRows is how many rows a CSV body can have.
	maxRows = 10_000
	// maxWrongCells is how many of a CSV body's errors are told.
	maxWrongCells = 100
)

// parseCSV reads a body of rows, each of which makes a B. Its first line names the members, those of nested objects
// with a dot between; columns of other names mean nothing, so that a list that was read can be sent back. All rows
// are checked before anything is answered.
func parseCSV[B any](text []byte) (made []*B, lines []int, err error) {
	if !utf8.Valid(text) {
		return nil, nil, problem.New(problem.BadRequest, "The body is not valid UTF-8.")
	}
	r := csv.NewReader(bytes.NewReader(bytes.TrimPrefix(text, []byte("\ufeff"))))
	header, err := r.Read()
	if err != nil {
		return nil, nil, notCSV(err)
	}
	plan := planOf[B]()
	members := make([]csvMember, len(header))
	for i, name := range header {
		if members[i], err = plan.csvMember(name); err != nil {
			return nil, nil, err
		}
		if slices.Contains(header[:i], name) {
			return nil, nil, problem.New(problem.BadRequest, "The body has the column %s twice.", name)
		}
	}
	var wrong problem.Fields
	for len(wrong) < maxWrongCells {
		cells, err := r.Read()
		if errors.Is(err, io.EOF) {
			return made, lines, wrong.Err()
		}
		if err != nil {
			return nil, nil, notCSV(err)
		}
		if len(made) == maxRows {
			return nil, nil, problem.New(problem.TooLarge, "The body has more than %d rows.", maxRows)
		}
		line, _ := r.FieldPos(0)
		var body Body[B]
		body.decode(rowObject(members, cells))
		value, err := body.New()
		if err != nil {
			wrong = append(wrong, atLine(err, line, header)...)
		}
		made, lines = append(made, value), append(lines, line)
	}
	return nil, nil, wrong.Err()
}

func notCSV(err error) error {
	if errors.Is(err, io.EOF) {
		return problem.New(problem.BadRequest, "The body is empty: its first line names the columns.")
	}
	if at, ok := errors.AsType[*csv.ParseError](err); ok {
		return problem.New(problem.BadRequest, "The body is not CSV: line %d, column %d: %s.", at.Line, at.Column, at.Err)
	}
	return problem.New(problem.BadRequest, "The body is not CSV.").Because(err)
}

// csvMember is the member of a body that a column holds. leaf is nil where there is none.
type csvMember struct {
	path []string
	leaf *leaf
}

func (p *bodyPlan) csvMember(column string) (csvMember, error) {
	m := csvMember{path: strings.Split(column, ".")}
	in := p.root
	for i, name := range m.path {
		member, ok := in.members[name]
		switch {
		case !ok:
			return m, nil
		case member.nested == nil && i == len(m.path)-1:
			m.leaf = p.leaves[member.leaf]
			return m, nil
		case member.nested == nil:
			// The id of a reference may stand in a column group.id, its name means nothing.
			if leaf := p.leaves[member.leaf]; leaf.kind == kinds[reflect.TypeFor[RefID]()] && i == len(m.path)-2 && m.path[i+1] == "id" {
				m.path, m.leaf = m.path[:i+1], leaf
			}
			return m, nil
		}
		in = member.nested
	}
	return m, nil
}

// rowObject is the JSON object that a row stands for. An empty cell is not sent.
func rowObject(members []csvMember, cells []string) object {
	var o object
	for i, m := range members {
		if m.leaf != nil && cells[i] != "" {
			o = o.with(m.path, m.leaf.kind.cell(cells[i]))
		}
	}
	return o
}

func (o object) with(path []string, value any) object {
	if len(path) == 1 {
		return append(o, member{path[0], value})
	}
	for i := range o {
		if inner, ok := o[i].value.(object); ok && o[i].name == path[0] {
			o[i].value = inner.with(path[1:], value)
			return o
		}
	}
	return append(o, member{path[0], object{}.with(path[1:], value)})
}

// cell reads a cell as what would stand in JSON. What cannot be read stays a text, which is of the wrong type.
func (k *kind) cell(text string) any {
	switch {
	case k.text:
		return text
	case k == kinds[reflect.TypeFor[bool]()] && (text == "true" || text == "false"):
		return text == "true"
	case k == kinds[reflect.TypeFor[Timestamp]()]:
		if at, err := time.Parse(time.RFC3339, text); err == nil {
			return object{{"iso_8601", text}, {"unix", json.Number(strconv.FormatInt(at.Unix(), 10))}}
		}
	}
	if k == kinds[reflect.TypeFor[[]RefID]()] {
		var ids array
		for id := range strings.FieldsSeq(text) {
			ids = append(ids, number(id))
		}
		return ids
	}
	return number(text)
}

// number is a text as a number, if it is one.
func number(text string) any {
	if _, err := strconv.ParseInt(text, 10, 64); err == nil {
		return json.Number(text)
	}
	return text
}

// atLine says of the errors in a row where in the body they stand: /line/member.
func atLine(err error, line int, header []string) problem.Fields {
	var fields problem.Fields
	for _, f := range problem.From(err).Fields {
		where := fmt.Sprintf("line %d", line)
		name := strings.ReplaceAll(strings.TrimPrefix(f.Pointer, "/"), "/", ".")
		if column := slices.Index(header, name); column >= 0 {
			where += fmt.Sprintf(", column %d", column+1)
		}
		fields.Add(fmt.Sprintf("/%d%s", line, f.Pointer), f.Code, "%s (%s): %s", name, where, f.Message)
	}
	return fields
}
