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

// contestant is one way to have a question answered.
type contestant struct {
	name   string
	beside string                                              // the nginx that does the same; empty: nginxName
	read   func(context.Context, time.Duration) (round, error) // again and again, for so long
	rounds []round
}

// round is what one contestant did in one round.
type round struct {
	reads   int64
	rate    float64                 // reads a second
	latency *hdrhistogram.Histogram // in microseconds
	cpu     time.Duration           // what one read took of the processors in all processes together; 0: unknown
}

// newLatency holds a minute, to within 0.1 %.
func newLatency() *hdrhistogram.Histogram {
	return hdrhistogram.New(1, time.Minute.Microseconds(), 3)
}

// bench starts everything, lets the contestants take turns, and shows on the screen how they did.
func bench(ctx context.Context, s options, screen io.Writer) (err error) {
	if s.profiles != "" {
		if s.profiles, err = filepath.Abs(s.profiles); err != nil {
			return fmt.Errorf("find the folder for profiles: %w", err)
		}
	}
	folder, err := os.MkdirTemp("", "ironplane-bench-")
	if err != nil {
		return fmt.Errorf("make a temporary folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()

	db, err := startDatabase(ctx, filepath.Join(folder, "postgres"), s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.stop(ctx)) }()
	l := &lineup{options: s, folder: folder, database: db, screen: screen, reached: map[string]ready{}}
	defer func() { err = errors.Join(err, l.stop(ctx)) }()
	if err := l.start(ctx); err != nil {
		return err
	}
	fmt.Fprintf(screen, "\nOne of %d port speeds by its id, drawn at random; %d connections; rounds of %v, %d of them.\n\n",
		s.rows, s.connections, s.duration, s.rounds)
	if err := takeTurns(ctx, s, l.contestants, screen); err != nil {
		return err
	}
	report(l.contestants, []goal{{gatewayName, nginxName, 1.2}, {splitName, nginxName, 0.75}}, screen)
	if err := l.allocate(ctx); err != nil {
		return err
	}
	return l.create(ctx)
}

func takeTurns(ctx context.Context, s options, contestants []*contestant, screen io.Writer) error {
	if s.warmup > 0 {
		for _, c := range contestants {
			if _, err := c.read(ctx, s.warmup); err != nil {
				return fmt.Errorf("warm up %s: %w", c.name, err)
			}
		}
	}
	for n := range s.rounds {
		first := n % len(contestants) // whoever always came after the same one might fare by it
		for _, c := range slices.Concat(contestants[first:], contestants[:first]) {
			done, err := c.play(ctx, s.duration)
			if err != nil {
				return fmt.Errorf("round %d of %s: %w", n+1, c.name, err)
			}
			c.rounds = append(c.rounds, done)
		}
		line := fmt.Sprintf("round %d:", n+1)
		for _, c := range contestants {
			line += fmt.Sprintf("  %s %.0f/s", c.name, c.rounds[n].rate)
		}
		fmt.Fprintln(screen, line)
	}
	return nil
}

// play is one round.
func (c *contestant) play(ctx context.Context, duration time.Duration) (round, error) {
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
