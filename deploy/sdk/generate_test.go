package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/deploy/sdk/model"
)

const (
	documentFile = "../../docs/reference/openapi.json"
	clientFolder = "../../pkg/client"
)

func countLines(files map[string][]byte) (n int) {
	for _, text := range files {
		n += bytes.Count(text, []byte("\n"))
	}
	return n
}

// TestSize holds the client to a size that people read: in all, and what a new resource with five operations adds.
func TestSize(t *testing.T) {
	t.Parallel()
	all := map[string][]byte{}
	names, err := filepath.Glob(filepath.Join(clientFolder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if !strings.HasSuffix(name, "_test.go") {
			if all[name], err = os.ReadFile(name); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := countLines(all); n < 1000 || n > 15_000 {
		t.Errorf("got a client of %d lines, want at most 15,000", n)
	}

	text, err := os.ReadFile(documentFile)
	if err != nil {
		t.Fatal(err)
	}
	var before, after model.Document
	renamed := strings.NewReplacer("/port-speed", "/gadget", "port_speed_id", "gadget_id", "PortSpeed", "Gadget").Replace(string(text))
	for text, d := range map[string]*model.Document{string(text): &before, renamed: &after} {
		if err := json.Unmarshal([]byte(text), d); err != nil {
			t.Fatal(err)
		}
	}
	for path, operations := range before.Paths {
		after.Paths[path] = operations
	}
	for name, schema := range before.Components.Schemas {
		after.Components.Schemas[name] = schema
	}
	old, err := generate(&before)
	if err != nil {
		t.Fatal(err)
	}
	added, err := generate(&after)
	if err != nil {
		t.Fatal(err)
	}
	n := countLines(added) - countLines(old)
	t.Logf("the client has %d lines, and a resource with five operations adds %d", countLines(all), n)
	if n < 50 || n > 300 {
		t.Errorf("got %d more lines with another resource, want at most 300", n)
	}
}

// TestEveryOperationHasAMethod finds each operation in the client, under a name of its own.
func TestEveryOperationHasAMethod(t *testing.T) {
	t.Parallel()
	d, err := model.Read(documentFile)
	if err != nil {
		t.Fatal(err)
	}
	described, found := 0, map[string]string{}
	for _, operations := range d.Paths {
		described += len(operations)
	}
	for _, r := range d.Resources() {
		for _, m := range r.Methods {
			name := r.Plural + "." + m.Name
			if other, ok := found[name]; ok {
				t.Errorf("got the method %s for %s and %s, want one each", name, other, m.ID)
			}
			found[name] = m.ID
		}
	}
	if len(found) != described {
		t.Errorf("got %d methods, want %d", len(found), described)
	}
	for name, id := range map[string]string{
		"Entities.List": "listIPEntities", "Groups.AllocateEntities": "allocateIPEntities", "Installs.Cancel": "cancelInstall",
		"PasswordResets.Finish": "finishPasswordReset", "SSL.Enable": "enableSSL", "SubLinks.Create": "createSubLink",
		"ForwardingGateways.Get": "getForwardingGateway", "ISOs.List": "listISOs",
	} {
		if found[name] != id {
			t.Errorf("got %s as %s, want %s", found[name], name, id)
		}
	}
}

// TestCollidingNames refuses a component that would have the name of a type of the package.
func TestCollidingNames(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(documentFile)
	if err != nil {
		t.Fatal(err)
	}
	var d model.Document
	if err := json.Unmarshal(bytes.ReplaceAll(text, []byte("PortSpeed\""), []byte("Client\"")), &d); err != nil {
		t.Fatal(err)
	}
	if _, err := generate(&d); err == nil || !strings.Contains(err.Error(), "rename one in its service") {
		t.Errorf("got %v, want the way out", err)
	}
}
