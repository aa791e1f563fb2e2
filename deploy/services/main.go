// Services writes what follows from the services' definitions (product.Services): pkg/catalog/services.gen.go. Its argument is
// the repository's folder.
package main

import (
	"bytes"
	"fmt"
	"go/format"
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
	files, err := derive(args[0], product.Services)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := os.WriteFile(filepath.Join(args[0], name), files[name], 0o644); err != nil {
			return err
		}
		fmt.Println(name)
	}
	return nil
}

// derive returns the files that do not have what follows from the services, as they are to be, by their path below root.
func derive(root string, services []service.Definition) (files map[string][]byte, err error) {
	files = map[string][]byte{}
	const name = "pkg/catalog/services.gen.go"
	want, err := catalogOf(services)
	if err != nil {
		return nil, err
	}
	if got, err := os.ReadFile(filepath.Join(root, name)); err != nil || !bytes.Equal(got, want) {
		files[name] = want
	}
	return files, nil
}

// catalogOf is pkg/catalog/services.gen.go.
func catalogOf(services []service.Definition) ([]byte, error) {
	var text bytes.Buffer
	fmt.Fprint(&text, `// Code generated from product.Services by make services. DO NOT EDIT.

package catalog

import "github.com/ironplane/ironplane/pkg/auth/permission"

// Services are all services, in the order of their names. A test of a service that is not one of the product's adds it before
// anything runs.
var Services = []Service{
`)
	for _, s := range slices.SortedFunc(slices.Values(services), func(a, b service.Definition) int { return strings.Compare(a.Name, b.Name) }) {
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
	return format.Source(text.Bytes())
}

// constants are the names of permissions in Go: network.port_speeds is NetworkPortSpeeds.
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
