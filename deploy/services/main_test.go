package main

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/service"
)

const root = "../.."

// Every file that names the services has what follows from their definitions.
func TestFilesAreInStep(t *testing.T) {
	t.Parallel()
	files := &tree{root: root, changed: map[string]string{}}
	if err := derive(files, product.Services); err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(files.changed)) {
		t.Errorf("%s is out of step with product.Services: run make services, and commit what it writes", name)
	}
}

// A service that is added to product.Services is added to each file, once.
func TestAddedServiceIsDeployed(t *testing.T) {
	t.Parallel()
	gadgets := service.Definition{
		Name:   "gadgets",
		Paths:  []string{"gadget"},
		Topics: map[string][]permission.Permission{"gadget": {permission.ServerSettings}},
	}
	services := append(slices.Clone(product.Services), gadgets)
	files := &tree{root: root, changed: map[string]string{}}
	if err := derive(files, services); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]string{
		"pkg/catalog/services.gen.go": {`"gadget": {permission.ServerSettings},`},
		"docker-compose.yml": {
			"IRONPLANE_SERVICES: clients identity network pxe gadgets system\n",
			"\n      gadgets: {condition: service_healthy}\n",
			"\n  gadgets:\n    <<: *serving\n    image: ironplane-gadgets\n",
			"\n      gadgets-migrate: {condition: service_completed_successfully}\n\n",
			"\n  gadgets-migrate:\n    <<: *migrating\n    image: ironplane-gadgets\n",
			"\n      - secrets-gadgets:/secrets/gadgets\n",
			"\n  secrets-gadgets:\n",
		},
		"deploy/packages/etc/gadgets.env":          {"IRONPLANE_LISTEN=127.0.0.1:8447\n", "=127.0.0.1:9447\n"},
		"deploy/packages/etc/ironplane.env":        {" gadgets=127.0.0.1:8447 system=", "pxe gadgets system\n"},
		"deploy/packages/removing.sh":              {" ironplane-service@gadgets ironplane-service@system\n"},
		"deploy/packages/systemd/ironplane.target": {"\nWants=ironplane-service@gadgets.service\n"},
		"deploy/packages/systemd/sysusers.conf":    {"u ironplane-gadgets "},
		"deploy/packages/systemd/tmpfiles.conf":    {"d /etc/ironplane/secrets/gadgets "},
		"docs/install.md":                          {" gadgets=$HOST:8447 system="},
		"docs/restore.md":                          {"SERVICES:=clients identity network pxe gadgets system}"},
		"docs/webhooks.md":                         {"| `gadget.*` | `server.settings` |\n"},
	} {
		for _, part := range want {
			if n := strings.Count(files.changed[name], part); n < 1 {
				t.Errorf("%s: got %d times %q, want it there", name, n, part)
			}
		}
	}
	once := maps.Clone(files.changed)
	if err := derive(files, services); err != nil {
		t.Fatal(err)
	}
	for name, text := range files.changed {
		if text != once[name] {
			t.Errorf("%s: got another change the second time, want none", name)
		}
	}
}
