//go:build containers

package containers

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/pxe/siteagent"
)

// TestSiteAgentImage starts an agent in a container with the commands of docs/do/site-agent.md. The container is restricted,
// and the agent's files survive a restart.
func TestSiteAgentImage(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a folder to another user")
	}
	const name, folder, published = "ironplane-test-site-agent", "/srv/site-agent", "-p 8443:8443"
	script := testkit.CodeBlock(t, root+"/docs/do/site-agent.md", "agent container")
	for _, has := range []string{folder, published, "--name site-agent", "exec site-agent"} {
		if !strings.Contains(script, has) {
			t.Fatalf("got the block\n%s\nwant %q in it", script, has)
		}
	}
	kept := t.TempDir()
	if err := os.Chmod(filepath.Dir(kept), 0o755); err != nil { // the agent runs as another user
		t.Fatal(err)
	}
	remove := func() {
		ctx, cancel := context.WithTimeout(context.Background(), downTimeout)
		defer cancel()
		_, _ = run(ctx, "docker", "rm", "--force", name) // there may be none
	}
	remove()
	t.Cleanup(remove)
	script = strings.NewReplacer(
		folder, kept, published, "", "--name site-agent", "--name "+name, "exec site-agent", "exec "+name, "--restart always", "",
	).
		Replace(script)
	output, err := run(t.Context(), "sh", "-e", "-c", script)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(output), "\n")
	fingerprint := lines[len(lines)-1]
	key, err := os.ReadFile(filepath.Join(kept, "key"))
	if err != nil {
		t.Fatal(err)
	}
	httpClient, err := siteagent.NewHTTPClient(fingerprint)
	if err != nil {
		t.Fatal(err)
	}
	c := &siteagent.Client{Key: secret.New(strings.TrimSpace(string(key))), HTTP: httpClient}
	ready := func() {
		t.Helper()
		ip, err := run(t.Context(), "docker", "inspect", "--format", "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}", name)
		if err != nil {
			t.Fatal(err)
		}
		c.URL = "https://" + net.JoinHostPort(strings.TrimSpace(ip), "8443")
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
			is, err := c.GetHealth(t.Context())
			if err == nil && is.TotalBytes > 0 {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("got no response from the agent (%v), want one", err)
			}
		}
	}
	ready()
	const content = "a kernel"
	sum := sha256.Sum256([]byte(content))
	file := siteagent.File{Path: "boot/vmlinuz", Size: int64(len(content)), SHA256: hex.EncodeToString(sum[:])}
	if err := c.Put(t.Context(), file, 0, strings.NewReader(content)); err != nil {
		t.Fatal(err)
	}
	if _, err := run(t.Context(), "docker", "restart", name); err != nil {
		t.Fatal(err)
	}
	ready()
	got, err := c.Open(t.Context(), file, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Close()
	if text, err := io.ReadAll(got); err != nil || string(text) != content {
		t.Errorf("got %q (%v), want %q", text, err, content)
	}
	is, err := run(
		t.Context(),
		"docker",
		"inspect",
		"--format",
		"{{.Config.User}} {{.HostConfig.ReadonlyRootfs}} {{.HostConfig.CapDrop}}",
		name,
	)
	if err != nil || strings.TrimSpace(is) != "65532:65532 true [ALL]" {
		t.Errorf("got %s (%v), want 65532:65532 true [ALL]", is, err)
	}
	logs, err := run(t.Context(), "docker", "logs", name)
	if err != nil {
		t.Fatal(err)
	}
	checkNoSecrets(t, "the agent's log", logs, []string{c.Key.Reveal()})
}
