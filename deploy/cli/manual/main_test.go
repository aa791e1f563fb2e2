package main

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/pkg/client"
	"github.com/ironplane/ironplane/pkg/client/operations"
)

// TestEveryOperationHasAMethod says that the Go client has the methods that the page names.
func TestEveryOperationHasAMethod(t *testing.T) {
	t.Parallel()
	c, err := client.New("http://127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	resources, err := readResources(strings.NewReader("getGroup ironplane_group data.ironplane_group\n"))
	if err != nil {
		t.Fatal(err)
	}
	text := string(page(resources))
	for _, o := range operations.All().Operations {
		service := reflect.ValueOf(*c).FieldByName(o.Service)
		if !service.IsValid() || !service.MethodByName(o.Call).IsValid() {
			t.Errorf("%s: the Go client has no %s.%s", o.ID, o.Service, o.Call)
		}
		if strings.Count(text, "| "+o.ID+" |") != 1 {
			t.Errorf("the page does not name %s once", o.ID)
		}
	}
}

// TestMan writes the manual pages.
func TestMan(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	if err := run([]string{"man", folder}, nil); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(folder, "ironplane-entity-create.1"))
	if err != nil || !strings.Contains(string(text), `\fB--v4-gateway\fP`) {
		t.Errorf("got %v and %.200s, want the flags of entity create", err, text)
	}
	pages, err := filepath.Glob(filepath.Join(folder, "*.1"))
	if err != nil || len(pages) < len(operations.All().Operations) {
		t.Errorf("got %d pages, want one for each operation", len(pages))
	}
}

// TestCommandsOfTheConsole says that the console's file has the present commands.
func TestCommandsOfTheConsole(t *testing.T) {
	t.Parallel()
	want, err := commands()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../../gateway/console/commands.gen.json")
	if err != nil || string(got) != string(want) {
		t.Errorf("got another gateway/console/commands.gen.json (%v): run make go-client", err)
	}
}
