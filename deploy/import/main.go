// Command import brings what another system holds into Ironplane, through the public API like any other caller.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/ironplane/ironplane/pkg/secret"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // so that a second Ctrl-C ends it at once
	os.Exit(run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr))
}

// run is the command, and gives its exit code.
func run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	root := &cobra.Command{
		Use:               "import",
		Short:             "Bring what another system holds into Ironplane",
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	root.AddCommand(netboxCommand(getenv))
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(stderr, "import:", err)
		return 1
	}
	return 0
}

func netboxCommand(getenv func(string) string) *cobra.Command {
	var options struct {
		url, key, keyFile string
		clients           string
		dryRun, verbose   bool
	}
	command := &cobra.Command{
		Use:   "netbox FILE",
		Short: "Import sites, prefixes, ranges and addresses from a NetBox dumpdata export",
		Long: `Import sites, prefixes, ranges and addresses from a NetBox export, as made by

  manage.py dumpdata dcim.site ipam tenancy > FILE

A site becomes an IP group. Ranges, addresses, and prefixes with nothing inside become IP entities of the group of
the smallest prefix around them that has a site; space without a site gets a group for its VRF, or one for the rest.
With --clients, tenants become clients, and own what has them as its tenant. VLANs come from the prefixes. A gateway is set where one address of the subnet has the role vrrp, hsrp, glbp or carp.

The import makes what is missing and changes nothing that is there: a second run, or one after an interruption,
makes only the rest. What is left out is listed with the reason.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			plan, err := readPlan(args[0], options.clients)
			if err != nil {
				return err
			}
			if options.dryRun {
				printPlan(cmd.OutOrStdout(), plan, options.verbose)
				return nil
			}
			key, err := findKey(options.key, options.keyFile, getenv)
			if err != nil {
				return err
			}
			api, err := newClient(options.url, key)
			if err != nil {
				return err
			}
			return importPlan(cmd, api, plan, options.verbose)
		},
	}
	flags := command.Flags()
	flags.StringVar(&options.url, "url", "http://127.0.0.1:8080", "the API")
	flags.StringVar(
		&options.key,
		"key",
		"",
		"an API key that may write network.groups and network.entities, and with --clients users.clients (others on this machine can see it: rather use $IRONPLANE_KEY or --key-file)",
	)
	flags.StringVar(&options.keyFile, "key-file", "", "a file with the API key")
	flags.StringVar(
		&options.clients,
		"clients",
		"",
		"a CSV `file` with the columns tenant, email, first and last: which clients tenants become, who then own what is theirs",
	)
	flags.BoolVar(&options.dryRun, "dry-run", false, "show what would be made, without a server")
	flags.BoolVarP(&options.verbose, "verbose", "v", false, "list every item")
	command.MarkFlagsMutuallyExclusive("key", "key-file")
	return command
}

func readPlan(file, clients string) (Plan, error) {
	f, err := os.Open(file)
	if err != nil {
		return Plan{}, err
	}
	defer f.Close()
	d, err := readDump(f)
	if err != nil {
		return Plan{}, fmt.Errorf("read %s: %w", file, err)
	}
	if clients != "" {
		if err := d.takeCustomers(clients); err != nil {
			return Plan{}, err
		}
	}
	return planFor(d), nil
}

func findKey(flag, file string, getenv func(string) string) (secret.String, error) {
	key := flag
	switch {
	case file != "":
		content, err := os.ReadFile(file)
		if err != nil {
			return secret.String{}, err
		}
		key = string(content)
	case flag == "":
		key = getenv("IRONPLANE_KEY")
	}
	if key = strings.TrimSpace(key); key == "" {
		return secret.String{}, errors.New("no API key: set $IRONPLANE_KEY or --key-file")
	}
	return secret.New(key), nil
}

func importPlan(cmd *cobra.Command, api *client, plan Plan, verbose bool) error {
	going := &progress{}
	hide := going.show(cmd.ErrOrStderr())
	t := newTransfer(api, plan, going)
	err := t.run(cmd.Context())
	hide()
	printResults(cmd.OutOrStdout(), t, verbose)
	if err != nil {
		return fmt.Errorf("stopped after making %d groups and %d entities, which a second run goes on from: %w",
			count(t.groups, made), count(t.entities, made), err)
	}
	return nil
}

func count(results []result, s state) int {
	n := 0
	for _, r := range results {
		if r.state == s {
			n++
		}
	}
	return n
}
