package source

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// customerColumns are the columns of the file of --clients, in any order.
var customerColumns = []string{"tenant", "email", "first", "last"}

// ReadCustomers reads the file of --clients, and reports all its invalid lines.
func (p *Plan) ReadCustomers(from io.Reader) error {
	rows := csv.NewReader(from)
	header, err := rows.Read()
	if err != nil {
		return fmt.Errorf("read the first line, which must name the columns %s: %w", strings.Join(customerColumns, ", "), err)
	}
	header[0] = strings.TrimPrefix(header[0], "\ufeff")
	var at [4]int
	for i, name := range customerColumns {
		if at[i] = slices.Index(header, name); at[i] < 0 {
			return fmt.Errorf("the first line has no column %s", name)
		}
	}
	byName := map[string][]int64{}
	for pk, name := range Sorted(p.Tenants) {
		byName[name] = append(byName[name], pk)
	}
	var errs errorList
	seen := map[string]bool{}
	for {
		row, err := rows.Read()
		if errors.Is(err, io.EOF) {
			return errs.err()
		}
		if err != nil {
			return err
		}
		line, _ := rows.FieldPos(0)
		cell := func(i int) string { return strings.TrimSpace(row[at[i]]) }
		name, c := cell(0), Customer{cell(1), cell(2), cell(3)}
		switch pks := byName[name]; {
		case c.Email == "" || c.First == "" || c.Last == "":
			errs.add("line %d: %s has no email, first or last", line, name)
		case seen[name]:
			errs.add("line %d: a second line for %s", line, name)
		case len(pks) == 0:
			errs.add("line %d: the export has no tenant %q", line, name)
		case len(pks) > 1:
			errs.add("line %d: the export has %d tenants %q; rename all but one in %s", line, len(pks), name, p.System)
		default:
			p.Customers[pks[0]] = c
		}
		seen[name] = true
	}
}
