// Bench compares the product's speed with that of pgbench and nginx. It measures how many port speeds a second can be read by
// id, with these candidates:
//
//   - pgbench.
//   - the network service alone.
//   - nginx as a proxy in front of that service, also over TLS with HTTP/1.1 and HTTP/2.
//   - the gateway with all services in one process, also over TLS.
//   - the gateway with services in other processes, over mTLS.
//
// Then it measures how many addresses a second 64 callers can allocate, how long creating a /16 takes, and how many port speeds
// a second can be created.
//
// The candidates share one PostgreSQL, and take turns in short rounds, since machines are noisy: only results of the same
// round are compared. The callers run on the same machine, and use a part of its CPU.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/ironplane/ironplane/pkg/runtime/process"
)

// options has the values of the flags.
type options struct {
	duration, warmup          time.Duration
	rounds, connections, rows int
	prefix                    int
	profiles                  string
	only                      []string // names of measurements; empty: all
}

// measurements are what -only can name, in their order.
var measurements = []string{"read", "allocate", "create"}

func (s *options) measures(name string) bool {
	return len(s.only) == 0 || slices.Contains(s.only, name)
}

// parse parses and checks the flags.
func parse(arguments []string) (options, error) {
	var s options
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.DurationVar(&s.duration, "duration", 2*time.Second, "the duration of one candidate's round, in whole `seconds`")
	flags.DurationVar(&s.warmup, "warmup", 2*time.Second, "how long each candidate warms up, in whole `seconds`; 0: not at all")
	flags.IntVar(&s.rounds, "rounds", 11, "the number of rounds; use an odd number for an exact median")
	flags.IntVar(&s.connections, "connections", 32, "the number of concurrent callers")
	flags.IntVar(&s.rows, "rows", 100_000, "the number of port speeds")
	flags.IntVar(&s.prefix, "prefix", 16, "the `length` of the prefix of which addresses are allocated")
	flags.StringVar(&s.profiles, "profiles", "", "a `folder` for CPU profiles of the service and the gateway; empty: none")
	only := flags.String("only", "", "the `measurements` to make, such as read,allocate,create; empty: all")
	if err := flags.Parse(arguments); err != nil {
		return s, err
	}
	if *only != "" {
		s.only = strings.Split(*only, ",")
	}
	for _, name := range s.only {
		if !slices.Contains(measurements, name) {
			return s, fmt.Errorf("-only knows no measurement %q: it can be %s", name, strings.Join(measurements, ", "))
		}
	}
	for _, d := range []time.Duration{s.duration, s.warmup} {
		if d < 0 || d%time.Second != 0 { // pgbench accepts only whole seconds
			return s, fmt.Errorf("-duration and -warmup must be whole seconds, not %v", d)
		}
	}
	if s.duration == 0 {
		return s, errors.New("-duration must be at least 1s")
	}
	if s.rounds < 1 || s.connections < 1 || s.rows < 1 {
		return s, errors.New("-rounds, -connections and -rows must be at least 1")
	}
	if s.prefix < 16 || s.prefix > 32 {
		return s, errors.New("-prefix must be between 16 and 32")
	}
	if flags.NArg() > 0 {
		return s, fmt.Errorf("unexpected argument %q: see -help for the flags", flags.Arg(0))
	}
	return s, nil
}

func main() {
	process.Main(func(ctx context.Context) error {
		if len(os.Args) == 3 && os.Args[1] == serverCommand {
			return serve(ctx, os.Args[2], os.Stdin, os.Stdout)
		}
		s, err := parse(os.Args[1:])
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		if err != nil {
			return err
		}
		signal.Ignore(syscall.SIGPIPE) // the temporary folder is removed even if the output is closed, for example by a pager
		return bench(ctx, s, os.Stdout)
	})
}
