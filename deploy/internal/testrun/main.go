// Testrun runs go test, prints what failed, the slowest tests and what the run cost, and can try failed tests again.
//
//	testrun [-retry] [-slowest 10] ARGUMENTS OF go test
//
// With -retry, which CI sets, a test that fails is run once more, alone. If it passes then, testrun prints "flaky: TEST" with
// the output and the shuffle seed of the failure, and goes on. More than two such tests, or a second failure, fail the run.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

const maxFlaky = 2

func main() {
	retry := flag.Bool("retry", false, "run a failed test once more, alone")
	slowest := flag.Int("slowest", 10, "how many of the slowest tests to print")
	flag.Parse()
	began := time.Now()
	first := newRun()
	err := first.start(os.Stdout, flag.Args())
	first.printSlowest(os.Stdout, *slowest)
	flaky := 0
	if err != nil && *retry {
		flaky, err = retryFailed(os.Stdout, first, flag.Args(), err)
	}
	fmt.Printf("\n%.0f CPU-seconds, %.0f seconds\n", cpuSeconds(), time.Since(began).Seconds())
	fmt.Printf("%d passed, %d failed, %d skipped\n", first.passed+flaky, len(first.failed)-flaky, first.skipped)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// event is one line of go test -json.
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
	Elapsed float64 // in seconds
}

// id is a top-level test and its package.
type id struct{ pkg, test string }

func (i id) String() string { return i.pkg + "." + i.test }

type run struct {
	passed, skipped int
	failed          []id
	broken          []string // packages that failed without a failed test: build errors, panics, time-outs
	output          map[id]*bytes.Buffer
	seed            map[string]string // of the shuffle, by package
	elapsed         map[id]float64
}

func newRun() *run {
	return &run{output: map[id]*bytes.Buffer{}, seed: map[string]string{}, elapsed: map[id]float64{}}
}

// start runs go test, and reads its events until it ends. It prints each package as it ends, and the output of failed tests.
func (r *run) start(screen io.Writer, arguments []string) error {
	cmd := exec.Command("go", append([]string{"test", "-json"}, arguments...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("read from go test: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start go test: %w", err)
	}
	for lines := json.NewDecoder(out); ; {
		var e event
		if err := lines.Decode(&e); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			_ = cmd.Process.Kill()
			return errors.Join(fmt.Errorf("read the events of go test: %w", err), cmd.Wait())
		}
		r.add(screen, e)
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("go test: %w", err)
	}
	return nil
}

// add handles one event of go test.
func (r *run) add(screen io.Writer, e event) {
	top, sub, _ := strings.Cut(e.Test, "/")
	test := id{e.Package, top}
	switch e.Action {
	case "build-output":
		fmt.Fprint(screen, e.Output)
	case "output":
		if seed, ok := strings.CutPrefix(e.Output, "-test.shuffle "); ok {
			r.seed[e.Package] = strings.TrimSpace(seed)
		}
		if r.output[test] == nil {
			r.output[test] = &bytes.Buffer{}
		}
		r.output[test].WriteString(e.Output)
	case "pass", "fail", "skip":
		if sub == "" {
			r.end(screen, test, e)
		}
	}
}

// end counts a test or, without a name, a package that has ended.
func (r *run) end(screen io.Writer, test id, e event) {
	defer delete(r.output, id{e.Package, ""})
	switch {
	case test.test == "" && e.Action == "fail":
		if !slices.ContainsFunc(r.failed, func(f id) bool { return f.pkg == e.Package }) {
			r.broken = append(r.broken, e.Package)
		}
		if out := r.output[test]; out != nil {
			fmt.Fprint(screen, out)
		}
		fmt.Fprintf(screen, "FAIL\t%s\t%.1fs\n", e.Package, e.Elapsed)
	case test.test == "" && e.Action == "pass":
		fmt.Fprintf(screen, "ok  \t%s\t%.1fs\n", e.Package, e.Elapsed)
	case test.test == "":
	case e.Action == "fail":
		r.failed = append(r.failed, test)
		fmt.Fprint(screen, r.output[test])
	case e.Action == "skip":
		r.skipped++
		fmt.Fprint(screen, r.output[test]) // the reason
		delete(r.output, test)
	default:
		r.passed++
		r.elapsed[test] = e.Elapsed
		delete(r.output, test)
	}
}

// printSlowest prints the slowest tests that passed.
func (r *run) printSlowest(screen io.Writer, count int) {
	tests := make([]id, 0, len(r.elapsed))
	for test := range r.elapsed {
		tests = append(tests, test)
	}
	slices.SortFunc(tests, func(a, b id) int {
		if r.elapsed[a] != r.elapsed[b] {
			return int(1000 * (r.elapsed[b] - r.elapsed[a]))
		}
		return strings.Compare(a.String(), b.String())
	})
	fmt.Fprintf(screen, "\nThe slowest tests, in seconds:\n")
	for _, test := range tests[:min(count, len(tests))] {
		fmt.Fprintf(screen, "%7.1f  %s\n", r.elapsed[test], test)
	}
}

// neverFlaky matches failures that show a fault of the product even if they happen only once. Such tests are not run again.
var neverFlaky = regexp.MustCompile(`WARNING: DATA RACE|^panic: |\npanic: |\nfatal error: |unexpected goroutines|test timed out`)

// promises matches tests of promises that must hold every time. Such tests are not run again either.
var promises = regexp.MustCompile(`/revocation\.|Revo|Crash|Storm|Kill`)

// retryFailed runs each failed test once more, alone. It returns how many passed then, and an error if one failed again or may
// not be run again.
func retryFailed(screen io.Writer, first *run, arguments []string, failure error) (flaky int, err error) {
	if len(first.broken) > 0 {
		return 0, fmt.Errorf("%w; not run again: %s failed as a whole", failure, strings.Join(first.broken, ", "))
	}
	if len(first.failed) > maxFlaky {
		return 0, fmt.Errorf("%w; not run again: %d tests failed, and at most %d may be flaky", failure, len(first.failed), maxFlaky)
	}
	for _, test := range first.failed {
		output := first.output[test].String()
		if neverFlaky.MatchString(output) || promises.MatchString(test.String()) {
			return flaky, fmt.Errorf("%w; not run again: %s", failure, test)
		}
		fmt.Fprintf(screen, "\nrun again, alone: %s\n", test)
		second := newRun()
		if err := second.start(screen, alone(test, arguments)); err != nil {
			return flaky, fmt.Errorf("%s failed twice: %w", test, err)
		}
		if second.passed != 1 {
			return flaky, fmt.Errorf("%s was not found when it was to run again", test)
		}
		flaky++
		fmt.Fprintf(screen, "flaky: %s (-shuffle %s)\n%s", test, first.seed[test.pkg], output)
	}
	return flaky, nil
}

// alone returns the arguments with the test's package and name in place of all packages.
func alone(test id, arguments []string) []string {
	end := slices.Index(arguments, "-args") // what follows belongs to the test program
	if end < 0 {
		end = len(arguments)
	}
	var flags []string
	for i, a := range arguments[:end] {
		if strings.HasPrefix(a, "-") || i > 0 && hasValue(arguments[i-1]) {
			flags = append(flags, a)
		}
	}
	// The package comes first: behind a flag that go test does not know, it would be taken for that flag's value.
	return slices.Concat([]string{test.pkg}, flags, []string{"-count=1", "-run", "^" + test.test + "$"}, arguments[end:])
}

// hasValue reports whether the flag takes the next argument as its value.
func hasValue(argument string) bool {
	return slices.Contains([]string{"-timeout", "-run", "-skip", "-p", "-parallel", "-count", "-tags", "-ldflags"}, argument)
}

// cpuSeconds returns the CPU time of go test and of all processes that it started: compilers, tests and their children.
func cpuSeconds() float64 {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &used); err != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano()).Seconds()
}
