package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"
)

// goal is how many answers a contestant is to give for each that another one does.
type goal struct {
	name, other string
	times       float64
}

const explanation = `
Answers a second, p50, p99 and CPU are the medians of the rounds; a ratio is the median of the rounds' ratios, with the
lowest and the highest. CPU is what an answer took of the processors, in all processes together: the callers, Postgres and
whatever is in between. Other programs that run here disturb it less than the rest.
`

// report shows how the contestants did, beside the nginx that does the same and pgbench in the same rounds.
func report(contestants []*contestant, goals []goal, screen io.Writer) {
	byName := map[string]*contestant{}
	for _, c := range contestants {
		byName[c.name] = c
	}
	pgbench := byName[pgbenchName]
	table := tabwriter.NewWriter(screen, 0, 0, 3, ' ', 0)
	fmt.Fprint(table, "\n\tanswers/s\tp50\tp99\tCPU\tto nginx\tto pgbench\n")
	for _, c := range contestants {
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
			ratioTo(byName[cmp.Or(c.beside, nginxName)], c),
			ratioTo(pgbench, c),
		)
	}
	_ = table.Flush() // fails where the screen does
	fmt.Fprint(screen, explanation)
	for _, goal := range goals {
		if c, other := byName[goal.name], byName[goal.other]; c != nil && other != nil {
			judge(c, other, goal.times, screen)
		}
	}
}

func judge(c, other *contestant, goal float64, screen io.Writer) {
	verdict := "missed"
	reached := middle(ratios(c, other))
	if reached >= goal {
		verdict = "met"
	}
	fmt.Fprintf(
		screen,
		"\n%s: the goal, %.2f times %s, is %s: it serves %.2f times what %s does",
		c.name,
		goal,
		other.name,
		verdict,
		reached,
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

// median is that of what its rounds have.
func median[T cmp.Ordered](c *contestant, of func(round) T) T {
	all := make([]T, len(c.rounds))
	for i, r := range c.rounds {
		all[i] = of(r)
	}
	slices.Sort(all)
	return middle(all)
}

func middle[T any](sorted []T) T { return sorted[len(sorted)/2] }

// ratios compares, in ascending order, what two did in the same round.
func ratios(c, other *contestant) []float64 {
	all := make([]float64, len(c.rounds))
	for i := range all {
		all[i] = c.rounds[i].rate / other.rounds[i].rate
	}
	slices.Sort(all)
	return all
}

func ratioTo(other, c *contestant) string {
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
