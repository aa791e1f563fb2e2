// Services updates the files that follow from the services' definitions (product.Services): it writes
// pkg/catalog/services.gen.go, and adds missing services to docker-compose.yml, the package's files and the pages for operators.
// Its argument is the repository's folder.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"go/format"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/service"
)

func main() {
	if err := write(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "services:", err)
		os.Exit(1)
	}
}

func write(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("usage: services FOLDER")
	}
	t := &tree{root: args[0], changed: map[string]string{}}
	if err := derive(t, product.Services); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(t.changed)) {
		if err := os.WriteFile(filepath.Join(t.root, name), []byte(t.changed[name]), 0o644); err != nil {
			return err
		}
		fmt.Println(name)
	}
	return nil
}

// tree is the repository below a folder. Changed files stay in memory until write.
type tree struct {
	root    string
	changed map[string]string
}

func (t *tree) read(name string) (string, error) {
	if text, ok := t.changed[name]; ok {
		return text, nil
	}
	text, err := os.ReadFile(filepath.Join(t.root, name))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return string(text), err
}

// change replaces a file's text by the result of do.
func (t *tree) change(name string, do func(string) (string, error)) error {
	before, err := t.read(name)
	if err != nil {
		return err
	}
	after, err := do(before)
	if err != nil {
		return err
	}
	if after != before {
		t.changed[name] = after
	}
	return nil
}

// derive updates all files that follow from the services' definitions.
func derive(t *tree, services []service.Definition) error {
	err := t.change("pkg/catalog/services.gen.go", func(string) (string, error) { return renderCatalog(services) })
	for _, s := range services {
		err = errors.Join(err, t.deploy(s))
	}
	return err
}

// environments returns the environment files of processes by path.
func (t *tree) environments() (map[string]string, error) {
	found, err := filepath.Glob(filepath.Join(t.root, environmentFolder, "*.env"))
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for _, path := range found {
		name := environmentFolder + filepath.Base(path)
		if all[name], err = t.read(name); err != nil {
			return nil, err
		}
	}
	for name, text := range t.changed {
		if strings.HasPrefix(name, environmentFolder) {
			all[name] = text
		}
	}
	return all, nil
}

// deploy adds a service to the files that lack it.
func (t *tree) deploy(s service.Definition) error {
	environments, err := t.environments()
	if err != nil {
		return err
	}
	path, text, number := environment(s.Name, environments)
	if text != "" {
		t.changed[path] = text
	}
	for _, file := range slices.Sorted(maps.Keys(itemPatterns)) {
		err = errors.Join(err, t.change(file, func(text string) (string, error) { return addItems(file, text, s.Name) }))
	}
	for _, file := range lists {
		err = errors.Join(err, t.change(file, func(text string) (string, error) { return addToLists(text, s.Name, number), nil }))
	}
	return errors.Join(err, t.change("docs/do/webhooks.md", func(text string) (string, error) {
		for _, topic := range slices.Sorted(maps.Keys(s.Topics)) {
			var needed []string
			for _, p := range s.Topics[topic] {
				needed = append(needed, p.String())
			}
			text = addTopic(text, topic, needed)
		}
		return text, nil
	}))
}

// renderCatalog returns the text of pkg/catalog/services.gen.go.
func renderCatalog(services []service.Definition) (string, error) {
	var text bytes.Buffer
	fmt.Fprint(&text, `// Code generated from product.Services by make services. DO NOT EDIT.

package catalog

import "github.com/ironplane/ironplane/pkg/auth/permission"

// Services are all services, in the order of their names. A test of a service that is not one of the product's adds it before
// anything runs.
var Services = []Service{
`)
	byName := func(a, b service.Definition) int { return strings.Compare(a.Name, b.Name) }
	for _, s := range slices.SortedFunc(slices.Values(services), byName) {
		fmt.Fprintf(&text, "\t{\n\t\tName: %q,\n\t\tPaths: []string{\n", s.Name)
		for _, path := range slices.Sorted(slices.Values(s.Paths)) {
			fmt.Fprintf(&text, "\t\t\t%q,\n", path)
		}
		fmt.Fprint(&text, "\t\t},\n\t\tTopics: map[string][]permission.Permission{\n")
		for _, topic := range slices.Sorted(maps.Keys(s.Topics)) {
			fmt.Fprintf(&text, "\t\t\t%q: {%s},\n", topic, constants(s.Topics[topic]))
		}
		fmt.Fprint(&text, "\t\t},\n\t},\n")
	}
	fmt.Fprint(&text, "}\n")
	formatted, err := format.Source(text.Bytes())
	return string(formatted), err
}

// constants returns the Go names of permissions: NetworkPortSpeeds for network.port_speeds.
func constants(all []permission.Permission) string {
	names := make([]string, len(all))
	for i, p := range all {
		var name strings.Builder
		name.WriteString("permission.")
		for word := range strings.FieldsFuncSeq(p.String(), func(r rune) bool { return r == '.' || r == '_' }) {
			if word == "pxe" {
				word = "PXE"
			}
			name.WriteString(strings.ToUpper(word[:1]) + word[1:])
		}
		names[i] = name.String()
	}
	return strings.Join(names, ", ")
}
