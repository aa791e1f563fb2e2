// Command import copies the address plan of another system into Ironplane. It uses the public API with an API key, as any
// other client does.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/ironplane/ironplane/pkg/secret"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // so that a second Ctrl-C ends it at once
	os.Exit(run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr))
}

const usage = `import copies the address plan of another system into Ironplane.

Usage:
  import netbox [flags] FILE

Run "import netbox --help" for its flags.
`

// run runs the command that args name, and returns the exit code of the process.
func run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	err := error(nil)
	switch {
	case len(args) == 0 || slices.Contains([]string{"help", "-h", "-help", "--help"}, args[0]):
		_, err = fmt.Fprint(stdout, usage)
	case args[0] == "netbox":
		err = runNetBox(ctx, args[1:], getenv, stdout, stderr)
	default:
		err = fmt.Errorf("unknown command %q: run \"import --help\"", args[0])
	}
	if err != nil {
		fmt.Fprintln(stderr, "import:", err)
		return 1
	}
	return 0
}

const netBoxUsage = `Import sites, prefixes, ranges and addresses from a NetBox export, as made by

  manage.py dumpdata dcim.site ipam tenancy > FILE

Each site becomes an IP group. Ranges, addresses and empty prefixes become IP entities. An entity goes to the group of
the smallest prefix around it that has a site. Space without a site goes to a group for its VRF, or to one group for
the rest. With --clients, tenants become clients and own their ranges, addresses and prefixes. VLANs come from the
prefixes. An entity gets a gateway if exactly one address of its subnet has the role vrrp, hsrp, glbp or carp.

The import creates missing items and changes no existing ones. Run it again after an interruption to create the rest.
Skipped records are listed with the reason.

Usage:
  import netbox [flags] FILE

Flags:
`

// netBoxOptions holds the flags and the argument of the command netbox.
type netBoxOptions struct {
	file, url, key, keyFile, clients string
	dryRun, verbose                  bool
}

func (o *netBoxOptions) flags() *flag.FlagSet {
	flags := flag.NewFlagSet("netbox", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // run prints errors
	flags.StringVar(&o.url, "url", "http://127.0.0.1:8080", "the API's `address`")
	flags.StringVar(
		&o.key,
		"key",
		"",
		"an API `key` that may write network.groups and network.entities, and with --clients also users.clients.\n"+
			"Other users of this machine can see flags. Prefer $IRONPLANE_KEY or --key-file",
	)
	flags.StringVar(&o.keyFile, "key-file", "", "a `file` with the API key")
	flags.StringVar(
		&o.clients,
		"clients",
		"",
		"a CSV `file` with the columns tenant, email, first and last. Each row turns a tenant into a client",
	)
	flags.BoolVar(&o.dryRun, "dry-run", false, "print the plan, and send nothing")
	flags.BoolVar(&o.verbose, "verbose", false, "list every item")
	flags.BoolVar(&o.verbose, "v", false, "short for --verbose")
	return flags
}

// parse reads the flags and the argument, in any order. It returns flag.ErrHelp for -h and --help.
func (o *netBoxOptions) parse(args []string) error {
	flags := o.flags()
	var files []string
	for {
		if err := flags.Parse(args); err != nil {
			return err
		}
		if flags.NArg() == 0 {
			break
		}
		files, args = append(files, flags.Arg(0)), flags.Args()[1:]
	}
	if len(files) != 1 {
		return fmt.Errorf("got %d files, but the command needs one: run \"import netbox --help\"", len(files))
	}
	if o.key != "" && o.keyFile != "" {
		return errors.New("--key and --key-file cannot be used together")
	}
	o.file = files[0]
	return nil
}

// printNetBoxUsage prints the help of the command netbox, with long flags written as --flag.
func printNetBoxUsage(to io.Writer) error {
	var text strings.Builder
	text.WriteString(netBoxUsage)
	new(netBoxOptions).flags().VisitAll(func(f *flag.Flag) {
		value, doc := flag.UnquoteUsage(f)
		dashes := "--"
		if len(f.Name) == 1 {
			dashes = "-"
		}
		fmt.Fprintf(&text, "  %s\n", strings.TrimSpace(dashes+f.Name+" "+value))
		if f.DefValue != "" && f.DefValue != "false" {
			doc += " (default " + f.DefValue + ")"
		}
		fmt.Fprintf(&text, "        %s\n", strings.ReplaceAll(doc, "\n", "\n        "))
	})
	_, err := io.WriteString(to, text.String())
	return err
}

// runNetBox imports a NetBox export.
func runNetBox(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) error {
	var o netBoxOptions
	if err := o.parse(args); errors.Is(err, flag.ErrHelp) {
		return printNetBoxUsage(stdout)
	} else if err != nil {
		return err
	}
	plan, err := readPlan(o.file, o.clients)
	if err != nil {
		return err
	}
	if o.dryRun {
		printPlan(stdout, plan, o.verbose)
		return nil
	}
	key, err := findKey(o.key, o.keyFile, getenv)
	if err != nil {
		return err
	}
	api, err := newClient(o.url, key)
	if err != nil {
		return err
	}
	return importPlan(ctx, api, plan, o.verbose, stdout, stderr)
}

// readPlan reads the export and the file of --clients, if given, and plans the import.
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
		if err := d.loadCustomers(clients); err != nil {
			return Plan{}, err
		}
	}
	return newPlan(d), nil
}

// findKey returns the API key of --key, --key-file or IRONPLANE_KEY, in this order.
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
		return secret.String{}, errors.New("no API key: set $IRONPLANE_KEY, or use --key-file")
	}
	return secret.New(key), nil
}

// importPlan runs the plan, and prints the results even if it stops early.
func importPlan(ctx context.Context, api *client, plan Plan, verbose bool, stdout, stderr io.Writer) error {
	shown := &progress{}
	hide := shown.show(stderr)
	t := newTransfer(api, plan, shown)
	err := t.run(ctx)
	hide()
	printResults(stdout, t, verbose)
	if err != nil {
		return fmt.Errorf("stopped after creating %d groups and %d entities; run the import again to create the rest: %w",
			count(t.groups, created), count(t.entities, created), err)
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
