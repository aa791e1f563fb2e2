package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ironplane/ironplane/deploy/internal/ports"
	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/gateway"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/devservers/child"
	"github.com/ironplane/ironplane/pkg/runtime/mtls"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/settings"
)

const (
	// certificateTTL is how long the certificates of a run are valid, which bounds the length of a run.
	certificateTTL = 30 * 24 * time.Hour
	// readyTimeout bounds the time until a process listens, and migrateTimeout the time of a migration.
	readyTimeout   = 3 * time.Minute
	migrateTimeout = 5 * time.Minute
	// stopTimeout bounds the time to stop all processes. It is longer than a process takes to drain.
	stopTimeout = 3 * time.Minute
)

// fleet is the processes of one run. They read their secrets from files that only the current user can read.
type fleet struct {
	folder, programs string
	addresses        map[string]string   // by process name
	environment      []string            // of this process; each child gets a part of it
	added            map[string][]string // further variables by service name
	processes        map[string]*child.Child
	watching         sync.WaitGroup
	ended            chan error // receives the error of the first process that ended by itself
}

// newFleet issues the certificates, and writes the certificates and secrets of each process to files.
func newFleet(
	folder, programs string,
	environment []string,
	databases map[string]secret.String,
	masterKey, redis secret.String,
) (*fleet, error) {
	names := product.Names()
	free, err := ports.Free(len(names))
	if err != nil {
		return nil, err
	}
	addresses := map[string]string{}
	for n, name := range names {
		addresses[name] = free[n]
	}
	authority, err := mtls.NewAuthority(certificateTTL)
	if err != nil {
		return nil, err
	}
	f := &fleet{
		folder:      folder,
		programs:    programs,
		environment: environment,
		addresses:   addresses,
		added:       map[string][]string{},
		processes:   map[string]*child.Child{},
		ended:       make(chan error, 1),
	}
	content := map[string]string{"ca.crt": string(authority.Certificate()), "redis-url": redis.Reveal()}
	for _, name := range append(names, principal.Gateway) {
		issued, err := authority.Issue(name)
		if err != nil {
			return nil, err
		}
		content[name+".crt"], content[name+".key"] = string(issued.Certificate), issued.Key.Reveal()
	}
	keys, err := product.DeriveProcessKeys(masterKey)
	if err != nil {
		return nil, err
	}
	for name, key := range keys {
		content[name+".process-key"] = key.Text().Reveal()
	}
	for name, url := range databases {
		content[name+".database-url"] = url.Reveal()
	}
	for file, text := range content {
		if err := os.WriteFile(f.file(file), []byte(text), 0o600); err != nil {
			return nil, fmt.Errorf("write the file of a secret: %w", err)
		}
	}
	return f, nil
}

func (f *fleet) file(name string) string { return filepath.Join(f.folder, name) }

// startServices migrates the schemas and starts all services, but not the gateway.
func (f *fleet) startServices(ctx context.Context) error {
	group, working := errgroup.WithContext(ctx)
	for _, name := range product.Names() {
		group.Go(func() error { return f.migrate(working, name) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for _, name := range product.Names() {
		if err := f.startService(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// migrate runs the command migrate of a service's program.
func (f *fleet) migrate(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, migrateTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(f.programs, name), "migrate")
	cmd.Env, cmd.Stderr = f.serviceEnvironment(name), os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("migrate %s: %w", name, err)
	}
	return nil
}

func (f *fleet) startService(ctx context.Context, name string) error {
	return f.startProcess(ctx, name, f.addresses[name], f.serviceEnvironment(name))
}

// serviceEnvironment returns the variables of a service's process.
func (f *fleet) serviceEnvironment(name string) []string {
	environment := append(f.common(name), f.filterEnvironment("IRONPLANE_MAINTENANCE=", "IRONPLANE_QUERY_EXEC_MODE=")...)
	environment = append(environment, f.added[name]...)
	for _, field := range slices.Concat(
		reflect.VisibleFields(reflect.TypeFor[service.Settings]()), reflect.VisibleFields(reflect.TypeFor[settings.Variables]()),
	) {
		environment = append(environment, f.filterEnvironment(field.Tag.Get("env")+"=")...)
	}
	return append(environment, "DATABASE_URL_FILE="+f.file(name+".database-url"), f.services())
}

// services returns the variable with the addresses of the services.
func (f *fleet) services() string {
	var services []string
	for _, name := range product.Names() {
		services = append(services, name+"="+f.addresses[name])
	}
	return "IRONPLANE_SERVICES=" + strings.Join(services, " ")
}

// startGateway starts the gateway at the public address.
func (f *fleet) startGateway(ctx context.Context, public string) error {
	environment := append(f.common(principal.Gateway), f.services())
	environment = append(environment, f.filterEnvironment("IRONPLANE_OPERATIONS_LISTEN=", "IRONPLANE_DRAIN_DELAY=")...)
	for field := range reflect.TypeFor[gateway.Config]().Fields() {
		environment = append(environment, f.filterEnvironment(field.Tag.Get("env")+"=")...)
	}
	return f.startProcess(ctx, principal.Gateway, public, environment)
}

// common returns the variables that every process reads.
func (f *fleet) common(name string) []string {
	return append(f.filterEnvironment("IRONPLANE_LOG_", "OTEL_", "SSL_CERT_"),
		"IRONPLANE_MESH_CERTIFICATE="+f.file(name+".crt"), "IRONPLANE_MESH_KEY="+f.file(name+".key"), "IRONPLANE_MESH_CA="+f.file("ca.crt"),
		"REDIS_URL_FILE="+f.file("redis-url"), "IRONPLANE_PROCESS_KEY_FILE="+f.file(name+".process-key"))
}

// filterEnvironment returns the variables of this process that begin with one of the prefixes.
func (f *fleet) filterEnvironment(prefixes ...string) (filterEnvironment []string) {
	for _, entry := range f.environment {
		if slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(entry, prefix) }) {
			filterEnvironment = append(filterEnvironment, entry)
		}
	}
	return filterEnvironment
}

// startProcess starts a process and waits until it listens.
func (f *fleet) startProcess(ctx context.Context, name, address string, environment []string) error {
	cmd := exec.Command(filepath.Join(f.programs, name), "serve")
	cmd.Env, cmd.Stderr = append(environment, "IRONPLANE_LISTEN="+address), os.Stderr
	process, err := child.Start(cmd, syscall.SIGTERM, syscall.SIGKILL)
	if err != nil {
		return err
	}
	f.processes[name], f.addresses[name] = process, address
	f.watching.Go(func() {
		<-process.Done()
		if err := process.Err(); err != nil {
			select {
			case f.ended <- err:
			default:
			}
		}
	})
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	err = process.Await(ctx, func() bool {
		c, err := net.DialTimeout("tcp", address, time.Second)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
	if err != nil {
		return fmt.Errorf("wait until %s listens on %s: %w", name, address, err)
	}
	return nil
}

// stop stops all processes, and waits until they have ended. The gateway stops first, so that the services get no
// new requests.
func (f *fleet) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	var failed error
	if gateway := f.processes[principal.Gateway]; gateway != nil {
		failed = gateway.Stop(ctx)
	}
	var group errgroup.Group
	for _, process := range f.processes {
		group.Go(func() error { return process.Stop(ctx) })
	}
	failed = errors.Join(failed, group.Wait())
	f.watching.Wait()
	return failed
}
