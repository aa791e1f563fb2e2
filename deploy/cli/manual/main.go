// Manual writes what people read of the command line: the page of all commands, manual pages for man, and the names of commands that
// the console shows.
//
//	go run ./deploy/terraform-provider/document operations | go run ./deploy/cli/manual page docs/reference/commands.md
//	go run ./deploy/cli/manual man bin/man
//	go run ./deploy/cli/manual console gateway/console/commands.gen.json
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra/doc"

	"github.com/ironplane/ironplane/deploy/cli/command"
	"github.com/ironplane/ironplane/pkg/client/operations"
)

func main() {
	if err := run(os.Args[1:], os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "manual:", err)
		os.Exit(1)
	}
}

func run(args []string, in io.Reader) error {
	if len(args) != 2 {
		return fmt.Errorf("usage: manual page FILE, manual man FOLDER, or manual console FILE")
	}
	switch args[0] {
	case "page":
		resources, err := readResources(in)
		if err != nil {
			return err
		}
		return os.WriteFile(args[1], page(resources), 0o644)
	case "man":
		if err := os.MkdirAll(args[1], 0o755); err != nil {
			return err
		}
		header := &doc.GenManHeader{Section: "1", Source: "Ironplane", Manual: "Ironplane", Date: &time.Time{}} // the same for the same commands
		return doc.GenManTree(command.Tree(), header, args[1])
	case "console":
		text, err := commands()
		if err != nil {
			return err
		}
		return os.WriteFile(args[1], text, 0o644)
	default:
		return fmt.Errorf("unknown command %q", args[0])
	}
}

const introduction = `<!-- Written by make go-client (go run ./deploy/cli/manual). -->
# Commands

After this page you know which command, which method of the Go client and which resource of Terraform call an operation of the API.
` + "`ironplane NOUN VERB --help`" + ` and the package's manual pages (` + "`man ironplane-entity-create`" + `) have the flags.
[Command line](../do/command-line.md) has the rules for all commands, and [Terraform](../do/terraform.md) those for resources.

Every operation has a command, and every operation has a method of the Go client. The command ` + "`ironplane api`" + ` and the method
` + "`Client.Do`" + ` send any other request.

Terraform brings items to a state that files describe. Operations without a resource are not about one: they sign somebody in, send a file,
change many items at once, or are an action, such as to suspend a client. A kind of item that callers cannot create and edit is a data source.

`

// readResources reads what the provider for Terraform prints: an operation and its resources on each line.
func readResources(in io.Reader) (map[string][]string, error) {
	all := map[string][]string{}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) < 2 {
			return nil, fmt.Errorf("got the line %q, want an operation and its resources", lines.Text())
		}
		all[words[0]] = words[1:]
	}
	if len(all) == 0 {
		return nil, errors.New("standard input has no operations of the provider for Terraform")
	}
	return all, lines.Err()
}

// page returns the table of operations, commands, methods and resources, with a section for each noun.
func page(resources map[string][]string) []byte {
	var b bytes.Buffer
	b.WriteString(introduction)
	root := command.Tree()
	noun := ""
	for _, o := range operations.All().Operations {
		if o.Noun != noun {
			noun = o.Noun
			fmt.Fprintf(&b, "\n## %s\n\n| Command | Does | Operation | Go client | Terraform |\n|---|---|---|---|---|\n", noun)
		}
		c, _, err := root.Find([]string{o.Noun, o.Verb})
		if err != nil {
			panic(err) // TestCommands finds all of them
		}
		use := strings.NewReplacer("|", "\\|").Replace(c.Use)
		var terraform []string
		for _, name := range resources[o.ID] {
			terraform = append(terraform, "`"+name+"`")
		}
		fmt.Fprintf(&b, "| `ironplane %s %s` | %s | %s | `%s.%s` | %s |\n",
			o.Noun, use, o.Summary, o.ID, o.Service, o.Call, strings.Join(terraform, ", "))
	}
	return bytes.ReplaceAll(b.Bytes(), []byte("\n\n\n"), []byte("\n\n"))
}

// commands returns the commands of all operations as JSON, a line for each.
func commands() ([]byte, error) {
	all := command.Commands()
	var b bytes.Buffer
	for i, id := range slices.Sorted(maps.Keys(all)) {
		text, err := json.Marshal(all[id])
		if err != nil {
			return nil, err
		}
		separator := ",\n"
		if i == 0 {
			separator = "{\n"
		}
		fmt.Fprintf(&b, "%s%q: %s", separator, id, text)
	}
	b.WriteString("\n}\n")
	return b.Bytes(), nil
}
