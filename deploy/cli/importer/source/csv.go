package source

import (
	"bufio"
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"go4.org/netipx"
)

var csvModels = map[Kind]string{
	Range: "line", Address: "line", Prefix: "line", Site: "group", VRF: "vrf", VLANKind: "vlan", Tenant: "tenant", Device: "device",
}

// csvColumns are the known columns of a CSV file, each with other names for it.
var csvColumns = map[string][]string{
	"address": {"full_ip", "ip", "ip_address", "prefix", "subnet"},
	"group":   {"site", "section"},
	"status":  {"state"},
	"note":    {"description", "comment"},
	"name":    {"nickname", "hostname", "dns", "dns_name"},
	"device":  nil,
	"tenant":  {"customer"},
	"vlan":    nil,
	"gateway": nil,
	"mask":    {"subnet_mask"},
	"role":    nil,
	"tag":     {"tags"},
}

// csvAvailable are the texts of the column status that mean free. Any other text, and none, means in use.
var csvAvailable = []string{"available", "free"}

// csvReader reads the rows of a CSV file into a plan.
type csvReader struct {
	plan *Plan
	at   map[string]int // the position of each column
	row  []string
	line int64
	pks  map[string]int64 // of groups, tenants and devices, by column and name
	errs errorList
}

// ReadCSV reads a CSV file with a row for each address, range and prefix. The first line names the columns. It reports
// each line that it cannot read.
func ReadCSV(from io.Reader) (*Plan, error) {
	text := bufio.NewReader(from)
	rows := csv.NewReader(text)
	if start, _ := text.Peek(4096); isSemicolonCSV(string(start)) {
		rows.Comma = ';'
	}
	header, err := rows.Read()
	if err != nil {
		return nil, fmt.Errorf("read the first line, which must name the columns: %w", err)
	}
	r := &csvReader{plan: newPlan("CSV", csvModels), at: map[string]int{}, pks: map[string]int64{}}
	if err := r.readHeader(header); err != nil {
		return nil, err
	}
	for {
		r.row, err = rows.Read()
		if errors.Is(err, io.EOF) {
			r.plan.finish()
			return r.plan, r.errs.err()
		}
		if err != nil {
			return nil, err
		}
		line, _ := rows.FieldPos(0)
		r.line = int64(line)
		if err := r.add(); err != nil {
			r.errs.add("line %d: %w", line, err)
		}
	}
}

// isSemicolonCSV reports whether the first line has more semicolons than commas.
func isSemicolonCSV(text string) bool {
	first, _, _ := strings.Cut(text, "\n")
	return strings.Count(first, ";") > strings.Count(first, ",")
}

func (r *csvReader) readHeader(header []string) error {
	for i, cell := range header {
		name := strings.ToLower(strings.TrimSpace(strings.TrimPrefix(cell, "\ufeff")))
		for column, others := range csvColumns {
			if name != column && !slices.Contains(others, name) {
				continue
			}
			if _, twice := r.at[column]; twice {
				return fmt.Errorf("the first line has two columns for %s", column)
			}
			r.at[column] = i
		}
	}
	for _, column := range []string{"address", "status"} {
		if _, ok := r.at[column]; !ok {
			return fmt.Errorf("the first line has no column %s", column)
		}
	}
	return nil
}

func (r *csvReader) cell(column string) string {
	i, ok := r.at[column]
	if !ok {
		return ""
	}
	return strings.TrimSpace(r.row[i])
}

// add adds the space of a row.
func (r *csvReader) add() error {
	s := Space{
		Source: Source{csvModels[Address], r.line}, Status: strings.ToLower(r.cell("status")),
		Nickname: r.cell("name"), Details: []string{r.cell("note")},
		Site: r.reference("group", r.plan.Sites), Tenant: r.reference("tenant", r.plan.Tenants),
		Roles: []string{r.cell("role")}, Tags: strings.FieldsFunc(r.cell("tag"), func(c rune) bool { return c == ',' || c == ' ' }),
	}
	s.IsAvailable = slices.Contains(csvAvailable, s.Status)
	if device := r.reference("device", r.plan.Devices); device != 0 {
		s.Devices = []int64{device}
	}
	if err := r.setSpan(&s); err != nil {
		return err
	}
	if text := r.cell("vlan"); text != "" {
		id, err := strconv.ParseInt(text, 10, 32)
		if err != nil || id < 1 || id > 4094 {
			return fmt.Errorf("vlan is %q, but must be a number from 1 to 4094", text)
		}
		s.VLAN = id
		r.plan.VLANs[id] = VLAN{ID: int32(id)}
	}
	if text := r.cell("gateway"); text != "" {
		gateway, err := netip.ParseAddr(text)
		if err != nil {
			return fmt.Errorf("gateway is %q, but must be an address", text)
		}
		s.Gateway = gateway
	}
	switch s.Kind {
	case Address:
		r.plan.Addresses = append(r.plan.Addresses, s)
	case Range:
		r.plan.Ranges = append(r.plan.Ranges, s)
	default:
		r.plan.Prefixes = append(r.plan.Prefixes, s)
	}
	return nil
}

// setSpan reads the address: a single one, with or without the length of its subnet, a range, or a prefix.
func (r *csvReader) setSpan(s *Space) error {
	text := r.cell("address")
	first, last, isRange := strings.Cut(text, "-")
	prefix, prefixErr := netip.ParsePrefix(text)
	address, addressErr := netip.ParseAddr(text)
	switch {
	case isRange:
		from, err := netip.ParseAddr(strings.TrimSpace(first))
		to, err2 := netip.ParseAddr(strings.TrimSpace(last))
		s.Kind, s.Span, s.Bits = Range, netipx.IPRangeFrom(from, to), from.BitLen()
		if err := cmp.Or(err, err2); err != nil || !s.Span.IsValid() {
			return fmt.Errorf("address is %q, which is no range", text)
		}
	case addressErr == nil:
		s.Kind, s.Span, s.Bits = Address, SingleAddress(address), address.BitLen()
	case prefixErr == nil && prefix == prefix.Masked() && !prefix.IsSingleIP():
		s.Kind, s.Span, s.Bits = Prefix, netipx.RangeOfPrefix(prefix), prefix.Bits()
	case prefixErr == nil: // an address with the length of its subnet
		s.Kind, s.Span, s.Bits = Address, SingleAddress(prefix.Addr()), prefix.Bits()
	default:
		return fmt.Errorf("address is %q, which is no address, range or prefix", text)
	}
	if mask := r.cell("mask"); mask != "" && s.Kind != Prefix && s.Span.From().Is4() {
		parsed, err := netip.ParseAddr(mask)
		if err != nil || !parsed.Is4() {
			return fmt.Errorf("mask is %q, but must be a mask such as 255.255.255.0", mask)
		}
		bits, ok := maskLength(parsed)
		if !ok {
			return fmt.Errorf("mask is %q, but must be a mask such as 255.255.255.0", mask)
		}
		s.Bits = bits
	}
	return nil
}

// maskLength returns the length of the prefix that a mask stands for.
func maskLength(mask netip.Addr) (int, bool) {
	for bits := range 33 {
		if p, _ := netip.AddrFrom4([4]byte{255, 255, 255, 255}).Prefix(bits); p.Addr() == mask {
			return bits, true
		}
	}
	return 0, false
}

// reference returns the key of a name in a column, and adds the name if it is new.
func (r *csvReader) reference(column string, names map[int64]string) int64 {
	name := r.cell(column)
	if name == "" {
		return 0
	}
	key := column + " " + name
	if r.pks[key] == 0 {
		r.pks[key] = int64(len(names) + 1)
		names[r.pks[key]] = name
	}
	return r.pks[key]
}
