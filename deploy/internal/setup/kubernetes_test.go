package setup

import (
	"bytes"
	"encoding/base64"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/runtime/mtls"
	"github.com/ironplane/ironplane/pkg/secret"
)

// decodeManifests returns the decoded content of the printed Secrets by name and key.
func decodeManifests(t *testing.T, printed []byte) map[string]map[string]string {
	t.Helper()
	secrets := map[string]map[string]string{}
	for decoder := yaml.NewDecoder(bytes.NewReader(printed)); ; {
		var m manifest
		if err := decoder.Decode(&m); errors.Is(err, io.EOF) {
			return secrets
		} else if err != nil {
			t.Fatal(err)
		}
		if m.APIVersion != "v1" || m.Kind != "Secret" || secrets[m.Metadata.Name] != nil {
			t.Errorf("got %s %s %s, want each Secret once", m.APIVersion, m.Kind, m.Metadata.Name)
		}
		secrets[m.Metadata.Name] = map[string]string{}
		for key, encoded := range m.Data {
			content, err := base64.StdEncoding.DecodeString(encoded)
			if err != nil {
				t.Fatal(err)
			}
			secrets[m.Metadata.Name][key] = string(content)
		}
	}
}

// TestManifests shows that each process gets a Secret with what it needs, and nothing of another process, and that a second run
// prints the same. The keys from which others are derived stay in the folder.
func TestManifests(t *testing.T) {
	t.Parallel()
	i := &installation{t, config{Secrets: t.TempDir(), Redis: "redis.example:6379", Postgres: "postgres.example:5432"}}
	printAll := func() []byte {
		var printed bytes.Buffer
		if err := i.config.printManifests(&printed); err != nil {
			t.Fatal(err)
		}
		return printed.Bytes()
	}
	printed := printAll()
	if !bytes.Equal(printed, printAll()) {
		t.Error("got other manifests at a second run, want the same")
	}
	secrets := decodeManifests(t, printed)
	for _, name := range processes() {
		own, pair := secrets["ironplane-"+name], secrets["ironplane-"+name+"-certificate"]
		want := []string{"database-url", "process-key", "redis-url"}
		if name == principal.Gateway {
			want = want[1:]
		}
		if got := slices.Sorted(maps.Keys(own)); !slices.Equal(got, want) {
			t.Errorf("%s: got the keys %q, want %q", name, got, want)
		}
		for key, content := range own {
			if content != i.content(name+"/"+key) {
				t.Errorf("%s: got another %s than in the folder", name, key)
			}
		}
		issued := mtls.Issued{Certificate: []byte(pair["tls.crt"]), Key: secret.New(pair["tls.key"])}
		_, err := mtls.NewIdentity(name, issued, []byte(pair["ca.crt"]))
		if err != nil {
			t.Errorf("%s: got a certificate that cannot be used: %v", name, err)
		}
	}
	if got, want := len(secrets), 2*len(processes())+2; got != want {
		t.Errorf("got %d Secrets, want %d", got, want)
	}
	if secrets["ironplane-setup"]["network-password"] != i.content("setup/network-password") ||
		strings.TrimSpace(secrets["ironplane-redis"]["users.acl"]) != i.content("redis/users.acl") {
		t.Error("got no passwords for the database's roles, or no users of Redis")
	}
	for _, private := range []string{"master-key", "authority.key", "consul-management-token", "network-consul-token"} {
		hidden := i.content("setup/" + private)
		for name, own := range secrets {
			for key, content := range own {
				if strings.Contains(content, hidden) {
					t.Errorf("got %s in %s of %s, want it only in the folder", private, key, name)
				}
			}
		}
	}
}

// TestNewCertificatesInManifests shows that new certificates are printed once the command certificates has created them.
func TestNewCertificatesInManifests(t *testing.T) {
	t.Parallel()
	c := config{Secrets: t.TempDir(), Redis: "127.0.0.1:1", Postgres: "127.0.0.1:1"}
	certificate := func() map[string]string {
		var printed bytes.Buffer
		if err := c.printManifests(&printed); err != nil {
			t.Fatal(err)
		}
		return decodeManifests(t, printed.Bytes())["ironplane-network-certificate"]
	}
	before := certificate()
	if err := c.createCertificates(); err != nil {
		t.Fatal(err)
	}
	after := certificate()
	if before["tls.crt"] == after["tls.crt"] || before["ca.crt"] != after["ca.crt"] {
		t.Error("want a new certificate of the same authority")
	}
}

// TestSecretsOption shows that manifests go to standard output, and that another option is an error.
func TestSecretsOption(t *testing.T) {
	t.Parallel()
	environment := []string{"IRONPLANE_SECRETS=" + t.TempDir()}
	var out bytes.Buffer
	err := Program().Run(t.Context(), []string{"secrets", "--yaml"}, environment, &out)
	if err == nil || !strings.Contains(err.Error(), "secrets [--kubernetes]") {
		t.Errorf("got %v, want an error with the usage", err)
	}
	err = Program().Run(t.Context(), []string{"help"}, environment, &out)
	if err != nil || !strings.Contains(out.String(), "secrets [--kubernetes]") {
		t.Errorf("got %v and the help %s, want the option in it", err, &out)
	}
}
