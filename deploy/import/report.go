package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// examples is how many of a kind are shown where not all were asked for.
const examples = 3

// unowned is what an operator has to know before he lets anybody allocate.
const unowned = "What has no tenant that --clients makes a client of has no owner, also where NetBox has it in use or reserved: " +
	"Ironplane counts it as free.\n"

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
	printLeftOut(w, plan.LeftOut, verbose)
	fmt.Fprint(w, unowned)
}

// String is the entity in one line.
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
		text += " of " + e.Owner.Email
	}
	return fmt.Sprintf("%s (%s)", text, e.Source)
}

func printResults(w io.Writer, t *transfer, verbose bool) {
	columns := []string{"NOT TRIED", "MADE", "THERE ALREADY", "THERE, DIFFERENT", "REFUSED", "UNCLEAR"} // as the states
	labels := make([]string, len(t.groups))
	for i, r := range t.groups {
		labels[i] = fmt.Sprintf("%s (%s)", t.plan.Groups[i], strings.ToLower(columns[r.state]))
	}
	printTable(w, t.plan, labels, columns, func(i int) int { return int(t.entities[i].state) })

	if t.clients > 0 {
		fmt.Fprintf(w, "Clients made: %d\n", t.clients)
	}
	for i, r := range t.groups {
		if r.state == refused {
			fmt.Fprintf(w, "Group %s was refused: %s\n", t.plan.Groups[i], r.detail)
		}
	}
	leftOut := t.plan.LeftOut
	for i, r := range t.entities {
		e := t.plan.Entities[i]
		switch {
		case r.state == refused:
			leftOut = append(leftOut, LeftOut{e.Source, e.Group + ": " + e.Address(), "refused by the API: " + r.code, r.detail})
		case r.state == unclear:
			fmt.Fprintf(w, "Unclear whether it was made: %s\n", e)
		case r.state == different && verbose:
			fmt.Fprintf(w, "There already, different: %s: %s\n", e, r.detail)
		case r.state == made && verbose:
			fmt.Fprintf(w, "Made: %s\n", e)
		}
	}
	printLeftOut(w, leftOut, verbose)
	fmt.Fprint(w, unowned)
}

// printTable counts the entities of each group by column.
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

func printLeftOut(w io.Writer, items []LeftOut, verbose bool) {
	byReason := map[string][]LeftOut{}
	var reasons []string
	for _, item := range items {
		if byReason[item.Reason] == nil {
			reasons = append(reasons, item.Reason)
		}
		byReason[item.Reason] = append(byReason[item.Reason], item)
	}
	fmt.Fprintf(w, "Left out: %d\n", len(items))
	for _, reason := range reasons {
		of := byReason[reason]
		fmt.Fprintf(w, "%5d  %s\n", len(of), reason)
		for i, item := range of {
			if i == examples && !verbose {
				fmt.Fprintf(w, "         and %d more\n", len(of)-examples)
				break
			}
			fmt.Fprintf(w, "         %s, %s", item.Source, item.What)
			if item.Detail != "" {
				fmt.Fprintf(w, " (%s)", item.Detail)
			}
			fmt.Fprintln(w)
		}
	}
}
