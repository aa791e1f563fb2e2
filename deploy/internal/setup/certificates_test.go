package setup

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/pkg/runtime/mtls"
)

// TestCertificates shows that each process gets a certificate of its own, and that a second run creates new ones with the
// same authority. The printed SQL has no password.
func TestCertificates(t *testing.T) {
	t.Parallel()
	i := &installation{t, config{Secrets: t.TempDir(), Redis: "127.0.0.1:1", Postgres: "127.0.0.1:1"}}
	if err := createSecrets(i.config); err != nil {
		t.Fatal(err)
	}
	load := func(name, folder string) error {
		_, err := mtls.Load(name, mtls.Files{
			Certificate: filepath.Join(
				i.config.Secrets,
				folder,
				"mesh.crt",
			),
			Key: filepath.Join(i.config.Secrets, folder, "mesh.key"),
			CA:  filepath.Join(i.config.Secrets, folder, "mesh-ca.crt"),
		})
		return err
	}
	certificates := map[string]string{}
	for range 2 {
		if err := i.config.createCertificates(); err != nil {
			t.Fatal(err)
		}
		for _, name := range processes() {
			if err := load(name, name); err != nil {
				t.Error(err)
			}
			if certificates[name] == i.content(name+"/mesh.crt") {
				t.Errorf("got the same certificate for %s, want a new one", name)
			}
			certificates[name] = i.content(name + "/mesh.crt")
		}
		if authority := i.content("gateway/mesh-ca.crt"); certificates[""] != "" && certificates[""] != authority {
			t.Error("got another authority, want the same")
		} else {
			certificates[""] = authority
		}
	}
	if err := load("gateway", "network"); err == nil {
		t.Error("got network's certificate accepted for the gateway, want a refusal")
	}
	var printed strings.Builder
	if err := i.config.printSQL(
		&printed,
	); err != nil || strings.Contains(printed.String(), i.content("setup/postgres-password")) ||
		!strings.Contains(printed.String(), "SCRAM-SHA-256$") {
		t.Errorf("got %v: %s, want a SCRAM secret and no password", err, &printed)
	}
}
