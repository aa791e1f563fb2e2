package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// maxExamples is the number of skipped records that are printed for each reason without --verbose.
const maxExamples = 3

// ownerNote warns the operator before anyone allocates addresses from an imported group.
const ownerNote = "Entities without a tenant in the file of --clients have no owner. Ironplane counts them as free, even if NetBox has " +
	"them as active or reserved.\n"

// printPlan prints the plan for --dry-run: the entities of each group, and the skipped records.
func printPlan(w io.Writer, plan Plan, verbose bool) {
	columns := []string{"RANGES", "ADDRESSES", "PREFIXES"}
	printTable(w, plan, plan.Groups, columns, func(i int) int {
		switch plan.Entities[i].Source.Model {
		case modelRange:
			return 0
		case modelAddress:
			return 1
		default:
			return 2
		}
	})
	if verbose {
		for _, e := range plan.Entities {
			fmt.Fprintf(w, "  %s\n", e)
		}
	}
	printSkipped(w, plan.Skipped, verbose)
	fmt.Fprint(w, ownerNote)
}

// String returns a line that describes the entity.
func (e Entity) String() string {
	text := fmt.Sprintf("%s: %s", e.Group, e.Address())
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
	if e.Owner != (customer{}) {
		text += " owner " + e.Owner.Email
	}
	return fmt.Sprintf("%s (%s)", text, e.Source)
}

// printResults prints the outcome of an import: the entities of each group by state, and the skipped records.
func printResults(w io.Writer, t *transfer, verbose bool) {
	columns := []string{"NOT TRIED", "CREATED", "UNCHANGED", "DIFFERENT", "REFUSED", "UNKNOWN"} // in the order of the states
	labels := make([]string, len(t.groups))
	for i, r := range t.groups {
		labels[i] = fmt.Sprintf("%s (%s)", t.plan.Groups[i], strings.ToLower(columns[r.state]))
	}
	printTable(w, t.plan, labels, columns, func(i int) int { return int(t.entities[i].state) })

	if t.clients > 0 {
		fmt.Fprintf(w, "Clients created: %d\n", t.clients)
	}
	for i, r := range t.groups {
		if r.state == refused {
			fmt.Fprintf(w, "The API refused group %s: %s\n", t.plan.Groups[i], r.detail)
		}
	}
	skipped := t.plan.Skipped
	for i, r := range t.entities {
		e := t.plan.Entities[i]
		switch {
		case r.state == refused:
			skipped = append(skipped, Skipped{e.Source, e.Group + ": " + e.Address(), "refused by the API with the code " + r.code, r.detail})
		case r.state == unknown:
			fmt.Fprintf(w, "Unknown whether it was created: %s\n", e)
		case r.state == different && verbose:
			fmt.Fprintf(w, "Different: %s: %s\n", e, r.detail)
		case r.state == created && verbose:
			fmt.Fprintf(w, "Created: %s\n", e)
		}
	}
	printSkipped(w, skipped, verbose)
	fmt.Fprint(w, ownerNote)
}

// printTable prints the number of entities for each group and column.
func printTable(w io.Writer, plan Plan, labels, columns []string, column func(i int) int) {
	rows := map[string][]int{}
	for _, group := range plan.Groups {
		rows[group] = make([]int, len(columns))
	}
	total := make([]int, len(columns))
	for i, e := range plan.Entities {
		rows[e.Group][column(i)]++
		total[column(i)]++
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "GROUP\t%s\n", strings.Join(columns, "\t"))
	for i, group := range plan.Groups {
		fmt.Fprintf(table, "%s%s\n", labels[i], cells(rows[group]))
	}
	fmt.Fprintf(table, "%d groups, %d entities%s\n", len(plan.Groups), len(plan.Entities), cells(total))
	table.Flush()
}

func cells(counts []int) string {
	var line strings.Builder
	for _, n := range counts {
		fmt.Fprintf(&line, "\t%d", n)
	}
	return line.String()
}

// printSkipped prints skipped records by reason.
func printSkipped(w io.Writer, items []Skipped, verbose bool) {
	byReason := map[string][]Skipped{}
	var reasons []string
	for _, item := range items {
		if byReason[item.Reason] == nil {
			reasons = append(reasons, item.Reason)
		}
		byReason[item.Reason] = append(byReason[item.Reason], item)
	}
	fmt.Fprintf(w, "Skipped: %d\n", len(items))
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
