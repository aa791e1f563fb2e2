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

	"github.com/ironplane/ironplane/deploy/import/source"
	"github.com/ironplane/ironplane/pkg/client"
	"github.com/ironplane/ironplane/pkg/secret"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // so that a second Ctrl-C ends it at once
	os.Exit(run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr))
}

const usage = `import copies the address plan of another system into Ironplane.

Usage:
  import netbox [flags] FILE    an export of NetBox
  import phpipam [flags] FILE   lists of phpIPAM's API
  import csv [flags] FILE       a CSV file with a row for each address, range or prefix

Run "import netbox --help" for the file and the flags of a command.
`

// run runs the command that args name, and returns the exit code of the process.
func run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	err := error(nil)
	if len(args) == 0 || slices.Contains([]string{"help", "-h", "-help", "--help"}, args[0]) {
		_, err = fmt.Fprint(stdout, usage)
	} else if f, ok := formats[args[0]]; ok {
		err = runImport(ctx, args[0], f, args[1:], getenv, stdout, stderr)
	} else {
		err = fmt.Errorf("unknown command %q: run \"import --help\"", args[0])
	}
	if err != nil {
		fmt.Fprintln(stderr, "import:", err)
		return 1
	}
	return 0
}

// format is a kind of file that can be imported.
type format struct {
	help string
	read func(io.Reader) (*source.Plan, error)
}

var formats = map[string]format{
	"netbox": {`Import the address plan of NetBox from an export, as made by

  manage.py dumpdata --natural-foreign dcim.site dcim.device dcim.interface ipam tenancy \
    virtualization.virtualmachine virtualization.vminterface extras.tag extras.taggeditem > FILE

Each site becomes an IP group. Space without a site goes to a group for its VRF, or to one group for the rest. An address
or range goes to the group of the smallest prefix around it that has a site. VLANs come from the prefixes. An entity gets
a gateway if exactly one address of its subnet has the role vrrp, hsrp, glbp or carp.
`, source.ReadNetBox},
	"phpipam": {`Import the address plan of phpIPAM from a JSON object with the lists that its API returns:

  {"sections": …, "subnets": …, "addresses": …, "vlan": …, "vrf": …, "devices": …, "customers": …}

The docs have a script that writes it. Each section becomes an IP group. A customer is a tenant. An entity gets a gateway
if exactly one address of its subnet is marked as a gateway.
`, source.ReadPHPIPAM},
	"csv": {`Import a CSV file with a row for each address, range or prefix. The first line names the columns. Commas or semicolons
separate them.

  address   192.0.2.10, 192.0.2.10/24, 192.0.2.10-192.0.2.20 or 192.0.2.0/24 (required)
  status    available or free; any other text, and none, means in use (required)
  group     the IP group
  name, note, device, tenant, vlan, gateway, mask, role, tag

An available prefix or range of IPv4 becomes single addresses, without those that other rows have.
`, source.ReadCSV},
}

const commonHelp = `
What is in use becomes reserved, with a note, or assigned if --clients has its tenant. Free addresses become available
entities only in prefixes that are pools, or that --available names. Such a prefix becomes single addresses, without those
in use. An available IPv6 prefix stays whole. Nothing that is in use there is ever allocated here.

Run it again at any time. It creates what is missing, and assigns what is reserved by an earlier run and has a client now. It
reserves what is available here and in use there. It changes nothing else, and lists what differs.

Usage:
  import %s [flags] FILE

Flags:
`

// options holds the flags and the argument of a command.
type options struct {
	file, url, key, keyFile, clients string
	available                        selectors
	dryRun, verbose                  bool
}

func (o *options) flags() *flag.FlagSet {
	flags := flag.NewFlagSet("import", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // run prints errors
	flags.StringVar(&o.url, "url", "http://127.0.0.1:8080", "the API's `address`")
	flags.StringVar(
		&o.key,
		"key",
		"",
		"an admin's API `key` that may write network.groups and network.entities, and with --clients also users.clients.\n"+
			"Other users of this machine can see flags. Prefer $IRONPLANE_KEY or --key-file",
	)
	flags.StringVar(&o.keyFile, "key-file", "", "a `file` with the API key")
	flags.StringVar(
		&o.clients,
		"clients",
		"",
		"a CSV `file` with the columns tenant, email, first and last. Each row turns a tenant into a client",
	)
	flags.Var(
		&o.available,
		"available",
		"`prefixes` whose free addresses become available: role=NAME, tag=NAME or prefix=ADDRESS/LENGTH. Can be repeated",
	)
	flags.BoolVar(&o.dryRun, "dry-run", false, "print the same report, and change nothing")
	flags.BoolVar(&o.verbose, "verbose", false, "list every item")
	flags.BoolVar(&o.verbose, "v", false, "short for --verbose")
	return flags
}

// parse reads the flags and the argument, in any order. It returns flag.ErrHelp for -h and --help.
func (o *options) parse(command string, args []string) error {
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
		return fmt.Errorf("got %d files, but the command needs one: run \"import %s --help\"", len(files), command)
	}
	if o.key != "" && o.keyFile != "" {
		return errors.New("--key and --key-file cannot be used together")
	}
	o.file = files[0]
	return nil
}

// printHelp prints the help of a command, with long flags written as --flag.
func printHelp(to io.Writer, command string, f format) error {
	var text strings.Builder
	fmt.Fprintf(&text, f.help+commonHelp, command)
	new(options).flags().VisitAll(func(f *flag.Flag) {
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

// runImport imports a file.
func runImport(ctx context.Context, command string, f format, args []string, getenv func(string) string, stdout, stderr io.Writer) error {
	var o options
	if err := o.parse(command, args); errors.Is(err, flag.ErrHelp) {
		return printHelp(stdout, command, f)
	} else if err != nil {
		return err
	}
	plan, err := o.readPlan(f)
	if err != nil {
		return err
	}
	key, err := findKey(o.key, o.keyFile, getenv)
	if err != nil {
		return err
	}
	api, err := newClient(o.url, key)
	if err != nil {
		return err
	}
	return importPlan(ctx, api, plan, &o, stdout, stderr)
}

// readPlan reads the file and that of --clients, if given, and plans the import.
func (o *options) readPlan(f format) (Plan, error) {
	from, err := readFile(o.file, f.read)
	if err != nil {
		return Plan{}, err
	}
	if o.clients != "" {
		readCustomers := func(r io.Reader) (*source.Plan, error) { return from, from.ReadCustomers(r) }
		if _, err := readFile(o.clients, readCustomers); err != nil {
			return Plan{}, err
		}
	}
	if err := o.available.check(from); err != nil {
		return Plan{}, err
	}
	return newPlan(from, o.available), nil
}

func readFile(name string, read func(io.Reader) (*source.Plan, error)) (*source.Plan, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	plan, err := read(f)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return plan, nil
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
func importPlan(ctx context.Context, api *client.Client, plan Plan, o *options, stdout, stderr io.Writer) error {
	shown := &progress{}
	hide := shown.show(stderr)
	t := newTransfer(api, plan, shown, o.dryRun)
	err := t.run(ctx)
	hide()
	if o.dryRun {
		fmt.Fprintln(stdout, "Dry run: nothing was changed. This is the report of a run without --dry-run.")
	}
	printReport(stdout, t, o.verbose)
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
