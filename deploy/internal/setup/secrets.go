package setup

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/uuid"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/provision"
	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/secret"
)

const (
	// database is the name of the installation's database and of the role that administers it.
	database   = "ironplane"
	rolePrefix = database + "_"
	// setupFolder has the secrets that all other files are derived from. Only this program may read it.
	setupFolder = "setup"
)

// processes returns the names of the processes that have secrets.
func processes() []string { return append(product.Names(), principal.Gateway) }

// createSecrets creates the missing secrets, and writes the files of each process into its folder. Existing secrets stay.
func createSecrets(c config) error {
	files, err := c.secretFiles()
	if err != nil {
		return fmt.Errorf("create the secrets: %w", err)
	}
	for name, content := range files {
		if err := replaceFile(filepath.Join(c.Secrets, name), content); err != nil {
			return fmt.Errorf("write the secrets: %w", err)
		}
	}
	for _, name := range processes() { // earlier versions had the master key in each folder
		if err := os.Remove(filepath.Join(c.Secrets, name, "master-key")); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove a master key: %w", err)
		}
	}
	return nil
}

// secretFiles returns the content of all files by their path in the folder of secrets.
func (c config) secretFiles() (map[string]secret.String, error) {
	var failed error
	ensure := func(name string, create func() string) secret.String {
		s, err := c.readOrCreate(name, create)
		failed = errors.Join(failed, err)
		return s
	}
	redis, management := map[string]secret.String{
		watcher: ensure("redis-password", rand.Text),
	}, ensure(
		"consul-management-token",
		uuid.NewString,
	)
	files := map[string]secret.String{
		"postgres/password":       ensure("postgres-password", rand.Text),
		"redis/password":          redis[watcher],
		"consul/management-token": management,
		"consul/consul.hcl":       secret.New(fmt.Sprintf(consulConfig, management.Reveal())),
	}
	keys, err := product.DeriveProcessKeys(ensure("master-key", func() string { return seal.NewMasterKey().Reveal() }))
	failed = errors.Join(failed, err)
	for _, name := range processes() {
		redis[name] = ensure(name+"-redis-password", rand.Text)
		files[name+"/redis-url"] = c.redisURL(name, redis[name])
		files[name+"/consul-token"] = ensure(name+"-consul-token", uuid.NewString)
		if key := keys[name]; key != nil {
			files[name+"/process-key"] = key.Text()
		}
	}
	files["redis/users.acl"] = redisUsers(redis)
	for _, service := range product.Services {
		at, err := provision.ServiceURL(c.adminURL(secret.String{}), rolePrefix, service.Name, ensure(service.Name+"-password", rand.Text))
		failed = errors.Join(failed, err)
		files[service.Name+"/database-url"] = at
	}
	return files, failed
}

// redisURL returns the URL with which a user connects to Redis.
func (c config) redisURL(user string, password secret.String) secret.String {
	return secret.New((&url.URL{Scheme: "redis", User: url.UserPassword(user, password.Reveal()), Host: c.Redis, Path: "/0"}).String())
}

// adminURL returns the database URL of the administrator.
func (c config) adminURL(password secret.String) string {
	return (&url.URL{Scheme: "postgres", User: url.UserPassword(database, password.Reveal()), Host: c.Postgres, Path: "/" + database}).String()
}

// readOrCreate returns the secret with this name. It creates and stores it if there is none.
func (c config) readOrCreate(name string, create func() string) (secret.String, error) {
	path := filepath.Join(c.Secrets, setupFolder, name)
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		created := secret.New(create())
		return created, replaceFile(path, created)
	}
	return secret.New(strings.TrimSpace(string(content))), err
}

// readSecret returns an existing secret.
func (c config) readSecret(name string) (secret.String, error) {
	content, err := os.ReadFile(filepath.Join(c.Secrets, setupFolder, name))
	if err != nil {
		return secret.String{}, fmt.Errorf("read a secret; the command secrets creates it: %w", err)
	}
	return secret.New(strings.TrimSpace(string(content))), nil
}

// replaceFile writes a file completely or not at all. The file is readable for everyone who may open its folder: for this
// program's user, and for the process' user if the operator created the folder for it.
func replaceFile(path string, content secret.String) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	file, err := os.CreateTemp(filepath.Dir(path), ".new-")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	_, err = file.WriteString(content.Reveal())
	err = errors.Join(err, file.Chmod(0o444), file.Sync(), file.Close())
	if err != nil {
		return err
	}
	return os.Rename(file.Name(), path)
}

// consulConfig is the configuration of a single Consul server. It binds to localhost, since there is no second server to talk
// to, and accepts clients on all addresses.
const consulConfig = `server           = true
bootstrap_expect = 1
data_dir         = "/consul/data"
bind_addr        = "127.0.0.1"
client_addr      = "0.0.0.0"
log_level        = "WARN"

disable_update_check = true

acl {
  enabled        = true
  default_policy = "deny"
  tokens {
    initial_management = %[1]q
    agent              = %[1]q
  }
}

connect {
  enabled = true
}

performance {
  raft_multiplier = 1
}
`
