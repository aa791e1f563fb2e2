// Sdk writes the Go client of the API, a file for each resource, and the table of all operations, from the API document.
// `make go-client` runs it:
//
//	go run ./deploy/sdk docs/reference/openapi.json pkg/client
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/ironplane/ironplane/deploy/sdk/model"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "sdk:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("usage: sdk DOCUMENT FOLDER")
	}
	d, err := model.Read(args[0])
	if err != nil {
		return err
	}
	files, err := generate(d)
	if err != nil {
		return err
	}
	if files[tableFile], err = generateTable(d); err != nil {
		return err
	}
	stale, err := filepath.Glob(filepath.Join(args[1], "*.gen.go"))
	if err != nil {
		return err
	}
	for _, name := range stale {
		if files[filepath.Base(name)] == nil {
			if err := os.Remove(name); err != nil {
				return err
			}
		}
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(args[1], name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
