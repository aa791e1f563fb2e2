package command

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ironplane/ironplane/deploy/cli/output"
	"github.com/ironplane/ironplane/pkg/client"
	"github.com/ironplane/ironplane/pkg/client/operations"
)

// addOperations adds a command for each noun, with a command for each of its operations.
func addOperations(root *cobra.Command, p *Program) {
	nouns := map[string]*cobra.Command{}
	for _, o := range operations.All().Operations {
		noun := nouns[o.Noun]
		if noun == nil {
			noun = &cobra.Command{
				Use: o.Noun, Short: o.Tag, GroupID: groupNouns, Aliases: nounAliases[o.Noun], Args: cobra.NoArgs, RunE: unknownVerb,
			}
			nouns[o.Noun] = noun
			root.AddCommand(noun)
		}
		noun.AddCommand(newOperation(p, o))
	}
	addWatches(nouns, p)
}

// unknownVerb says that a noun needs a verb. Without arguments it prints the noun's verbs.
func unknownVerb(command *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usage(fmt.Errorf("unknown command %q for %q", args[0], command.CommandPath()))
	}
	return command.Help()
}

// call is one use of an operation's command.
type call struct {
	*operations.Operation
	custom
	program *Program
	query   []*value
	members []*value

	json, csv, input, contentType string
	clear, headers                []string
	all, dryRun, partial, follow  bool
	wait                          bool
	limit                         int
	timeout                       time.Duration
	ifMatch, idempotencyKey       string
}

// newOperation returns the command of an operation.
func newOperation(p *Program, o *operations.Operation) *cobra.Command {
	c := &call{Operation: o, custom: customs[o.ID], program: p}
	ids := placeholders(o)
	use := strings.Join(append([]string{o.Verb}, ids...), " ")
	if o.Several > 0 {
		use += "..."
	}
	for _, name := range c.positional {
		use += " [" + strings.ToUpper(c.flagOfMember(name)) + "]"
	}
	command := &cobra.Command{
		Use:         use,
		Aliases:     append(slices.Clone(verbAliases[o.Verb]), c.aliases...),
		Short:       o.Summary,
		Long:        o.Summary + ".\n\n" + o.Doc,
		Example:     c.example,
		Args:        c.checkArgs(len(ids)),
		RunE:        c.run,
		Annotations: map[string]string{"operation": o.ID},
	}
	c.addFlags(command)
	return command
}

// placeholders returns the names of a command's arguments that fill the route.
func placeholders(o *operations.Operation) (names []string) {
	for _, part := range o.Path {
		name := strings.TrimSuffix(part.Name, "_id")
		names = append(names, strings.ToUpper(slug(name)))
	}
	return names
}

func (c *call) checkArgs(ids int) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		maxArgs := ids + len(c.positional)
		if c.Several > 0 {
			maxArgs = ids - 1 + c.Several
		}
		if len(args) < ids || len(args) > maxArgs {
			return usage(fmt.Errorf("got %d arguments, want %s", len(args), strings.Join(append(placeholders(c.Operation), c.positional...), " ")))
		}
		return nil
	}
}

func (c *call) flagOfMember(name string) string {
	for _, f := range bodyFlags(c.Operation) {
		if f.Name == name {
			return f.flag
		}
	}
	panic(fmt.Sprintf("%s has no member %s", c.ID, name)) // TestCommands builds all commands
}

func (c *call) addFlags(command *cobra.Command) {
	flags := command.Flags()
	c.query = addValues(flags, queryFlags(c.Operation))
	c.members = addValues(flags, bodyFlags(c.Operation))
	if c.Body != "" {
		flags.StringVar(&c.json, "json", "", "the body as `JSON`, or @FILE, or @- for standard input. Flags replace its members")
		if c.Method == http.MethodPatch {
			flags.StringSliceVar(&c.clear, "clear", nil, "set these `members` to null, such as owner or vlan")
		}
	}
	if c.ReadCSV {
		flags.StringVar(&c.csv, "csv", "", "create and edit many items from a CSV `file`, or - for standard input")
		flags.BoolVar(&c.partial, "partial", false, "with --csv: leave out rows with errors. Otherwise one error refuses all")
	}
	if c.RawBody != "" {
		flags.StringVar(&c.input, "input", "", "a `file` with the body, or - for standard input")
		flags.StringVar(&c.contentType, "content-type", c.RawBody, "the body's media `type`")
	}
	if c.RawBody != "" || c.Answer == "" {
		flags.StringArrayVar(&c.headers, "header", nil, "send this `name: value` as well. Can be repeated")
	}
	if c.Paged {
		flags.IntVar(&c.limit, "limit", 100, "print at most this many items")
		flags.BoolVar(&c.all, "all", false, "print all items")
	}
	if c.DryRun || c.ReadCSV {
		help := "change nothing. The answer, or the error, is that of a real run"
		if c.Method == http.MethodPost {
			help += "; only with --csv"
		}
		flags.BoolVar(&c.dryRun, "dry-run", false, help)
	}
	if c.IfMatch {
		flags.StringVar(&c.ifMatch, "if-match", "", "change the item only if it is still the version with this `etag`")
	}
	if c.Retry == "keyed" {
		flags.StringVar(&c.idempotencyKey, "idempotency-key", "", "for 24 hours the same command with the same `key` changes nothing more")
	}
	if _, ok := waits[c.ID]; ok {
		flags.BoolVar(&c.wait, "wait", false, "wait until it has ended, and print the final state")
		flags.DurationVar(&c.timeout, "timeout", defaultTimeout, "with --wait: fail after this `time`")
	}
	if c.canFollow {
		flags.BoolVar(&c.follow, "follow", false, "print new items until interrupted")
	}
	c.completions(command)
}

// run sends the request of a command and prints the answer.
func (c *call) run(command *cobra.Command, args []string) error {
	api, err := c.program.connect()
	if err != nil {
		return err
	}
	r, err := c.request(command, args)
	if err != nil {
		return err
	}
	print := c.program.print
	print.Default = c.Columns
	if c.columns != nil {
		print.Default = c.columns
	}
	switch {
	case c.follow:
		return c.followItems(command.Context(), api, r, print)
	case c.Paged:
		return c.list(command.Context(), api, r, print)
	case c.wait:
		return c.runAndWait(command.Context(), api, r, print)
	default:
		return c.send(command.Context(), api, r, print)
	}
}

// list prints a list, page by page.
func (c *call) list(ctx context.Context, api *client.Client, r *client.Request, print output.Options) error {
	limit := c.limit
	if c.all {
		limit = 0
	} else if limit < 1 {
		return usage(fmt.Errorf("--limit must be at least 1. Use --all for all items"))
	}
	if print.Format == "csv" {
		r.Header.Set("Accept", "text/csv")
		if limit > 0 && limit <= maxPerPage {
			r.Query.Set("per_page", fmt.Sprint(limit))
		}
		response, err := api.Do(ctx, r)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		return print.CSV(c.program.Out, response.Body, limit)
	}
	perPage := maxPerPage
	if limit > 0 {
		perPage = min(limit, maxPerPage)
	}
	r.Query.Set("per_page", fmt.Sprint(perPage))
	var items []json.RawMessage
	for item, err := range api.Items(ctx, r) {
		if err != nil {
			return err
		}
		if limit > 0 && len(items) == limit {
			fmt.Fprintf(c.program.Err, "There are more than %d items. Use --limit, or --all.\n", limit)
			break
		}
		items = append(items, item)
	}
	return print.Items(c.program.Out, items)
}

const maxPerPage = 1000

// send sends a request and prints the answer.
func (c *call) send(ctx context.Context, api *client.Client, r *client.Request, print output.Options) error {
	response, err := api.Do(ctx, r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	return c.printResponse(response, print)
}

// printResponse prints an answer: JSON in the chosen format, anything else as it is.
func (c *call) printResponse(response *http.Response, print output.Options) error {
	if !strings.HasPrefix(response.Header.Get("Content-Type"), "application/json") {
		for _, name := range []string{"Location", "Upload-Offset", "Upload-Length", "Upload-Expires"} { // answers without a body say it there
			if text := response.Header.Get(name); text != "" {
				fmt.Fprintf(c.program.Out, "%s: %s\n", name, text)
			}
		}
		_, err := io.Copy(c.program.Out, response.Body)
		return err
	}
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	return printAnswer(c.program.Out, text, print)
}

// printAnswer prints a JSON answer: a list if it is an array.
func printAnswer(to io.Writer, text []byte, print output.Options) error {
	text = bytes.TrimSpace(text)
	if bytes.HasPrefix(text, []byte("[")) {
		var items []json.RawMessage
		if err := json.Unmarshal(text, &items); err != nil {
			return fmt.Errorf("read the response: %w", err)
		}
		return print.Items(to, items)
	}
	return print.Item(to, text)
}
