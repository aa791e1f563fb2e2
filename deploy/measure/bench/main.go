// Bench measures, in one run, how many times a second a port speed can be read by its id: by pgbench, by the network
// service alone, by nginx as a proxy in front of that service, by the gateway with all services in one process, and by the
// gateway before services in other processes, over mTLS; with nginx and the gateway also over TLS, by HTTP/1.1 and HTTP/2.
// Then it measures how many times a second the lowest free address of a group can be allocated by 64 callers, and how long
// it takes to create a /16.
//
// The contestants share one Postgres and take turns in short rounds, since machines are noisy: what counts is what
// each did beside the others in the same round. The load comes from the same machine and takes its share of it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/ironplane/ironplane/pkg/runtime/process"
)

// options are the flags.
type options struct {
	duration, warmup          time.Duration
	rounds, connections, rows int
	prefix                    int
	profiles                  string
}

func parse(arguments []string) (options, error) {
	var s options
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.DurationVar(&s.duration, "duration", 2*time.Second, "how long one contestant's round lasts, in whole `seconds`")
	flags.DurationVar(&s.warmup, "warmup", 2*time.Second, "how long each contestant warms up, in whole `seconds`; 0 for not at all")
	flags.IntVar(&s.rounds, "rounds", 11, "how many rounds there are; an odd number has a middle")
	flags.IntVar(&s.connections, "connections", 32, "how many callers read at the same time")
	flags.IntVar(&s.rows, "rows", 100_000, "how many port speeds there are")
	flags.IntVar(&s.prefix, "prefix", 16, "the `length` of the prefix that is made IP entities and allocated from")
	flags.StringVar(&s.profiles, "profiles", "", "a `folder` for CPU profiles of the service and the gateway; none where empty")
	if err := flags.Parse(arguments); err != nil {
		return s, err
	}
	for _, d := range []time.Duration{s.duration, s.warmup} {
		if d < 0 || d%time.Second != 0 { // pgbench knows no others
			return s, fmt.Errorf("-duration and -warmup are whole seconds, not %v", d)
		}
	}
	if s.duration == 0 {
		return s, errors.New("-duration is at least 1s")
	}
	if s.rounds < 1 || s.connections < 1 || s.rows < 1 {
		return s, errors.New("-rounds, -connections and -rows are at least 1")
	}
	if s.prefix < 16 || s.prefix > 32 {
		return s, errors.New("-prefix is from 16 to 32")
	}
	if flags.NArg() > 0 {
		return s, fmt.Errorf("what is %q? All settings are flags: see -help", flags.Arg(0))
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
		signal.Ignore(syscall.SIGPIPE) // where a pager is left, too, all is cleared away
		return bench(ctx, s, os.Stdout)
	})
}
