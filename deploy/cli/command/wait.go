package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ironplane/ironplane/deploy/cli/lookup"
	"github.com/ironplane/ironplane/deploy/cli/output"
	"github.com/ironplane/ironplane/pkg/client"
	"github.com/ironplane/ironplane/pkg/client/operations"
)

// work is what goes on after the API has answered: an install, a job, a download.
type work struct {
	name   string // for people
	get    string // the operation that returns its state
	member string // the member with the state
	done   []string
	failed []string
}

var (
	installWork = &work{"install", "getInstall", "status", []string{"installed"}, []string{"failed", "cancelled"}}
	jobWork     = &work{"job", "getJob", "state", []string{"done"}, []string{"failed", "cancelled"}}
	isoWork     = &work{"iso", "getISO", "status", []string{"ready"}, []string{"failed"}}
	syncWork    = &work{"sync of file server", "getFileServerSync", "status", []string{"done", "none"}, []string{"failed", "partial"}}
	mailWork    = &work{"email message", "getEmailMessage", "status", []string{"sent"}, []string{"failed", "held"}}
)

// waits are the operations that begin some work.
var waits = map[string]*work{
	"createInstall":          installWork,
	"retryInstall":           installWork,
	"reinstallMachine":       installWork,
	"retryJob":               jobWork,
	"createISO":              isoWork,
	"updateISO":              isoWork,
	"syncFileServerChildren": syncWork,
	"sendEmailMessage":       mailWork,
}

// watched are the nouns with a verb watch.
var watched = map[string]*work{"install": installWork, "job": jobWork, "iso": isoWork}

const (
	defaultTimeout  = 2 * time.Hour
	minPollInterval = 200 * time.Millisecond
	maxPollInterval = 5 * time.Second
)

// endedError is the error of work that has ended without success, or not in time.
type endedError struct {
	text string
	kind error
}

func (e *endedError) Error() string        { return e.text }
func (e *endedError) Is(target error) bool { return target == e.kind }

// runAndWait sends a request, and waits until the work that it began has ended.
func (c *call) runAndWait(ctx context.Context, api *client.Client, r *client.Request, print output.Options) error {
	response, err := api.Do(ctx, r)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(response.Body)
	response.Body.Close()
	if err != nil {
		return err
	}
	var answer struct {
		ID json.RawMessage `json:"id"`
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return fmt.Errorf("read the response: %w", err)
	}
	id := strings.Trim(string(answer.ID), `"`)
	if id == "" { // the answer is a sentence, and the path names the item
		id = r.Path[len(c.Route[:strings.Index(c.Route, "{")]):]
		id, _, _ = strings.Cut(id, "/")
	}
	return c.program.watch(ctx, api, waits[c.ID], id, c.timeout, print)
}

// addWatches adds the verb watch to the nouns that have it.
func addWatches(nouns map[string]*cobra.Command, p *Program) {
	for noun, w := range watched {
		timeout := defaultTimeout
		command := &cobra.Command{
			Use:         "watch " + strings.ToUpper(noun),
			Short:       "Wait until the " + noun + " has ended, and print its final state",
			Annotations: map[string]string{"watch": noun},
			Args:        exactly(1),
			RunE: func(command *cobra.Command, args []string) error {
				api, err := p.connect()
				if err != nil {
					return err
				}
				id := args[0]
				if o := operations.All().Find(w.get); o.Path[0].Kind == "integer" {
					n, err := p.resolve(command.Context(), noun, id)
					if err != nil {
						return err
					}
					id = fmt.Sprint(n)
				}
				return p.watch(command.Context(), api, w, id, timeout, p.print)
			},
		}
		command.Flags().DurationVar(&timeout, "timeout", defaultTimeout, "fail after this `time`")
		nouns[noun].AddCommand(command)
	}
}

func exactly(n int) cobra.PositionalArgs {
	return func(command *cobra.Command, args []string) error {
		if len(args) != n {
			return usage(fmt.Errorf("got %d arguments, want %d: %s", len(args), n, command.UseLine()))
		}
		return nil
	}
}

// watch waits until some work has ended, shows its progress, and prints its final state.
func (p *Program) watch(ctx context.Context, api *client.Client, w *work, id string, timeout time.Duration, print output.Options) error {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errTimeout)
	defer cancel()
	o := operations.All().Find(w.get)
	path := strings.Replace(o.Route, "{"+o.Path[0].Name+"}", url.PathEscape(id), 1)
	bar := &progress{program: p, name: w.name + " " + id}
	defer bar.end()
	var text []byte
	for interval := minPollInterval; ; interval = min(interval*3/2, maxPollInterval) {
		next, err := lookup.Fetch(ctx, api, &client.Request{Operation: o.ID, Route: o.Route, Method: o.Method, Path: path})
		if err != nil {
			return waitError(ctx, w, id, err)
		}
		text = next
		s := readState(text, w)
		bar.show(s)
		if slices.Contains(w.done, s.state) || slices.Contains(w.failed, s.state) {
			bar.end()
			if err := print.Item(p.Out, text); err != nil {
				return err
			}
			if slices.Contains(w.done, s.state) {
				return nil
			}
			message := fmt.Sprintf("%s %s: %s", w.name, id, s.state)
			if s.reason != "" {
				message += ": " + s.reason
			}
			return &endedError{message, errEnded}
		}
		select {
		case <-time.After(interval):
		case <-ctx.Done():
			return waitError(ctx, w, id, context.Cause(ctx))
		}
	}
}

func waitError(ctx context.Context, w *work, id string, err error) error {
	if errors.Is(context.Cause(ctx), errTimeout) {
		return &endedError{fmt.Sprintf("%s %s has not ended within --timeout. It goes on", w.name, id), errTimeout}
	}
	return err
}

// state is how far some work has got.
type state struct {
	state, step, reason string
	percent             int // -1: unknown
}

func readState(text []byte, w *work) state {
	var item struct {
		Status, State, Step, Error, Reason string
		Progress                           any
	}
	_ = json.Unmarshal(text, &item) // a member of another type leaves the others readable
	s := state{state: item.Status, step: item.Step, reason: item.Error, percent: -1}
	if w.member == "state" {
		s.state = item.State
	}
	if s.step == "" {
		s.step = item.Reason
	}
	if percent, ok := item.Progress.(float64); ok {
		s.percent = int(percent)
	}
	return s
}

// progress shows how far some work has got: on a terminal by one line that changes, elsewhere by a line for each new state.
type progress struct {
	program *Program
	name    string
	last    string
	shown   bool
}

const barWidth = 24

func (b *progress) show(s state) {
	text := fmt.Sprintf("%s: %s", b.name, s.state)
	if s.step != "" {
		text += ", " + s.step
	}
	if !b.program.IsTerminal {
		if text != b.last {
			fmt.Fprintln(b.program.Err, text)
		}
		b.last = text
		return
	}
	if s.percent >= 0 {
		full := min(max(s.percent, 0), 100) * barWidth / 100
		text = fmt.Sprintf("%s [%s%s] %d %%", text, strings.Repeat("#", full), strings.Repeat(".", barWidth-full), s.percent)
	}
	fmt.Fprintf(b.program.Err, "\r\x1b[K%s", text)
	b.shown = true
}

// end leaves the line of a terminal.
func (b *progress) end() {
	if b.shown {
		fmt.Fprintln(b.program.Err)
	}
	b.shown = false
}
