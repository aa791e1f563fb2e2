package command

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ironplane/ironplane/deploy/cli/lookup"
	"github.com/ironplane/ironplane/pkg/client/operations"
)

// completions adds completion with live names to a command: to its arguments and to the flags that name items.
func (c *call) completions(command *cobra.Command) {
	command.ValidArgsFunction = func(command *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		i := len(args)
		if c.Several > 0 {
			i = min(i, len(c.Path)-1)
		}
		if i >= len(c.Path) || c.Path[i].Of == "" {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return c.program.complete(command, c.Path[i].Of, typed)
	}
	for _, v := range slices.Concat(c.query, c.members) {
		of, enum := v.Of, v.Enum
		if of == "" && len(enum) == 0 {
			continue
		}
		mustComplete(command.RegisterFlagCompletionFunc(v.flag,
			func(command *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
				if of == "" {
					return enum, cobra.ShellCompDirectiveNoFileComp
				}
				return c.program.complete(command, of, typed)
			}))
	}
}

// maxCompletions is how many names a completion offers.
const maxCompletions = 50

// complete returns the names of a noun's items that begin like what was typed, with what else is known of them.
func (p *Program) complete(command *cobra.Command, noun, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	list := operations.All().List(noun)
	if list == nil || !list.Paged {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	query := url.Values{"per_page": {fmt.Sprint(maxCompletions)}}
	for _, q := range list.Query {
		if q.Required {
			query.Set(q.Name, "")
		}
		if q.Name == "q" && typed != "" {
			query.Set("q", typed)
		}
	}
	var items []map[string]any
	api, err := p.connect()
	if err == nil {
		items, err = lookup.FirstPage(command.Context(), api, list, query)
	}
	if err != nil {
		cobra.CompErrorln(err.Error())
		return nil, cobra.ShellCompDirectiveError
	}
	var offered []cobra.Completion
	for _, found := range lookup.Describe(items...) {
		for _, name := range found.Names {
			if strings.HasPrefix(strings.ToLower(name), strings.ToLower(typed)) {
				offered = append(offered, cobra.CompletionWithDesc(name, fmt.Sprintf("%s %d", noun, found.ID)))
				break
			}
		}
	}
	return offered, cobra.ShellCompDirectiveNoFileComp
}
