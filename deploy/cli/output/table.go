package output

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"strings"
	"unicode"
	"unicode/utf8"
)

// member is a member of an object, in the API's order.
type member struct {
	name  string
	value any
}

// object keeps the order of its members, which a map would lose.
type object []member

// decode returns a JSON value: an object, []any, string, json.Number, bool or nil.
func decode(text json.RawMessage) any {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	value, err := decodeNext(d)
	if err != nil {
		return string(text) // no JSON
	}
	return value
}

func decodeNext(d *json.Decoder) (any, error) {
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch token {
	case json.Delim('{'):
		o := object{}
		for d.More() {
			name, err := d.Token()
			if err != nil {
				return nil, err
			}
			value, err := decodeNext(d)
			if err != nil {
				return nil, err
			}
			o = append(o, member{name.(string), value})
		}
		_, err = d.Token()
		return o, err
	case json.Delim('['):
		list := []any{}
		for d.More() {
			value, err := decodeNext(d)
			if err != nil {
				return nil, err
			}
			list = append(list, value)
		}
		_, err = d.Token()
		return list, err
	}
	return token, nil
}

// MarshalJSON writes the members in their order.
func (o object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		name, err := json.Marshal(m.name)
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(m.value)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, "%s:%s", name, value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

func (o object) get(name string) any {
	for _, m := range o {
		if m.name == name {
			return m.value
		}
	}
	return nil
}

// find returns a member by its name with dots, or nil.
func find(value any, name string) any {
	for part := range strings.SplitSeq(name, ".") {
		o, ok := value.(object)
		if !ok {
			return nil
		}
		value = o.get(part)
	}
	return value
}

// jqValue returns a value of the types that gojq takes.
func jqValue(value any) any {
	switch v := value.(type) {
	case object:
		m := make(map[string]any, len(v))
		for _, member := range v {
			m[member.name] = jqValue(member.value)
		}
		return m
	case []any:
		for i := range v {
			v[i] = jqValue(v[i])
		}
		return v
	case json.Number:
		if n, ok := new(big.Int).SetString(v.String(), 10); ok {
			if n.IsInt64() {
				return int(n.Int64())
			}
			return n
		}
		f, _ := v.Float64()
		return f
	}
	return value
}

// cell returns the text of a value in a table or in CSV. Of a reference it is the name, of a time ISO 8601.
func cell(value any) string {
	switch v := value.(type) {
	case nil:
		return ""
	case string:
		return v
	case json.Number:
		return v.String()
	case bool:
		return fmt.Sprint(v)
	case []any:
		parts := make([]string, len(v))
		for i, inner := range v {
			parts[i] = cell(inner)
		}
		return strings.Join(parts, ", ")
	case object:
		if at, ok := v.get("iso_8601").(string); ok {
			return at
		}
		if name, ok := v.get("name").(string); ok && v.get("id") != nil {
			return name
		}
	}
	text, _ := json.Marshal(value) // it was decoded from JSON
	return string(text)
}

// maxCellWidth keeps one long text from pushing the others off the screen.
const maxCellWidth = 60

// clean returns a text for one line of a terminal. A name must not move the cursor.
func clean(text string) string {
	text = strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return ' '
		}
		if !unicode.IsPrint(r) {
			return '�'
		}
		return r
	}, text)
	if utf8.RuneCountInString(text) > maxCellWidth {
		text = string([]rune(text)[:maxCellWidth-1]) + "…"
	}
	return text
}

// table prints a row for each item.
func (o Options) table(to io.Writer, items []json.RawMessage) error {
	columns := o.Columns
	values := make([]any, len(items))
	for i, item := range items {
		values[i] = decode(item)
	}
	if len(columns) == 0 {
		columns = used(o.Default, values)
	}
	if len(columns) == 0 {
		for _, item := range values {
			fmt.Fprintln(to, clean(cell(item)))
		}
		return nil
	}
	rows := [][]string{{}}
	for _, name := range columns {
		rows[0] = append(rows[0], strings.ToUpper(strings.NewReplacer("_", " ", ".", " ").Replace(name)))
	}
	for _, item := range values {
		row := make([]string, len(columns))
		for i, name := range columns {
			row[i] = clean(cell(find(item, name)))
		}
		rows = append(rows, row)
	}
	return align(to, rows)
}

// used returns the columns that at least one item has, or all of them for an empty list.
func used(columns []string, items []any) (kept []string) {
	for _, name := range columns {
		isUsed := len(items) == 0
		for _, item := range items {
			isUsed = isUsed || find(item, name) != nil
		}
		if isUsed {
			kept = append(kept, name)
		}
	}
	return kept
}

// align prints rows with columns of equal width.
func align(to io.Writer, rows [][]string) error {
	var widths []int
	for _, row := range rows {
		for i, text := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(text))
		}
	}
	for _, row := range rows {
		var line strings.Builder
		for i, text := range row {
			fmt.Fprintf(&line, "%-*s  ", widths[i], text)
		}
		if _, err := fmt.Fprintln(to, strings.TrimRight(line.String(), " ")); err != nil {
			return err
		}
	}
	return nil
}

// card prints an item: a line for each member, and a table for each list of objects.
func (o Options) card(to io.Writer, text json.RawMessage) error {
	value := decode(text)
	item, ok := value.(object)
	if !ok {
		_, err := fmt.Fprintln(to, cell(value))
		return err
	}
	if message, ok := item.get("message").(string); ok && len(item) == 1 {
		_, err := fmt.Fprintln(to, message)
		return err
	}
	var rows [][]string
	var lists []member
	for _, m := range flatten("", item) {
		if list, ok := m.value.([]any); ok && len(list) > 0 && isObject(list[0]) && len(o.Columns) == 0 {
			lists = append(lists, m)
			continue
		}
		rows = append(rows, []string{m.name, oneLine(cell(m.value))})
	}
	if len(o.Columns) > 0 {
		rows = nil
		for _, name := range o.Columns {
			rows = append(rows, []string{name, oneLine(cell(find(item, name)))})
		}
	}
	if err := align(to, rows); err != nil {
		return err
	}
	for _, m := range lists {
		fmt.Fprintf(to, "\n%s\n", m.name)
		items := m.value.([]any)
		inner := Options{Format: "table"}
		for _, column := range items[0].(object) {
			inner.Columns = append(inner.Columns, column.name)
		}
		texts := make([]json.RawMessage, len(items))
		for i := range items {
			texts[i], _ = json.Marshal(items[i])
		}
		if err := inner.table(to, texts); err != nil {
			return err
		}
	}
	return nil
}

// oneLine is clean for a text that may be longer than a column, such as a key.
func oneLine(text string) string {
	if strings.Contains(text, "\n") {
		text = strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", " ⏎ ")
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '�'
		}
		return r
	}, text)
}

func isObject(value any) bool {
	_, ok := value.(object)
	return ok
}

// flatten returns the leaves of an object, with dots in the names of nested ones. References and times are leaves.
func flatten(prefix string, o object) (all []member) {
	for _, m := range o {
		inner, ok := m.value.(object)
		if ok && inner.get("iso_8601") == nil && (inner.get("name") == nil || inner.get("id") == nil || len(inner) > 2) {
			all = append(all, flatten(prefix+m.name+".", inner)...)
			continue
		}
		if inner.get("id") != nil && inner.get("name") != nil {
			m.value = fmt.Sprintf("%s (%s)", cell(m.value), cell(inner.get("id")))
		}
		all = append(all, member{prefix + m.name, m.value})
	}
	return all
}

// rows prints items as CSV. Without columns they are the members that any item has.
func (o Options) rows(to io.Writer, items []json.RawMessage) error {
	w := csv.NewWriter(to)
	columns := o.Columns
	values := make([]any, len(items))
	seen := map[string]bool{}
	for i, item := range items {
		values[i] = decode(item)
		inner, _ := values[i].(object)
		for _, m := range flatten("", inner) {
			if !seen[m.name] && len(o.Columns) == 0 {
				columns = append(columns, m.name)
			}
			seen[m.name] = true
		}
	}
	if err := w.Write(columns); err != nil {
		return err
	}
	for _, value := range values {
		row := make([]string, len(columns))
		for i, name := range columns {
			row[i] = cell(find(value, name))
		}
		if err := w.Write(row); err != nil {
			return err
		}
	}
	w.Flush()
	return w.Error()
}
