package process

import (
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/runtime/consul"
	"github.com/ironplane/ironplane/pkg/runtime/mtls"
)

// An incomplete configuration of the mesh stops the start, with an error that names what is missing.
func TestJoinLacks(t *testing.T) {
	t.Parallel()
	for lacks, c := range map[string]MeshConfig{
		"IRONPLANE_MESH_CERTIFICATE":  {},
		"IRONPLANE_OPERATIONS_LISTEN": {Config: consul.Config{Consul: "http://127.0.0.1:1"}},
		"CONSUL_URL":                  {Config: consul.Config{Consul: "127.0.0.1:1"}},
		"read the identity":           {Files: mtls.Files{Certificate: "nowhere"}},
	} {
		m, err := c.Join(t.Context(), "network", NewOperations("test"), slog.Default())
		if err == nil {
			m.Close()
		}
		if err == nil || !strings.Contains(err.Error(), lacks) {
			t.Errorf("want %s, got %v", lacks, err)
		}
	}
}

// A service that is named by a host name is found at all addresses of the host, also if no process runs there yet.
func TestFindByHostName(t *testing.T) {
	t.Parallel()
	authority, err := mtls.NewAuthority(time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	issued, err := authority.Issue("clients")
	if err != nil {
		t.Fatal(err)
	}
	write := func(name string, content []byte) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	c := MeshConfig{
		Services: Addresses{"clients": {"localhost:1"}, "network": {"localhost:8443"}, "pxe": {"10.0.0.5:8443"}},
		Files: mtls.Files{
			Certificate: write("mesh.crt", issued.Certificate),
			Key:         write("mesh.key", []byte(issued.Key.Reveal())),
			CA:          write("mesh-ca.crt", authority.Certificate()),
		},
	}
	m, err := c.Join(t.Context(), "clients", NewOperations("clients"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	type update struct {
		service   string
		addresses []string
	}
	updates := make(chan update, 16)
	if err := m.Find(t.Context(), func(service string, addresses []string) { updates <- update{service, addresses} }); err != nil {
		t.Fatal(err)
	}
	found := map[string][]string{}
	for range 2 {
		u := <-updates
		found[u.service] = u.addresses
	}
	if got := found["pxe"]; len(got) != 1 || got[0] != "10.0.0.5:8443" {
		t.Errorf("got pxe at %v, want it at its address", got)
	}
	if len(found["network"]) == 0 {
		t.Error("got network at no address, want those of localhost")
	}
	for _, address := range found["network"] {
		host, port, err := net.SplitHostPort(address)
		if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsLoopback() || port != "8443" {
			t.Errorf("got network at %q, want a loopback address with the port 8443", address)
		}
	}
	m.Refresh("pxe") // a service without a host name has nothing to look up
	m.Refresh("unknown")
}
