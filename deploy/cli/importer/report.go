package importer

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/ironplane/ironplane/deploy/cli/importer/source"
)

// maxExamples is the number of records that are printed for each reason without --verbose.
const maxExamples = 3

// The columns of the report: what is planned, and what became of it. The latter are in the order of the states.
var (
	statusColumns = []string{"ASSIGNED", "RESERVED", "AVAILABLE"}
	stateColumns  = []string{"NOT TRIED", "CREATED", "CHANGED", "UNCHANGED", "DIFFERENT", "REFUSED", "UNKNOWN"}
)

// String returns a line that describes the entity.
func (e *Entity) String() string {
	text := fmt.Sprintf("%s: %s %s", e.Group, e.Address(), e.Status)
	if mask := e.subnetMask(); mask != "" {
		text += " mask " + mask
	}
	if e.Gateway.IsValid() {
		text += " gateway " + e.Gateway.String()
	}
	if e.VLAN != 0 {
		text += fmt.Sprintf(" vlan %d", e.VLAN)
	}
	if e.Nickname != "" {
		text += fmt.Sprintf(" %q", e.Nickname)
	}
	if e.Owner != (source.Customer{}) {
		text += " owner " + e.Owner.Email
	}
	if e.Note != "" {
		text += fmt.Sprintf(" note %q", e.Note)
	}
	return fmt.Sprintf("%s (%s)", text, e.Source)
}

// printReport prints what became of the plan: the entities of each group by status and outcome, the records that become no
// entity, and all others.
func printReport(w io.Writer, t *transfer, verbose bool) {
	printTable(w, t)
	if t.clients > 0 {
		fmt.Fprintf(w, "Clients created: %d\n", t.clients)
	}
	for i, r := range t.groups {
		if r.state == refused {
			fmt.Fprintf(w, "The API refused group %s: %s\n", t.plan.Groups[i], r.detail)
		}
	}
	skipped := slices.Clone(t.plan.Skipped)
	for i, r := range t.entities {
		e := &t.plan.Entities[i]
		switch {
		case r.state == refused:
			skipped = append(skipped, Remark{e.Source, e.Group + ": " + e.Address(), refusalReason(r.code), r.detail})
		case r.state == unknown:
			fmt.Fprintf(w, "Unknown whether it was created: %s\n", e)
		case r.state == different && verbose:
			fmt.Fprintf(w, "Different: %s: %s\n", e, r.detail)
		case r.state == changed && verbose:
			fmt.Fprintf(w, "Changed: %s: %s\n", e, r.detail)
		case r.state == created && verbose:
			fmt.Fprintf(w, "Created: %s\n", e)
		}
	}
	printRemarks(w, "Skipped", skipped, verbose)
	printRemarks(w, "Other records", t.plan.Others, verbose)
}

func refusalReason(code string) string {
	if code == "overlaps" {
		return "overlaps with an existing entity"
	}
	return "refused by the API with the code " + code
}

// printTable prints the number of entities for each group, status and outcome. It leaves out outcomes that no entity has.
func printTable(w io.Writer, t *transfer) {
	columns := slices.Concat(statusColumns, stateColumns)
	rows := map[string][]int{}
	total := make([]int, len(columns))
	for _, group := range t.plan.Groups {
		rows[group] = make([]int, len(columns))
	}
	for i, e := range t.plan.Entities {
		for _, column := range []int{rank(e.Status), len(statusColumns) + int(t.entities[i].state)} {
			rows[e.Group][column]++
			total[column]++
		}
	}
	isShown := func(column int) bool { return column < len(statusColumns) || total[column] > 0 }
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(label string, cell func(column int) any) {
		fmt.Fprint(table, label)
		for column := range columns {
			if isShown(column) {
				fmt.Fprintf(table, "\t%v", cell(column))
			}
		}
		fmt.Fprintln(table)
	}
	line("GROUP", func(column int) any { return columns[column] })
	for i, r := range t.groups {
		group := t.plan.Groups[i]
		label := fmt.Sprintf("%s (%s)", group, strings.ToLower(stateColumns[r.state]))
		line(label, func(column int) any { return rows[group][column] })
	}
	label := fmt.Sprintf("%d groups, %d entities", len(t.plan.Groups), len(t.plan.Entities))
	line(label, func(column int) any { return total[column] })
	table.Flush()
}

// printRemarks prints records by what becomes of them.
func printRemarks(w io.Writer, title string, items []Remark, verbose bool) {
	byReason := map[string][]Remark{}
	var reasons []string
	for _, item := range items {
		if byReason[item.Reason] == nil {
			reasons = append(reasons, item.Reason)
		}
		byReason[item.Reason] = append(byReason[item.Reason], item)
	}
	fmt.Fprintf(w, "%s: %d\n", title, len(items))
	for _, reason := range reasons {
		of := byReason[reason]
		fmt.Fprintf(w, "%5d  %s\n", len(of), reason)
		for i, item := range of {
			if i == maxExamples && !verbose {
				fmt.Fprintf(w, "         and %d more\n", len(of)-maxExamples)
				break
			}
			fmt.Fprintf(w, "         %s, %s", item.Source, item.Name)
			if item.Detail != "" {
				fmt.Fprintf(w, " (%s)", item.Detail)
			}
			fmt.Fprintln(w)
		}
	}
}
