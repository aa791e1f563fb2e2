package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"
)

// goal is the minimum ratio of a candidate's rate to that of another one.
type goal struct {
	name, other string
	times       float64
}

const explanation = `
Requests a second, p50, p99 and CPU are the medians of the rounds. A ratio is the median of the rounds' ratios, with the
lowest and the highest. CPU is the CPU time of a request in all processes together: the callers, PostgreSQL and the servers.
Other programs on this machine disturb it less than the other values.
`

// report prints the candidates' results, and their ratios to nginx and pgbench in the same rounds.
func report(candidates []*candidate, goals []goal, screen io.Writer) {
	byName := map[string]*candidate{}
	for _, c := range candidates {
		byName[c.name] = c
	}
	pgbench := byName[pgbenchName]
	table := tabwriter.NewWriter(screen, 0, 0, 3, ' ', 0)
	fmt.Fprint(table, "\n\trequests/s\tp50\tp99\tCPU\tto nginx\tto pgbench\n")
	for _, c := range candidates {
		fmt.Fprintf(
			table,
			"%s\t%.0f\t%s\t%s\t%s\t%s\t%s\n",
			c.name,
			median(c, rate),
			milliseconds(median(c, quantile(50))),
			milliseconds(
				median(c, quantile(99)),
			),
			microseconds(median(c, cpu)),
			ratioTo(byName[cmp.Or(c.baseline, nginxName)], c),
			ratioTo(pgbench, c),
		)
	}
	_ = table.Flush() // fails only if the screen does
	fmt.Fprint(screen, explanation)
	for _, goal := range goals {
		if c, other := byName[goal.name], byName[goal.other]; c != nil && other != nil {
			compareToGoal(c, other, goal.times, screen)
		}
	}
}

// compareToGoal prints whether a candidate meets its goal.
func compareToGoal(c, other *candidate, goal float64, screen io.Writer) {
	verdict := "missed"
	ratio := middle(ratios(c, other))
	if ratio >= goal {
		verdict = "met"
	}
	fmt.Fprintf(
		screen,
		"\n%s: the goal, %.2f times %s, is %s: it serves %.2f times what %s does",
		c.name,
		goal,
		other.name,
		verdict,
		ratio,
		other.name,
	)
	if used := median(c, cpu); used > 0 {
		fmt.Fprintf(screen, " (%.2f times for the same CPU)", float64(median(other, cpu))/float64(used))
	}
	fmt.Fprintln(screen, ".")
}

func rate(r round) float64      { return r.rate }
func cpu(r round) time.Duration { return r.cpu }

func quantile(percent float64) func(round) time.Duration {
	return func(r round) time.Duration {
		return time.Duration(r.latency.ValueAtQuantile(percent)) * time.Microsecond
	}
}

// median returns the median of a value of a candidate's rounds.
func median[T cmp.Ordered](c *candidate, of func(round) T) T {
	all := make([]T, len(c.rounds))
	for i, r := range c.rounds {
		all[i] = of(r)
	}
	slices.Sort(all)
	return middle(all)
}

func middle[T any](sorted []T) T { return sorted[len(sorted)/2] }

// ratios returns the ratios of two candidates' rates in the same rounds, in ascending order.
func ratios(c, other *candidate) []float64 {
	all := make([]float64, len(c.rounds))
	for i := range all {
		all[i] = c.rounds[i].rate / other.rounds[i].rate
	}
	slices.Sort(all)
	return all
}

// ratioTo returns the median ratio of c to another candidate, with the lowest and the highest.
func ratioTo(other, c *candidate) string {
	switch other {
	case nil:
		return "–"
	case c:
		return "1"
	}
	all := ratios(c, other)
	return fmt.Sprintf("%.2f (%.2f–%.2f)", middle(all), all[0], all[len(all)-1])
}

func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.2f ms", float64(d)/float64(time.Millisecond))
}

func microseconds(d time.Duration) string {
	if d == 0 {
		return "–"
	}
	return fmt.Sprintf("%d µs", d.Microseconds())
}
