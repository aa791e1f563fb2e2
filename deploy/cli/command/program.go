// Package command has the commands of ironplane: one for each operation of the API, and some of its own.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/ironplane/ironplane/deploy/cli/importer"
	"github.com/ironplane/ironplane/deploy/cli/lookup"
	"github.com/ironplane/ironplane/deploy/cli/output"
	"github.com/ironplane/ironplane/pkg/client"
)

// Program is what a run of the command line sees of its surroundings.
type Program struct {
	In       io.Reader
	Out, Err io.Writer
	Getenv   func(string) string
	// Prompt asks a person for a secret, without showing it. nil: nobody can be asked.
	Prompt func(question string) (string, error)
	// Confirm asks a person whether to go on. nil: nobody can be asked.
	Confirm func(question string) bool
	// IsTerminal is whether Err is a terminal, on which a line can be replaced.
	IsTerminal bool

	options     []client.Option // for tests
	api         *client.Client
	contextName string
	verbose     bool
	secrets     bool // whether standard input was read as a secret
	print       output.Options
}

// System returns the process's own surroundings.
func System() *Program {
	p := &Program{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Getenv: os.Getenv, IsTerminal: term.IsTerminal(int(os.Stderr.Fd()))}
	if term.IsTerminal(int(os.Stdin.Fd())) {
		p.Prompt = func(question string) (string, error) {
			fmt.Fprint(os.Stderr, question+": ")
			text, err := term.ReadPassword(int(os.Stdin.Fd()))
			fmt.Fprintln(os.Stderr)
			return string(text), err
		}
		p.Confirm = func(question string) bool {
			fmt.Fprint(os.Stderr, question+" [y/N] ")
			var answer string
			_, err := fmt.Fscanln(os.Stdin, &answer)
			return err == nil && strings.EqualFold(answer, "y")
		}
	}
	return p
}

// Run runs a command and returns the exit code of the process.
func Run(ctx context.Context, args []string, p *Program) int {
	root := newRoot(p)
	root.SetArgs(args)
	root.SetIn(p.In)
	root.SetOut(p.Out)
	root.SetErr(p.Err)
	command, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	if ctx.Err() != nil && !errors.Is(err, client.ErrUnknownOutcome) {
		err = errInterrupted
	}
	printError(p.Err, command, err)
	return exitCode(err)
}

// Tree returns all commands, for what is written about them.
func Tree() *cobra.Command {
	root := newRoot(&Program{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard, Getenv: func(string) string { return "" }})
	root.DisableAutoGenTag = true
	return root
}

const about = `Call the API of Ironplane, the control plane of companies that rent out bare-metal servers.

Each operation of the API is a command: ironplane NOUN VERB. Where an id is wanted, an item's name works too.

IRONPLANE_URL is the API's address, and IRONPLANE_KEY the key. "ironplane login" stores both instead.`

func newRoot(p *Program) *cobra.Command {
	root := &cobra.Command{
		Use:               "ironplane",
		Short:             "Call the API of Ironplane",
		Long:              about,
		SilenceErrors:     true, // Run prints them
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: false},
		PersistentPreRunE: func(*cobra.Command, []string) error { return usage(p.print.Check()) },
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usage(err) })
	flags := root.PersistentFlags()
	flags.StringVarP(&p.print.Format, "output", "o", "table", "`format` of the output: "+strings.Join(output.Formats, ", "))
	flags.StringSliceVar(&p.print.Columns, "columns", nil, "print only these `members`, separated by commas; nested ones as owner.name")
	flags.StringVar(&p.print.Query, "jq", "", "print what this `program` for jq makes of the JSON")
	flags.StringVar(&p.contextName, "context", "", "use this stored `login` instead of the current one")
	flags.BoolVar(&p.verbose, "verbose", false, "print each request's method, path, status and id on standard error")
	mustComplete(root.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(output.Formats, cobra.ShellCompDirectiveNoFileComp)))
	root.AddGroup(&cobra.Group{ID: groupOwn, Title: "Commands:"}, &cobra.Group{ID: groupNouns, Title: "Nouns of the API:"})
	root.SetHelpCommandGroupID(groupOwn)
	root.SetCompletionCommandGroupID(groupOwn)
	root.AddCommand(newAPI(p), newApply(p), newImport(p), newLogin(p), newLogout(p), newContext(p), newWhoami(p))
	addOperations(root, p)
	return root
}

const (
	groupOwn   = "own"
	groupNouns = "nouns"
)

// newImport returns the command that copies address plans.
func newImport(p *Program) *cobra.Command {
	command := importer.Command(p.login)
	command.GroupID = groupOwn
	for _, format := range command.Commands() {
		check := format.Args
		format.Args = func(command *cobra.Command, args []string) error { return usage(check(command, args)) }
	}
	return command
}

func mustComplete(err error) {
	if err != nil {
		panic(err) // the flag has just been added
	}
}

// connect returns the API's client.
func (p *Program) connect() (*client.Client, error) {
	if p.api != nil {
		return p.api, nil
	}
	url, key, err := p.login()
	if err != nil {
		return nil, err
	}
	p.api, err = p.dial(url, key)
	return p.api, err
}

// login returns the API's address and the key: those of --context, of the environment, or of the current login.
func (p *Program) login() (url, key string, err error) {
	url, key = p.Getenv("IRONPLANE_URL"), p.Getenv("IRONPLANE_KEY")
	if p.contextName != "" || url == "" {
		if p.contextName == "" && key != "" {
			return "", "", &notSignedIn{"IRONPLANE_KEY is set, but IRONPLANE_URL is not: set both, or neither"}
		}
		file, _, err := p.loadLogins()
		if err != nil {
			return "", "", err
		}
		entry, _, err := findLogin(file, p.contextName)
		if err != nil {
			return "", "", err
		}
		return entry.URL, entry.Key, nil
	}
	return url, strings.TrimSpace(key), nil
}

// resolve returns the id of the item that a text names by its id or by its name.
func (p *Program) resolve(ctx context.Context, noun, text string) (int64, error) {
	if id, err := strconv.ParseInt(text, 10, 64); err == nil {
		return id, nil
	}
	api, err := p.connect()
	if err != nil {
		return 0, err
	}
	return lookup.ID(ctx, api, noun, text)
}

// dial returns a client of the API at url.
func (p *Program) dial(url, key string) (*client.Client, error) {
	options := []client.Option{client.WithKey(strings.TrimSpace(key)), client.WithUserAgent("ironplane-cli")}
	if p.verbose {
		options = append(options, client.WithHook(p.trace))
	}
	c, err := client.New(url, append(options, p.options...)...)
	return c, usage(err)
}

// trace prints a call, without its query, headers and bodies: they may have secrets.
func (p *Program) trace(ctx context.Context, r *client.Request) (context.Context, func(client.Result)) {
	begin := time.Now()
	return ctx, func(result client.Result) {
		fmt.Fprintf(p.Err, "> %s %s: %d in %s, attempts %d, request %s\n", r.Method, r.Path, result.Status,
			time.Since(begin).Round(time.Millisecond), result.Attempts, result.RequestID)
	}
}
