package body

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/ironplane/ironplane/pkg/problem"
)

const (
	// maxRows is the maximum number of rows in a CSV body.
	maxRows = 10_000
	// maxInvalidCells is the maximum number of errors that are reported for a CSV body.
	maxInvalidCells = 100
)

// cancelCheckRows is the number of rows between checks whether the caller has left.
const cancelCheckRows = 100

// ParseCSV parses a body of rows. Each row creates a B. The first line names the members, with a dot in the names of nested
// ones. Columns with other members of known are ignored, so a list can be sent back. All rows are validated before an error is
// returned.
func ParseCSV[B any](ctx context.Context, text []byte, known *Known) (values []*B, lines []int, err error) {
	if !utf8.Valid(text) {
		return nil, nil, problem.New(problem.BadRequest, "The body is not valid UTF-8.")
	}
	r := csv.NewReader(bytes.NewReader(bytes.TrimPrefix(keepReturns(text), []byte("\ufeff"))))
	r.ReuseRecord = true
	header, err := r.Read()
	if err != nil {
		return nil, nil, csvError(err)
	}
	columns, err := planFor[B]().columns(header)
	if err != nil {
		return nil, nil, err
	}
	invalid := known.unknownColumns(header)
	for len(invalid) < maxInvalidCells {
		cells, err := r.Read()
		if errors.Is(err, io.EOF) {
			return values, lines, invalid.Err()
		}
		if err != nil {
			return nil, nil, csvError(err)
		}
		if len(values) == maxRows {
			return nil, nil, problem.New(problem.TooLarge, "The body has more than %d rows.", maxRows)
		}
		if len(values)%cancelCheckRows == 0 && ctx.Err() != nil {
			return nil, nil, fmt.Errorf("read a CSV body: %w", ctx.Err())
		}
		line, _ := r.FieldPos(0)
		var body Body[B]
		body.decode(rowObject(columns, cells))
		value, err := body.New()
		if err != nil {
			invalid = append(invalid, ErrorsAtLine(err, line, columns)...)
		}
		values, lines = append(values, value), append(lines, line)
	}
	return nil, nil, invalid.Err()
}

// keepReturns doubles the carriage return of a line end within quotes, because encoding/csv removes one.
func keepReturns(text []byte) []byte {
	parts := bytes.Split(text, []byte{'"'})
	for i := 1; i < len(parts); i += 2 {
		parts[i] = bytes.ReplaceAll(parts[i], []byte("\r\n"), []byte("\r\r\n"))
	}
	return bytes.Join(parts, []byte{'"'})
}

func csvError(err error) error {
	if errors.Is(err, io.EOF) {
		return problem.New(problem.BadRequest, "The body is empty. The first line must name the columns.")
	}
	if at, ok := errors.AsType[*csv.ParseError](err); ok {
		return problem.New(problem.BadRequest, "The body is not CSV: line %d, column %d: %s.", at.Line, at.Column, at.Err)
	}
	return problem.New(problem.BadRequest, "The body is not CSV.").Because(err)
}

// csvColumn is a column with a member of the body.
type csvColumn struct {
	number int // from 0
	name   string
	path   []string
	field  *Field
}

// columns returns the columns of a header that have members.
func (p *Plan) columns(header []string) ([]csvColumn, error) {
	var all []csvColumn
	seen := make(map[string]bool, len(header))
	for i, name := range header {
		if seen[name] {
			return nil, problem.New(problem.BadRequest, "The body has the column %.200s twice.", name)
		}
		seen[name] = true
		if path, f := p.columnOf(name); f != nil {
			all = append(all, csvColumn{i, strings.Clone(name), path, f})
		}
	}
	return all, nil
}

// unknownColumns returns the errors of columns without a member, at most maxInvalidCells.
func (k *Known) unknownColumns(header []string) (unknown problem.Fields) {
	for i, name := range header {
		if len(unknown) == maxInvalidCells {
			break
		}
		if name == "" { // spreadsheets add columns without a name
			continue
		}
		var sent any
		parts := strings.Split(name, ".")
		if len(parts) > maxDepth {
			parts = parts[:maxDepth]
		}
		for _, part := range slices.Backward(parts) {
			sent = object{{part, sent}}
		}
		for _, f := range k.findUnknown(&location{index: 1}, sent) {
			f.Message += fmt.Sprintf(" (line 1, column %d)", i+1)
			unknown = append(unknown, f)
		}
	}
	return unknown
}

// columnOf returns the member of a column, or nil.
func (p *Plan) columnOf(name string) (path []string, _ *Field) {
	path = strings.Split(strings.Clone(name), ".")
	at := NodeMember{Nested: p.Root}
	for i, part := range path {
		if at.Nested == nil { // a reference may be in a column group.id; group.name is ignored
			if f := p.Fields[at.Field]; (f.Kind == KindRef || f.Kind == KindRefOrName) && part == "id" && i == len(path)-1 {
				return path[:i], f
			}
			return nil, nil
		}
		var ok bool
		if at, ok = at.Nested.Members[part]; !ok {
			return nil, nil
		}
	}
	if at.Nested != nil {
		return nil, nil
	}
	return path, p.Fields[at.Field]
}

// rowObject returns a row as a JSON object. Empty cells are left out.
func rowObject(columns []csvColumn, cells []string) object {
	var o object
	for _, c := range columns {
		if cell := cells[c.number]; cell != "" {
			o = o.insert(c.path, strings.TrimPrefix(cell, "'"))
		}
	}
	return o
}

// insert sets the value at a path of names, and creates the objects on the way.
func (o object) insert(path []string, value any) object {
	if len(path) == 1 {
		return append(o, member{path[0], value})
	}
	for i := range o {
		if inner, ok := o[i].value.(object); ok && o[i].name == path[0] {
			o[i].value = inner.insert(path[1:], value)
			return o
		}
	}
	return append(o, member{path[0], object{}.insert(path[1:], value)})
}

// ErrorsAtLine returns the errors of a row with their place in the body: /line/member.
func ErrorsAtLine(err error, line int, columns []csvColumn) problem.Fields {
	var fields problem.Fields
	for _, f := range problem.From(err).Fields {
		where := fmt.Sprintf("line %d", line)
		name := strings.ReplaceAll(strings.TrimPrefix(f.Pointer, "/"), "/", ".")
		if i := slices.IndexFunc(columns, func(c csvColumn) bool { return c.name == name }); i >= 0 {
			where += fmt.Sprintf(", column %d", columns[i].number+1)
		}
		fields.Add(fmt.Sprintf("/%d%s", line, f.Pointer), f.Code, "%s (%s)", f.Message, where)
	}
	return fields
}
