package process

import (
	"log/slog"
	"strings"
	"testing"

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
