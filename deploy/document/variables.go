package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
)

// programs are the tables of variables.md. paths are the files and folders that declare the variables of a table.
var programs = []struct {
	title, text string
	paths       []string
}{
	{
		"All programs", "",
		[]string{"pkg/runtime/process/program.go", "pkg/runtime/process/operations.go"},
	},
	{
		"One process: `standalone`, and `split`",
		"They also read the variables of the gateway and of the services, except for those about other processes.",
		[]string{"deploy/internal/startup", "deploy/internal/datastores", "deploy/internal/product", "deploy/internal/backup"},
	},
	{"The gateway", "", []string{"gateway/server", "gateway"}},
	{
		"Services", "The text names the services if a variable is not for all of them.",
		[]string{"pkg/service", "pkg/runtime/server"},
	},
	{
		"Processes of one installation",
		"The gateway and the services read these if each runs in its own process. [Mesh](../understand/mesh.md) explains them.",
		[]string{"pkg/runtime/process/mesh.go", "pkg/runtime/consul", "pkg/runtime/mtls"},
	},
	{
		"First start",
		"These set the first value of a [setting](settings.md) when the system service starts for the first time. Later the setting counts.",
		[]string{"pkg/settings"},
	},
	{"`setup`", "", []string{"deploy/internal/setup", "deploy/internal/backup"}},
	{"`license`", "", []string{"deploy/internal/license"}},
	{"The site agent", "", []string{"services/pxe/cmd/site-agent"}},
}

// variables returns the page on environment variables. It reads the struct tags in the Go files below root.
func variables(root string) (string, error) {
	var page strings.Builder
	page.WriteString(`# Environment variables

This page lists every environment variable that a program reads, with its default. ` + "`make openapi`" + ` writes it from the code.
` + "`<program> help`" + ` prints those of one program.

A variable without a default is off while it is empty, unless its text says otherwise. Durations are written as ` + "`5s`" + ` or
` + "`2m`" + `. A secret can be in a file: the variable with ` + "`_FILE`" + ` after its name has the file's path. [Settings](settings.md) can be
changed while Ironplane runs.
`)
	for _, p := range programs {
		fmt.Fprintf(&page, "\n## %s\n\n", p.title)
		if p.text != "" {
			page.WriteString(p.text + "\n\n")
		}
		page.WriteString("| Variable | Default | Meaning |\n|---|---|---|\n")
		listed := map[string]bool{}
		for _, path := range p.paths {
			tags, err := configTags(filepath.Join(root, path))
			if err != nil {
				return "", err
			}
			for _, tag := range tags {
				if name := tag.Get("env"); !listed[name] {
					listed[name] = true
					fmt.Fprintf(&page, "| `%s` | %s | %s |\n", name, code(tag.Get("default")), strings.ReplaceAll(meaning(tag), "|", `\|`))
				}
			}
		}
	}
	return page.String(), nil
}

// meaning returns what a variable is for, and which services read it if others do not.
func meaning(tag reflect.StructTag) string {
	readers := strings.Fields(tag.Get("for"))
	if len(readers) == 0 {
		return tag.Get("doc")
	}
	return tag.Get("doc") + " Read by: " + strings.Join(readers, ", ") + "."
}

func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + text + "`"
}

// configTags returns the struct tags with an environment variable in a file or in the files of a folder, in order.
func configTags(path string) ([]reflect.StructTag, error) {
	var tags []reflect.StructTag
	err := filepath.WalkDir(path, func(file string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return err
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			if field, ok := n.(*ast.Field); ok && field.Tag != nil {
				text, _ := strconv.Unquote(field.Tag.Value)
				if tag := reflect.StructTag(text); tag.Get("env") != "" {
					tags = append(tags, tag)
				}
			}
			return true
		})
		return nil
	})
	return tags, err
}
