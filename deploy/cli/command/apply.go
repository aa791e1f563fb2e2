package command

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ironplane/ironplane/deploy/cli/apply"
)

// newApply returns the command that brings items to the state of a file.
func newApply(p *Program) *cobra.Command {
	var file string
	var yes, dryRun bool
	command := &cobra.Command{
		Use:     "apply -f FILE",
		Short:   "Create and edit the items of a file, after showing a plan",
		GroupID: groupOwn,
		Long: `Create and edit the items of a file, after showing a plan.

The file is a list in YAML or JSON. Each item has its noun as kind, and the members of the body that creates it. A reference is an id,
or a name, also of an item that stands above it in the file. An item that exists already, by its name (a client by its email address, an
admin by its username, an entity by its full_ip), is edited where it differs. Members that the file leaves out stay as they are. Nothing is deleted.

A run that was cut off is finished by another one: nothing is created twice. A secret is set when its item is created.`,
		Example: `  ironplane apply -f site.yaml --dry-run
  ironplane apply -f site.yaml --yes

  # site.yaml
  - kind: group
    name: Frankfurt 1
  - kind: client
    email: ben@example.com
    first: Ben
    last: Miller
  - kind: entity
    full_ip: 192.0.2.0/28
    group: Frankfurt 1
    owner: {id: ben@example.com}`,
		Args: exactly(0),
	}
	flags := command.Flags()
	flags.StringVarP(&file, "file", "f", "", "the `file`, or - for standard input (required)")
	flags.BoolVar(&yes, "yes", false, "do not ask whether the plan is right")
	flags.BoolVar(&dryRun, "dry-run", false, "print the plan and change nothing")
	command.RunE = func(command *cobra.Command, _ []string) error {
		if file == "" {
			return usage(errors.New("--file is missing"))
		}
		text, err := p.readFile(file)
		if err != nil {
			return err
		}
		wanted, err := apply.Read(text)
		if err != nil {
			return usage(fmt.Errorf("%s: %w", file, err))
		}
		api, err := p.connect()
		if err != nil {
			return err
		}
		a := &apply.Applier{
			API: api, Out: p.Out, Confirm: p.Confirm,
			Print: func(steps []json.RawMessage) error {
				print := p.print
				print.Default = []string{"action", "kind", "name", "changes"}
				return print.Items(p.Out, steps)
			},
		}
		switch {
		case dryRun:
			return a.Plan(command.Context(), wanted)
		case !yes && p.Confirm == nil:
			return usage(errors.New("nobody can be asked whether the plan is right: use --yes, or --dry-run to see the plan"))
		default:
			return a.Apply(command.Context(), wanted, yes)
		}
	}
	return command
}
