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
	"github.com/ironplane/ironplane/deploy/internal/tour"
	"github.com/ironplane/ironplane/pkg/auth/principal"
)

// The README's tour works on what the compose file starts.
func TestTour(t *testing.T) { tour.Take(t, root, installed.url, installed.key) }

// largest is how many bytes an image has at most, and largestRendering one with text/template: its reflection keeps the
// linker from leaving out what is not called. That of identity reads what security keys say, that of pxe has a client of S3 besides, of
// 11 MB, and one has all services in it.
const largest, largestRendering, largestStoring, largestSigningIn, largestOfAll = 28_000_000, 40_000_000, 51_000_000, 31_000_000, 61_000_000

func TestImages(t *testing.T) {
	commit, _ := exec.Command("git", "rev-parse", "--verify", "HEAD").Output()
	for _, name := range programs() {
		image, err := installed.docker.Client().ImageInspect(t.Context(), "ironplane-"+name)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %.1f MB", name, float64(image.Size)/1e6)
		most := int64(largest)
		switch name {
		case "identity":
			most = largestSigningIn
		case "system":
			most = largestRendering
		case "pxe":
			most = largestStoring
		case "setup":
			most = largestOfAll
		}
		if image.Size > most {
			t.Errorf("the image of %s: got %d bytes, want at most %d", name, image.Size, most)
		}
		if image.Config.User != "65532:65532" {
			t.Errorf("the image of %s: got the user %q, want 65532:65532", name, image.Config.User)
		}
		said, err := run(t.Context(), "docker", "run", "--rm", "--network=none", "ironplane-"+name, "--version")
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(said, name+" ") || strings.Contains(said, "unknown") != worktree() ||
			!worktree() && !strings.Contains(said, strings.TrimSpace(string(commit))) {
			t.Errorf("%s --version: got %s, want its name and commit %q (unknown in a second work tree)", name, said, commit)
		}
	}
}

// worktree tells whether the source is a second worktree, whose .git an image cannot see.
func worktree() bool {
	return exec.Command("test", "-d", root+"/.git").Run() != nil
}

// What serves may do no more than it has to, and holds its secrets in files alone.
func TestContainers(t *testing.T) {
	docker := installed.docker.Client()
	secrets := []string{
		secretOf(t, "postgres", "password"),
		secretOf(t, "redis", "password"),
		secretOf(t, "consul", "management-token"),
		secretOf(t, "pxe", "process-key"),
		secretOf(t, "pxe", "redis-url"),
		installed.key,
	}
	for _, name := range append(product.Names(), principal.Gateway) {
		secrets = append(secrets, secretOf(t, name, "consul-token"))
		if name != principal.Gateway {
			secrets = append(secrets, password(t, name))
		}
		for _, c := range containersOf(t.Context(), name) {
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
		holdsNone(t, summary.Names[0], string(text), secrets)
	}
	logs, err := compose(t.Context(), "logs")
	if err != nil {
		t.Fatal(err)
	}
	holdsNone(t, "the log", logs, secrets)
}

func holdsNone(t *testing.T, what, text string, secrets []string) {
	t.Helper()
	for _, secret := range secrets {
		if len(secret) < 16 {
			t.Fatalf("got a secret of %d characters, want at least 16", len(secret))
		}
		if strings.Contains(text, secret) {
			t.Errorf("%s: got a secret in it, want none", what)
		}
	}
}

// password is that of a service's role.
func password(t *testing.T, service string) string {
	t.Helper()
	u, err := url.Parse(secretOf(t, service, "database-url"))
	if err != nil {
		t.Fatal("got a database URL that does not parse, want one that does")
	}
	password, _ := u.User.Password()
	return password
}

// The database refuses a service what is another's.
func TestSchemas(t *testing.T) {
	at := net.JoinHostPort(ip(t, oneOf(t, "postgres")), "5432")
	for _, service := range product.Names() {
		u, err := url.Parse(secretOf(t, service, "database-url"))
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

// Replicas that start at once all migrate.
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
