//go:build containers

// Package containers tests the product as docker-compose.yml starts it, and the parts that need a real Consul.
package containers

import (
	"archive/tar"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/pkg/auth/principal"
)

const (
	root        = "../.."
	project     = "ironplane-test"
	upTimeout   = 20 * time.Minute // includes building the images
	downTimeout = 3 * time.Minute
	setupName   = "setup"
	// siteAgentName is the name of the site agent's program. Compose does not start it.
	siteAgentName = "site-agent"
)

// programs returns the names of all images.
func programs() []string { return append(product.Names(), principal.Gateway, setupName, siteAgentName) }

// installation is the product under test: two gateways, two instances of network, and one of each other service.
var installation struct {
	docker *testcontainers.DockerProvider
	key    string // the first admin's
	url    string // of one of the gateways
}

func TestMain(m *testing.M) {
	http.DefaultTransport.(*http.Transport).MaxIdleConnsPerHost = 256
	http.DefaultTransport.(*http.Transport).DialContext = (&net.Dialer{Timeout: 5 * time.Second}).DialContext
	if flag.Parse(); *full {
		loadDuration, callTimeout = 15*time.Second, 40*time.Second
	}
	code := 1
	err := up()
	if err == nil {
		code = m.Run()
	}
	if err = errors.Join(err, down()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// up builds the images and starts the product from nothing.
func up() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), upTimeout)
	defer cancel()
	if installation.docker, err = testcontainers.NewDockerProvider(); err != nil {
		return fmt.Errorf("find a Docker engine: %w", err)
	}
	if err := down(); err != nil { // an earlier run may have been killed
		return err
	}
	for _, name := range programs() {
		if _, err := run(
			ctx,
			"docker",
			"build",
			"-q",
			"-f",
			"deploy/Dockerfile",
			"--build-arg",
			"SERVICE="+name,
			"-t",
			"ironplane-"+name,
			".",
		); err != nil {
			return err
		}
	}
	begin := time.Now()
	if _, err := compose(ctx, "up", "--no-build", "--wait", "--scale", "network=2", "--scale", "gateway=2"); err != nil {
		logs, _ := compose(ctx, "logs")
		return fmt.Errorf("%w\n%s", err, logs)
	}
	fmt.Printf("the product is ready after %s\n", time.Since(begin).Round(time.Second))
	key, err := compose(ctx, "run", "--rm", "setup", "admin-key")
	if err != nil {
		return err
	}
	installation.key = strings.TrimSpace(key)
	ip, err := findContainers(ctx, principal.Gateway)[0].ContainerIP(ctx)
	if err != nil {
		return err
	}
	installation.url = "http://" + net.JoinHostPort(ip, "8080")
	return nil
}

// down removes the product. It fails if a container, volume or network is left.
func down() error {
	ctx, cancel := context.WithTimeout(context.Background(), downTimeout)
	defer cancel()
	if _, err := compose(ctx, "down", "--volumes", "--timeout", "30"); err != nil {
		return err
	}
	// A restore on a new machine creates this volume without compose.
	if _, err := run(ctx, "docker", "volume", "rm", "--force", project+"_secrets-setup"); err != nil {
		return err
	}
	docker, of := installation.docker.Client(), client.Filters{}.Add("label", "com.docker.compose.project="+project)
	containers, err := docker.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: of})
	volumes, err2 := docker.VolumeList(ctx, client.VolumeListOptions{Filters: of})
	networks, err3 := docker.NetworkList(ctx, client.NetworkListOptions{Filters: of})
	if err := errors.Join(err, err2, err3); err != nil {
		return err
	}
	if n := len(containers.Items) + len(volumes.Items) + len(networks.Items); n > 0 {
		return fmt.Errorf("compose down left %d containers, volumes and networks", n)
	}
	return nil
}

func compose(ctx context.Context, arguments ...string) (string, error) {
	return run(ctx, "docker", slices.Concat([]string{"compose", "-p", project}, arguments)...)
}

// run runs a program in the repository's root, and returns its output.
func run(ctx context.Context, name string, arguments ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, arguments...)
	cmd.Dir = root
	const many = "1000000"
	cmd.Env = append(
		os.Environ(),
		"DOCKER_BUILDKIT=1",
		"IRONPLANE_PUBLISH=127.0.0.1:0",
		"IRONPLANE_OWNER_RATE="+many,
		"IRONPLANE_OWNER_BURST="+many,
		"IRONPLANE_ADDRESS_RATE="+many,
		"IRONPLANE_ADDRESS_BURST="+many,
		"IRONPLANE_OWNER_CONCURRENCY="+many,
		"IRONPLANE_ADDRESS_CONCURRENCY="+many,
	)
	var screen strings.Builder
	cmd.Stderr = &screen
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, screen.String())
	}
	return string(out), nil
}

// findContainers returns the running containers of a service in the compose file.
func findContainers(ctx context.Context, service string) (all []*testcontainers.DockerContainer) {
	discovery, err := installation.docker.Client().ContainerList(ctx, client.ContainerListOptions{Filters: client.Filters{}.
		Add("label", "com.docker.compose.project="+project, "com.docker.compose.service="+service, "com.docker.compose.oneoff=False")})
	if err != nil {
		panic(err)
	}
	slices.SortFunc(discovery.Items, func(a, b container.Summary) int { return strings.Compare(a.Names[0], b.Names[0]) })
	for _, summary := range discovery.Items {
		c, err := installation.docker.ContainerFromType(ctx, summary)
		if err != nil {
			panic(err)
		}
		all = append(all, c)
	}
	return all
}

// findContainer returns the first container of a service.
func findContainer(t *testing.T, service string) *testcontainers.DockerContainer {
	t.Helper()
	all := findContainers(t.Context(), service)
	if len(all) == 0 {
		t.Fatalf("got no running container of %s, want one", service)
	}
	return all[0]
}

// ip returns the address of a container.
func ip(t *testing.T, c testcontainers.Container) string {
	t.Helper()
	ip, err := c.ContainerIP(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return ip
}

// readSecret returns the content of a file among a service's secrets.
func readSecret(t *testing.T, service, file string) string {
	t.Helper()
	id, options := findContainer(t, service).GetContainerID(), client.CopyFromContainerOptions{SourcePath: "/secrets/" + file}
	copied, err := installation.docker.Client().CopyFromContainer(t.Context(), id, options)
	if err != nil {
		t.Fatal(err)
	}
	defer copied.Content.Close()
	files := tar.NewReader(copied.Content)
	if _, err := files.Next(); err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(files)
	if err != nil || len(content) == 0 {
		t.Fatalf("%s: got %d bytes (%v), want some", file, len(content), err)
	}
	return strings.TrimSpace(string(content))
}
