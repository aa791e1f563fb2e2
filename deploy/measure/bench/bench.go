package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// candidate is one of the programs whose speed is compared.
type candidate struct {
	name     string
	baseline string                                              // the nginx to compare with; empty: nginxName
	read     func(context.Context, time.Duration) (round, error) // repeats the operation for a duration
	rounds   []round
}

// round is the result of one candidate in one round.
type round struct {
	reads   int64
	rate    float64                 // reads a second
	latency *hdrhistogram.Histogram // in microseconds
	cpu     time.Duration           // of one read, in all processes together; 0: unknown
}

// newLatency returns an empty histogram for latencies up to a minute, with an error of at most 0.1 %.
func newLatency() *hdrhistogram.Histogram {
	return hdrhistogram.New(1, time.Minute.Microseconds(), 3)
}

// bench starts all candidates, measures them in turn, and prints the results.
func bench(ctx context.Context, s options, screen io.Writer) (err error) {
	if s.profiles != "" {
		if s.profiles, err = filepath.Abs(s.profiles); err != nil {
			return fmt.Errorf("find the folder for profiles: %w", err)
		}
	}
	folder, err := os.MkdirTemp("", "ironplane-bench-")
	if err != nil {
		return fmt.Errorf("create a temporary folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()

	db, err := startDatabase(ctx, filepath.Join(folder, "postgres"), s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.stop(ctx)) }()
	l := &suite{options: s, folder: folder, database: db, screen: screen, endpoints: map[string]endpoint{}}
	defer func() { err = errors.Join(err, l.stop(ctx)) }()
	if err := l.start(ctx); err != nil {
		return err
	}
	for i, measure := range []func(context.Context) error{l.read, l.allocate, l.create} {
		if !s.measures(measurements[i]) {
			continue
		}
		if err := measure(ctx); err != nil {
			return err
		}
	}
	return nil
}

// read compares how fast the candidates read port speeds.
func (l *suite) read(ctx context.Context) error {
	s := l.options
	fmt.Fprintf(l.screen, "\nOne of %d port speeds by its id, drawn at random; %d connections; rounds of %v, %d of them.\n\n",
		s.rows, s.connections, s.duration, s.rounds)
	if err := takeTurns(ctx, s, l.candidates, l.screen); err != nil {
		return err
	}
	report(l.candidates, []goal{{gatewayName, nginxName, 1.2}, {splitName, nginxName, 0.75}}, l.screen)
	return nil
}

// takeTurns measures the candidates in rounds. Each candidate runs once in a round.
func takeTurns(ctx context.Context, s options, candidates []*candidate, screen io.Writer) error {
	if s.warmup > 0 {
		for _, c := range candidates {
			if _, err := c.read(ctx, s.warmup); err != nil {
				return fmt.Errorf("warm up %s: %w", c.name, err)
			}
		}
	}
	for n := range s.rounds {
		first := n % len(candidates) // the order changes, since a candidate may affect the next one
		for _, c := range slices.Concat(candidates[first:], candidates[:first]) {
			done, err := c.play(ctx, s.duration)
			if err != nil {
				return fmt.Errorf("round %d of %s: %w", n+1, c.name, err)
			}
			c.rounds = append(c.rounds, done)
		}
		line := fmt.Sprintf("round %d:", n+1)
		for _, c := range candidates {
			line += fmt.Sprintf("  %s %.0f/s", c.name, c.rounds[n].rate)
		}
		fmt.Fprintln(screen, line)
	}
	return nil
}

// play measures one round of a candidate.
func (c *candidate) play(ctx context.Context, duration time.Duration) (round, error) {
	before, err := cpuTime()
	if err != nil {
		return round{}, fmt.Errorf("measure CPU time: %w", err)
	}
	done, err := c.read(ctx, duration)
	if err != nil {
		return round{}, err
	}
	after, err := cpuTime()
	if err != nil {
		return round{}, fmt.Errorf("measure CPU time: %w", err)
	}
	done.cpu = (after - before) / time.Duration(done.reads)
	return done, nil
}
