// Package importer copies the address plan of another system into Ironplane. It uses the public API, as any other client does.
package importer

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/ironplane/ironplane/deploy/cli/importer/source"
	"github.com/ironplane/ironplane/pkg/client"
)

// Login returns the API's address and a key of it.
type Login func() (url, key string, err error)

// Command returns the command import, with a command for each format.
func Command(login Login) *cobra.Command {
	parent := &cobra.Command{
		Use:   "import",
		Short: "Copy the address plan of NetBox, of phpIPAM or of a CSV file",
		Args:  cobra.NoArgs,
		RunE:  func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	for _, name := range slices.Sorted(maps.Keys(formats)) {
		parent.AddCommand(newFormat(name, formats[name], login))
	}
	return parent
}

// format is a kind of file that can be imported.
type format struct {
	short, help string
	read        func(io.Reader) (*source.Plan, error)
}

var formats = map[string]format{
	"netbox": {"Import an export of NetBox", `Import the address plan of NetBox from an export, as made by

  manage.py dumpdata --natural-foreign dcim.site dcim.device dcim.interface ipam tenancy \
    virtualization.virtualmachine virtualization.vminterface extras.tag extras.taggeditem > FILE

Each site becomes an IP group. Space without a site goes to a group for its VRF, or to one group for the rest. An address
or range goes to the group of the smallest prefix around it that has a site. VLANs come from the prefixes. An entity gets
a gateway if exactly one address of its subnet has the role vrrp, hsrp, glbp or carp.
`, source.ReadNetBox},
	"phpipam": {"Import lists of phpIPAM's API", `Import the address plan of phpIPAM from a JSON object with the lists that its API returns:

  {"sections": …, "subnets": …, "addresses": …, "vlan": …, "vrf": …, "devices": …, "customers": …}

The docs have a script that writes it. Each section becomes an IP group. A customer is a tenant. An entity gets a gateway
if exactly one address of its subnet is marked as a gateway.
`, source.ReadPHPIPAM},
	"csv": {"Import a CSV file with a row for each address, range or prefix", `Import a CSV file with a row for each address, range or prefix. The first line names the columns. Commas or semicolons
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

The key is that of an admin who may write network.groups and network.entities, and with --clients also users.clients.`

// options holds the flags and the argument of a command.
type options struct {
	file, clients   string
	available       selectors
	dryRun, verbose bool
}

// newFormat returns the command that imports a format.
func newFormat(name string, f format, login Login) *cobra.Command {
	o := &options{}
	command := &cobra.Command{
		Use:   name + " FILE",
		Short: f.short,
		Long:  f.help + commonHelp,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("got %d files, but the command needs one", len(args))
			}
			return nil
		},
		RunE: func(command *cobra.Command, args []string) error {
			o.file = args[0]
			return runImport(command.Context(), f, o, login, command.OutOrStdout(), command.ErrOrStderr())
		},
	}
	flags := command.Flags()
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
	flags.BoolVarP(&o.verbose, "verbose", "v", false, "list every item")
	return command
}

// runImport imports a file.
func runImport(ctx context.Context, f format, o *options, login Login, stdout, stderr io.Writer) error {
	plan, err := o.readPlan(f)
	if err != nil {
		return err
	}
	url, key, err := login()
	if err != nil {
		return err
	}
	api, err := newClient(url, key)
	if err != nil {
		return err
	}
	return importPlan(ctx, api, plan, o, stdout, stderr)
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
