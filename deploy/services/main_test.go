package main

import (
	"maps"
	"regexp"
	"slices"
	"testing"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/service"
)

const root = "../.."

// TestFilesAreInStep checks that every file that names the services is up to date with their definitions.
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

// TestAddedServiceIsDeployed shows that a service in product.Services is added to each file, and only once.
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
			`IRONPLANE_SERVICES: clients .* gadgets system\n`,
			`\n      gadgets: {condition: service_healthy}\n`,
			`\n  gadgets:\n    <<: \*serving\n    image: ironplane-gadgets\n`,
			`\n      gadgets-migrate: {condition: service_completed_successfully}\n\n`,
			`\n  gadgets-migrate:\n    <<: \*migrating\n    image: ironplane-gadgets\n`,
			`\n      - secrets-gadgets:/secrets/gadgets\n`,
			`\n  secrets-gadgets:\n`,
		},
		"deploy/chart/values.yaml":                 {`\n  gadgets:\n    replicas: 2\n    callers: `},
		"deploy/packages/etc/gadgets.env":          {`IRONPLANE_LISTEN=127.0.0.1:84\d\d\n`, `LISTEN=127.0.0.1:94\d\d\n`},
		"deploy/packages/etc/ironplane.env":        {` gadgets=127.0.0.1:84\d\d system=`, `#.* gadgets system\n`},
		"deploy/packages/removing.sh":              {` ironplane-service@gadgets ironplane-service@system\n`},
		"deploy/packages/systemd/ironplane.target": {`\nWants=ironplane-service@gadgets.service\n`},
		"deploy/packages/systemd/sysusers.conf":    {`\nu ironplane-gadgets `},
		"deploy/packages/systemd/tmpfiles.conf":    {`\nd /etc/ironplane/secrets/gadgets `},
		"docs/operate/install.md":                  {` gadgets=\$HOST:84\d\d system=`},
		"docs/operate/kubernetes.md":               {` gadgets system; do\n`},
		"docs/operate/backup.md":                   {`SERVICES:=clients .* gadgets system}`},
		"docs/do/webhooks.md":                      {"\n[|] `gadget.\\*` [|] `server.settings` [|]\n"},
	} {
		for _, part := range want {
			if !regexp.MustCompile(part).MatchString(files.changed[name]) {
				t.Errorf("%s: got nothing like %q, want it for the service gadgets", name, part)
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
