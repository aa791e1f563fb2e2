//go:build containers

package containers

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/url"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/moby/moby/client"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/pkg/auth/principal"
)

// The maximum sizes of images in bytes. An image with text/template is larger, since reflection keeps the linker from removing
// unused methods. The image of identity decodes security keys' messages and has lists of common passwords, that of pxe has a
// client of S3 (11 MB), and that of setup has all services.
const maxBytes, maxBytesSystem, maxBytesPXE, maxBytesIdentity, maxBytesSetup = 28_000_000, 40_000_000, 51_000_000, 32_000_000, 64_000_000

func TestImages(t *testing.T) {
	commit, _ := exec.Command("git", "rev-parse", "--verify", "HEAD").Output()
	for _, name := range programs() {
		image, err := installation.docker.Client().ImageInspect(t.Context(), "ironplane-"+name)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %.1f MB", name, float64(image.Size)/1e6)
		limit := int64(maxBytes)
		switch name {
		case "identity":
			limit = maxBytesIdentity
		case "system":
			limit = maxBytesSystem
		case "pxe":
			limit = maxBytesPXE
		case "setup":
			limit = maxBytesSetup
		}
		if image.Size > limit {
			t.Errorf("the image of %s: got %d bytes, want at most %d", name, image.Size, limit)
		}
		if image.Config.User != "65532:65532" {
			t.Errorf("the image of %s: got the user %q, want 65532:65532", name, image.Config.User)
		}
		output, err := run(t.Context(), "docker", "run", "--rm", "--network=none", "ironplane-"+name, "--version")
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(output, name+" ") || strings.Contains(output, "unknown") != worktree() ||
			!worktree() && !strings.Contains(output, strings.TrimSpace(string(commit))) {
			t.Errorf("%s --version: got %s, want its name and commit %q (unknown in a second work tree)", name, output, commit)
		}
	}
}

// worktree reports whether the source is a second work tree. Its .git is a file that refers to a folder outside of the image.
func worktree() bool {
	return exec.Command("test", "-d", root+"/.git").Run() != nil
}

// TestContainers checks the restrictions of the serving containers, and that secrets are only in files.
func TestContainers(t *testing.T) {
	docker := installation.docker.Client()
	secrets := []string{
		readSecret(t, "postgres", "password"),
		readSecret(t, "redis", "password"),
		readSecret(t, "consul", "management-token"),
		readSecret(t, "pxe", "process-key"),
		readSecret(t, "pxe", "redis-url"),
		installation.key,
	}
	for _, name := range append(product.Names(), principal.Gateway) {
		secrets = append(secrets, readSecret(t, name, "consul-token"))
		if name != principal.Gateway {
			secrets = append(secrets, password(t, name))
		}
		for _, c := range findContainers(t.Context(), name) {
			is, err := c.Inspect(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if h := is.HostConfig; !h.ReadonlyRootfs || len(h.CapDrop) != 1 || h.Memory == 0 || h.NanoCPUs == 0 || *h.PidsLimit == 0 ||
				is.State.Health.Status != "healthy" {
				t.Errorf("%s: got %s and %+v, want healthy, with limits and a read-only root", is.Name, is.State.Health.Status, h)
			}
		}
	}
	all, err := docker.ContainerList(
		t.Context(),
		client.ContainerListOptions{All: true, Filters: client.Filters{}.Add("label", "com.docker.compose.project="+project)},
	)
	if err != nil {
		t.Fatal(err)
	}
	for _, summary := range all.Items {
		is, err := docker.ContainerInspect(t.Context(), summary.ID, client.ContainerInspectOptions{})
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(is)
		if err != nil {
			t.Fatal(err)
		}
		checkNoSecrets(t, summary.Names[0], string(text), secrets)
	}
	logs, err := compose(t.Context(), "logs")
	if err != nil {
		t.Fatal(err)
	}
	checkNoSecrets(t, "the log", logs, secrets)
}

func checkNoSecrets(t *testing.T, name, text string, secrets []string) {
	t.Helper()
	for _, secret := range secrets {
		if len(secret) < 16 {
			t.Fatalf("got a secret of %d characters, want at least 16", len(secret))
		}
		if strings.Contains(text, secret) {
			t.Errorf("%s: got a secret in it, want none", name)
		}
	}
}

// password returns the password of a service's role.
func password(t *testing.T, service string) string {
	t.Helper()
	u, err := url.Parse(readSecret(t, service, "database-url"))
	if err != nil {
		t.Fatal("got a database URL that does not parse, want one that does")
	}
	password, _ := u.User.Password()
	return password
}

// TestSchemas shows that the database refuses a service access to other schemas.
func TestSchemas(t *testing.T) {
	at := net.JoinHostPort(ip(t, findContainer(t, "postgres")), "5432")
	for _, service := range product.Names() {
		u, err := url.Parse(readSecret(t, service, "database-url"))
		if err != nil {
			t.Fatal("got a database URL that does not parse, want one that does")
		}
		u.Host = at
		conn, err := pgx.Connect(t.Context(), u.String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(context.WithoutCancel(t.Context()))
		var n int
		if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM "+service+".change").Scan(&n); err != nil {
			t.Errorf("%s: got %v when it reads its own changes, want success", service, err)
		}
		refused := []string{"CREATE SCHEMA more", "CREATE TABLE ext.more ()", "CREATE ROLE more", "SELECT pg_read_file('/secrets/password')"}
		for _, other := range product.Names() {
			if other != service {
				refused = append(
					refused,
					"SELECT FROM "+other+".change",
					"DELETE FROM "+other+".change",
					"CREATE TABLE "+other+".more ()",
					"SET ROLE ironplane_"+other,
				)
			}
		}
		for _, statement := range refused {
			_, err := conn.Exec(t.Context(), statement)
			if state := (*pgconn.PgError)(nil); !errors.As(err, &state) || state.Code != "42501" { // insufficient_privilege
				t.Errorf("%s: %s: got %v, want insufficient_privilege (42501)", service, statement, err)
			}
		}
	}
}

// TestMigrateTogether shows that replicas can migrate at the same time.
func TestMigrateTogether(t *testing.T) {
	var replicas sync.WaitGroup
	for range 4 {
		replicas.Go(func() {
			if _, err := compose(t.Context(), "run", "--rm", "--no-deps", "network-migrate"); err != nil {
				t.Error(err)
			}
		})
	}
	replicas.Wait()
}
