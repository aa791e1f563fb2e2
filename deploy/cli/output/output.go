// Package output prints answers of the API: as a table for people, and as JSON, YAML or CSV for programs.
package output

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/itchyny/gojq"
	"go.yaml.in/yaml/v3"
)

// Formats are the values of -o.
var Formats = []string{"table", "json", "yaml", "csv"}

// Options say how an answer is printed.
type Options struct {
	Format  string   // one of Formats
	Columns []string // the members to print, with dots in the names of nested ones; nil: Default
	Default []string // for tables of items; nil: all
	Query   string   // a program for jq, or empty
}

// Check returns an error if the options cannot be used.
func (o Options) Check() error {
	if !slices.Contains(Formats, o.Format) {
		return fmt.Errorf("-o must be one of %s, not %q", strings.Join(Formats, ", "), o.Format)
	}
	if o.Query == "" {
		return nil
	}
	if len(o.Columns) > 0 || o.Format == "csv" || o.Format == "yaml" {
		return errors.New("--jq prints JSON and cannot be used with --columns, -o yaml or -o csv")
	}
	if _, err := compile(o.Query); err != nil {
		return fmt.Errorf("--jq: %w", err)
	}
	return nil
}

// Item prints one answer: an object, or any other JSON value.
func (o Options) Item(to io.Writer, text json.RawMessage) error {
	switch {
	case o.Query != "":
		return o.jq(to, text)
	case o.Format == "json":
		return printJSON(to, o.pick(text))
	case o.Format == "yaml":
		return printYAML(to, o.pick(text))
	case o.Format == "csv":
		return o.rows(to, []json.RawMessage{text})
	default:
		return o.card(to, text)
	}
}

// Items prints a list.
func (o Options) Items(to io.Writer, items []json.RawMessage) error {
	switch {
	case o.Query != "":
		return o.jq(to, join(items))
	case o.Format == "csv":
		return o.rows(to, items)
	case o.Format == "json" || o.Format == "yaml":
		picked := make([]json.RawMessage, len(items))
		for i, item := range items {
			picked[i] = o.pick(item)
		}
		if o.Format == "json" {
			return printJSON(to, join(picked))
		}
		return printYAML(to, join(picked))
	default:
		return o.table(to, items)
	}
}

// CSV copies at most limit rows of the API's own CSV, with the chosen columns. A limit of 0 copies all.
func (o Options) CSV(to io.Writer, from io.Reader, limit int) error {
	r, w := csv.NewReader(from), csv.NewWriter(to)
	header, err := r.Read()
	if err != nil {
		return fmt.Errorf("read the response: %w", err)
	}
	chosen := make([]int, 0, len(header))
	for _, name := range o.Columns {
		i := slices.Index(header, name)
		if i < 0 {
			return fmt.Errorf("--columns: the list has no column %q. Its columns: %s", name, strings.Join(header, ", "))
		}
		chosen = append(chosen, i)
	}
	for n := 0; ; n++ {
		row := header
		if len(chosen) > 0 {
			row = make([]string, len(chosen))
			for i, from := range chosen {
				row[i] = header[from]
			}
		}
		if err := w.Write(row); err != nil {
			return err
		}
		if limit > 0 && n == limit {
			break
		}
		header, err = r.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("read the response: %w", err)
		}
	}
	w.Flush()
	return w.Error()
}

// pick returns an object with the chosen columns alone.
func (o Options) pick(text json.RawMessage) json.RawMessage {
	if len(o.Columns) == 0 {
		return text
	}
	value := decode(text)
	var b bytes.Buffer
	b.WriteByte('{')
	for i, name := range o.Columns {
		if i > 0 {
			b.WriteByte(',')
		}
		member, _ := json.Marshal(find(value, name)) // it was decoded from JSON
		key, _ := json.Marshal(name)
		fmt.Fprintf(&b, "%s:%s", key, member)
	}
	b.WriteByte('}')
	return b.Bytes()
}

func join(items []json.RawMessage) json.RawMessage {
	parts := make([][]byte, len(items))
	for i, item := range items {
		parts[i] = item
	}
	return slices.Concat([]byte("["), bytes.Join(parts, []byte(",")), []byte("]"))
}

func printJSON(to io.Writer, text json.RawMessage) error {
	var b bytes.Buffer
	if err := json.Indent(&b, text, "", "  "); err != nil {
		return err
	}
	b.WriteByte('\n')
	_, err := b.WriteTo(to)
	return err
}

// printYAML prints JSON as YAML, with members in the same order.
func printYAML(to io.Writer, text json.RawMessage) error {
	var node yaml.Node
	if err := yaml.Unmarshal(text, &node); err != nil { // JSON is YAML
		return err
	}
	blockStyle(&node)
	e := yaml.NewEncoder(to)
	e.SetIndent(2)
	return errors.Join(e.Encode(&node), e.Close())
}

// blockStyle drops the quotes and braces of JSON. The encoder quotes what needs it.
func blockStyle(node *yaml.Node) {
	node.Style = 0
	for _, inner := range node.Content {
		blockStyle(inner)
	}
}

func compile(program string) (*gojq.Code, error) {
	query, err := gojq.Parse(program)
	if err != nil {
		return nil, err
	}
	return gojq.Compile(query)
}

// jq prints what a program makes of an answer: texts as they are, other values as JSON, one a line.
func (o Options) jq(to io.Writer, text json.RawMessage) error {
	code, err := compile(o.Query)
	if err != nil {
		return err
	}
	results := code.Run(jqValue(decode(text)))
	for {
		value, ok := results.Next()
		if !ok {
			return nil
		}
		switch v := value.(type) {
		case error:
			if halt, ok := errors.AsType[*gojq.HaltError](v); ok && halt.Value() == nil {
				return nil
			}
			return fmt.Errorf("--jq: %w", v)
		case string:
			_, err = fmt.Fprintln(to, v)
		default:
			var encoded []byte
			if encoded, err = gojq.Marshal(v); err == nil {
				_, err = fmt.Fprintln(to, string(encoded))
			}
		}
		if err != nil {
			return err
		}
	}
}

// Line prints an item as JSON on one line, or what the program for jq makes of it.
func (o Options) Line(to io.Writer, text json.RawMessage) error {
	if o.Query != "" {
		return o.jq(to, text)
	}
	var b bytes.Buffer
	if err := json.Compact(&b, o.pick(text)); err != nil {
		return err
	}
	b.WriteByte('\n')
	_, err := b.WriteTo(to)
	return err
}

// Row prints an item as a row of a table without a header.
func (o Options) Row(to io.Writer, text json.RawMessage) error {
	columns := o.Columns
	if len(columns) == 0 {
		columns = o.Default
	}
	value := decode(text)
	parts := make([]string, len(columns))
	for i, name := range columns {
		parts[i] = clean(cell(find(value, name)))
	}
	_, err := fmt.Fprintln(to, strings.Join(parts, "  "))
	return err
}
