// Ironplaned is the programs of an installation in one file. Its first argument names the program. Packages ship it, because apart
// the programs link the same code nine times.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/ironplane/ironplane/deploy/internal/license"
	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/deploy/internal/setup"
	"github.com/ironplane/ironplane/deploy/internal/standalone"
	gateway "github.com/ironplane/ironplane/gateway/server"
	"github.com/ironplane/ironplane/pkg/runtime/process"
	"github.com/ironplane/ironplane/pkg/runtime/server"
)

// name is the name of this program.
const name = "ironplaned"

// subcommand is one of the programs.
type subcommand struct {
	name, summary string
	program       func() process.Program
}

// subcommands returns the programs in the order of the help.
func subcommands() []subcommand {
	all := []subcommand{
		{"standalone", "everything in one process", standalone.Program},
		{"setup", "secrets, certificates, roles and schemas of an installation with several processes", setup.Program},
		{"gateway", "the public API, in a process of its own", gateway.Program},
	}
	for _, d := range product.Services {
		all = append(all, subcommand{
			d.Name,
			"the service " + d.Name + ", in a process of its own",
			func() process.Program { return server.Program(d) },
		})
	}
	return append(all, subcommand{"license", "create licenses, and the keys that sign them", license.Program})
}

func main() {
	process.Main(func(ctx context.Context) error { return run(ctx, os.Args[1:], os.Environ(), os.Stdout) })
}

// ofInstallation are the commands that find the installation of this machine by themselves.
var ofInstallation = []string{"backup", "restore", "maintenance-on", "maintenance-off", "maintenance-status"}

// run runs the program that the first argument names, with the other arguments.
func run(ctx context.Context, arguments, environment []string, out io.Writer) error {
	if len(arguments) == 0 {
		return errors.New("name a program: see " + name + " help")
	}
	switch arguments[0] {
	case "help", "-h", "--help":
		_, err := io.WriteString(out, usage())
		return err
	case "version", "--version":
		p := standalone.Program()
		p.Name = name
		return p.Run(ctx, arguments, environment, out)
	}
	if slices.Contains(ofInstallation, arguments[0]) {
		var err error
		if arguments, environment, err = packaged.complete(arguments, environment); err != nil {
			return err
		}
	}
	for _, s := range subcommands() {
		if s.name == arguments[0] {
			p := s.program()
			p.Name = name + " " + s.name
			return p.Run(ctx, arguments[1:], environment, out)
		}
	}
	return fmt.Errorf("unknown program %q: see %s help", arguments[0], name)
}

func usage() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Usage: %s PROGRAM [command]\n\nPrograms:\n", name)
	for _, s := range subcommands() {
		fmt.Fprintf(&b, "  %-10s %s\n", s.name, s.summary)
	}
	fmt.Fprintf(&b, "\nFor the installation on this machine, in one process or several:\n")
	for _, command := range [][2]string{
		{"backup FILE", "write everything that it keeps to a file"},
		{"restore FILE", "replace its data by that of a backup"},
		{"maintenance-on", "refuse changes and pause jobs until maintenance-off"},
		{"maintenance-off", "end the maintenance"},
		{"maintenance-status", "print whether maintenance is on, since when and why"},
	} {
		fmt.Fprintf(&b, "  %-18s %s\n", command[0], command[1])
	}
	b.WriteString("\n")
	fmt.Fprintf(&b, "  %-10s %s\n  %-10s %s\n", "version", "print the version", "help", "print this help")
	fmt.Fprintf(&b, "\n%s PROGRAM help lists the program's commands and variables.\n", name)
	return b.String()
}
