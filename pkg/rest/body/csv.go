package body

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/ironplane/ironplane/pkg/problem"
)

// Sheet is a CSV body. Each row creates a B, or edits the one whose id it has. The first line names the members, with a dot in the
// names of nested ones.
type Sheet[B any] struct {
	Rows    []*Row[B]
	Invalid problem.Fields // unknown columns and the like
	columns []csvColumn
	named   map[string]map[string][]int64
}

// Row is a row of a Sheet.
type Row[B any] struct {
	Body[B]
	Line    int
	ID      int64          // of the item to edit; 0: the row creates one
	BadID   bool           // the row is not to be read further
	Invalid problem.Fields // cells that the Body does not know of

	cells []string
}

// SheetOptions say which columns a Sheet may have.
type SheetOptions struct {
	Known   *Known   // the members of the body and of responses; nil: all
	Shown   []string // the columns of the list
	Without []string // members that rows cannot set; paths with dots
	Named   []string // members whose items may be named instead of their ids; paths with dots
}

// csvColumn is a column that a row's item gets a value from.
type csvColumn struct {
	number int // from 0
	name   string
	path   []string
	isID   bool   // it has the ids of the rows' own items
	refers string // the member with a reference that the column is about; empty: none that can be named
	isName bool   // it has names, which count where no other column has an id
}

// ParseSheet parses a CSV body. The rows have no bodies before Decode.
func ParseSheet[B any](ctx context.Context, text []byte, options SheetOptions) (*Sheet[B], error) {
	header, rows, err := readSheet(ctx, text)
	if err != nil {
		return nil, err
	}
	s := &Sheet[B]{}
	if s.columns, s.Invalid, err = planFor[B]().columns(header, options); err != nil {
		return nil, err
	}
	lines := map[int64]int{}
	for _, line := range rows {
		row := &Row[B]{Line: line.number, cells: line.cells}
		s.Rows = append(s.Rows, row)
		for _, c := range s.columns {
			if text := row.text(c); c.isID && text != "" {
				row.readID(c, text, lines)
			}
		}
	}
	return s, nil
}

// columns returns the columns of a header that have members. Other columns of the list are left out, so that it can be sent back.
func (p *Plan) columns(header []string, options SheetOptions) (all []csvColumn, invalid problem.Fields, err error) {
	seen := make(map[string]bool, len(header))
	for i, name := range header {
		if name == "" { // spreadsheets add columns without a name
			continue
		}
		if seen[name] {
			return nil, nil, problem.New(problem.BadRequest, "The body has the column %.200s twice.", name)
		}
		seen[name] = true
		c, ok := p.columnOf(strings.Clone(name), options.Named)
		unknown := options.Known.unknownColumn(name)
		switch {
		case len(invalid) >= maxUnknown:
			return nil, nil, invalid.Err()
		case slices.ContainsFunc(options.Without, func(member string) bool { return name == member || strings.HasPrefix(name, member+".") }):
			invalid = append(invalid, atColumn(i, pointerOf(strings.Split(name, ".")), "unavailable", "cannot be set by CSV"))
		case ok:
			c.number, c.name = i, strings.Clone(name)
			all = append(all, c)
		case unknown != nil:
			invalid = append(invalid, atColumn(i, unknown.Pointer, unknown.Code, unknown.Message))
		case options.Known != nil && strings.Contains(name, ".") && !slices.Contains(options.Shown, name): // within a reference
			message := (&Known{names: options.Shown}).describeUnknown(name)
			invalid = append(invalid, atColumn(i, pointerOf(strings.Split(name, ".")), "unknown", message))
		}
	}
	return all, invalid, nil
}

// atColumn returns an error about a column, which the first line names.
func atColumn(number int, pointer, code, message string) problem.Field {
	return atCell(1, number, problem.Field{Pointer: pointer, Code: code, Message: message})
}

// unknownColumn returns the error of a column without a member, or nil.
func (k *Known) unknownColumn(name string) *problem.Field {
	var sent any
	parts := strings.SplitN(name, ".", maxDepth+1)
	for _, part := range slices.Backward(parts[:min(len(parts), maxDepth)]) {
		sent = object{{part, sent}}
	}
	if unknown := k.findUnknown(nil, sent); len(unknown) > 0 {
		return &unknown[0]
	}
	return nil
}

// columnOf returns the column of a name. ok is false if rows have no use for it.
func (p *Plan) columnOf(name string, named []string) (c csvColumn, ok bool) {
	if name == "id" {
		return csvColumn{isID: true}, true
	}
	base, isName := strings.CutSuffix(name, ".name")
	if isName && slices.Contains(named, base) {
		c.refers, c.isName, name = base, true, base
	} else if base = strings.TrimSuffix(name, ".id"); slices.Contains(named, base) {
		c.refers = base
	}
	c.path = strings.Split(name, ".")
	at := NodeMember{Nested: p.Root}
	for i, part := range c.path {
		if at.Nested == nil { // a reference may be in a column group.id; group.name is ignored
			f := p.Fields[at.Field]
			c.path = c.path[:i]
			return c, (f.Kind == KindRef || f.Kind == KindRefOrName) && part == "id" && name == strings.Join(c.path, ".")+".id"
		}
		if at, ok = at.Nested.Members[part]; !ok {
			return c, false
		}
	}
	if at.Nested != nil { // an object with an id stands for the id
		if at, ok = at.Nested.Members["id"]; !ok || at.Nested != nil {
			return c, false
		}
		c.path = append(c.path, "id")
	}
	return c, true
}

// Names returns the names of items whose ids SetNames is to tell, by the member that refers to them.
func (s *Sheet[B]) Names() map[string][]string {
	needed := map[string]map[string]bool{}
	for _, row := range s.Rows {
		for _, c := range s.columns {
			if c.isName && row.ID == 0 && s.hasID(row, c, nil) {
				continue
			}
			for _, name := range row.namesIn(c) {
				if needed[c.refers] == nil {
					needed[c.refers] = map[string]bool{}
				}
				needed[c.refers][name] = true
			}
		}
	}
	names := map[string][]string{}
	for member, all := range needed {
		names[member] = slices.Sorted(maps.Keys(all))
	}
	return names
}

// SetNames sets the ids of the items with the names that Names has returned.
func (s *Sheet[B]) SetNames(ids map[string]map[string][]int64) { s.named = ids }

// namesIn returns the names in a cell. Digits are ids, except in a column of names.
func (r *Row[B]) namesIn(c csvColumn) []string {
	text := r.text(c)
	switch {
	case c.refers == "", text == "", !c.isName && isIDs(text):
		return nil
	case planFor[B]().isList(c.path):
		var names []string
		for name := range strings.SplitSeq(text, ",") {
			if name = strings.TrimSpace(name); name != "" {
				names = append(names, name)
			}
		}
		return names
	default:
		return []string{strings.TrimSpace(text)}
	}
}

// isIDs reports whether a cell has ids.
func isIDs(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsDigit(r) && r != ',' && !unicode.IsSpace(r) })
}

// isList reports whether the member at a path refers to several items.
func (p *Plan) isList(path []string) bool {
	i := p.fieldAt(pointerOf(path))
	return i >= 0 && p.Fields[i].Kind == KindRefs
}

// text returns a cell without the ' that lists put before some texts.
func (r *Row[B]) text(c csvColumn) string { return strings.TrimPrefix(r.cells[c.number], "'") }

// isShown reports whether a cell is as the list shows it.
func (r *Row[B]) isShown(c csvColumn, shown map[string]string) bool {
	cell, exists := shown[c.name]
	return exists && cell == r.cells[c.number]
}

// hasID reports whether the id in another column counts, and not the name in column c. The id does, unless it is empty, or the
// name alone was edited.
func (s *Sheet[B]) hasID(row *Row[B], c csvColumn, shown map[string]string) bool {
	return slices.ContainsFunc(s.columns, func(id csvColumn) bool {
		return id.refers == c.refers && !id.isName && row.text(id) != "" && (!row.isShown(id, shown) || row.isShown(c, shown))
	})
}

// readID reads the id of a row's item. lines has the lines of the ids so far.
func (r *Row[B]) readID(c csvColumn, text string, lines map[int64]int) {
	id, code, _ := Integer(text)
	if code != "" || id < 1 {
		r.BadID = true
		r.refuse(c, "type", "must be the id of an existing item, or empty to create one")
		return
	}
	if r.ID = id; lines[id] > 0 {
		r.BadID = true
		r.refuse(c, "disagrees", fmt.Sprintf("is already in line %d", lines[id]))
		return
	}
	lines[id] = r.Line
}

func (r *Row[B]) refuse(c csvColumn, code, message string) {
	path := c.path
	if c.isID {
		path = []string{c.name}
	}
	f := atCell(r.Line, c.number, problem.Field{Pointer: pointerOf(path), Code: code, Message: message})
	AddOnce(&r.Invalid, f)
}

// Decode fills the body of a row. shown has the cells of the list for the item that the row edits; nil if it creates one. A cell
// that is as the list shows it counts as not sent, and so does an empty cell of a new item. Any other empty cell is read like the
// empty text of a form. sent is false if the row says nothing.
func (s *Sheet[B]) Decode(row *Row[B], shown map[string]string) (sent bool) {
	var o object
	for _, c := range s.columns {
		if value, ok := s.value(row, c, shown); ok {
			o = o.insert(c.path, value)
		}
	}
	row.decode(o)
	row.dropCleared()
	return len(o) > 0
}

// dropCleared drops empty cells of members that another column sets, as the columns name and nickname of an item without a
// nickname.
func (b *Body[B]) dropCleared() {
	isSet := map[int]bool{}
	for _, s := range b.spellings {
		for _, p := range s.parts {
			isSet[p.field] = isSet[p.field] || !s.null
		}
	}
	b.spellings = slices.DeleteFunc(b.spellings, func(s spelling) bool {
		return s.null && slices.ContainsFunc(s.parts, func(p part) bool { return isSet[p.field] })
	})
}

// value returns what a cell sends for its member. sent is false if that is nothing.
func (s *Sheet[B]) value(row *Row[B], c csvColumn, shown map[string]string) (value any, sent bool) {
	text, names := row.text(c), row.namesIn(c)
	switch {
	case c.isID, row.isShown(c, shown), text == "" && shown == nil, c.isName && (text == "" || s.hasID(row, c, shown)):
		return nil, false
	case names == nil:
		return text, true
	}
	var ids array
	for _, name := range names {
		switch matches := s.named[c.refers][name]; len(matches) {
		case 0:
			row.refuse(c, "not_found", fmt.Sprintf("does not exist: nothing has the name %.200q", name))
			return nil, false
		case 1:
			ids = append(ids, json.Number(strconv.FormatInt(matches[0], 10)))
		default:
			row.refuse(c, "ambiguous", fmt.Sprintf("is the name of %d items: send the id", len(matches)))
			return nil, false
		}
	}
	if planFor[B]().isList(c.path) {
		return ids, true
	}
	return ids[0], true
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

func pointerOf(path []string) string { return "/" + strings.Join(path, "/") }

// AtLine returns the errors of a row with their places in the body: /line/member, and the numbers of line and column.
func (s *Sheet[B]) AtLine(row *Row[B], errs []problem.Field) problem.Fields {
	var fields problem.Fields
	for _, f := range errs {
		at := slices.IndexFunc(s.columns, func(c csvColumn) bool { return !c.isID && pointerOf(c.path) == f.Pointer })
		if at >= 0 {
			at = s.columns[at].number
		}
		fields = append(fields, atCell(row.Line, at, f))
	}
	return fields
}

// atCell returns an error with its place in the body. column is from 0, or negative for an error about the row.
func atCell(line, column int, f problem.Field) problem.Field {
	where := fmt.Sprintf("line %d", line)
	if f.Line = line; column >= 0 {
		f.Column = column + 1
		where += fmt.Sprintf(", column %d", f.Column)
	}
	f.Pointer, f.Message = fmt.Sprintf("/%d%s", line, f.Pointer), fmt.Sprintf("%s (%s)", f.Message, where)
	return f
}

// HasColumn reports whether rows of B can have a column with this name.
func HasColumn[B any](name string) bool {
	_, ok := planFor[B]().columnOf(name, nil)
	return ok || planFor[B]().hasObject(name)
}

// hasObject reports whether the body has an object at a path with dots.
func (p *Plan) hasObject(name string) bool {
	at := p.Root
	for part := range strings.SplitSeq(name, ".") {
		if at = at.Members[part].Nested; at == nil {
			return false
		}
	}
	return true
}
