package main

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
	// database is the installation's, and the role that administers it.
	database   = "ironplane"
	rolePrefix = database + "_"
	// keeping is the folder of what all other files are made from. No process but this one sees it.
	keeping = "setup"
)

// processes are all that have secrets of their own.
func processes() []string { return append(product.Names(), principal.Gateway) }

// makeSecrets writes down, for each process, what it alone has to know. What was made once stays as it is.
func makeSecrets(c config) error {
	files, err := c.files()
	if err != nil {
		return fmt.Errorf("make the secrets: %w", err)
	}
	for name, content := range files {
		if err := replace(filepath.Join(c.Secrets, name), content); err != nil {
			return fmt.Errorf("write down the secrets: %w", err)
		}
	}
	for _, name := range processes() { // what earlier versions were told
		if err := os.Remove(filepath.Join(c.Secrets, name, "master-key")); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove a master key: %w", err)
		}
	}
	return nil
}

func (c config) files() (map[string]secret.String, error) {
	var failed error
	kept := func(name string, create func() string) secret.String {
		s, err := c.keep(name, create)
		failed = errors.Join(failed, err)
		return s
	}
	redis, management := map[string]secret.String{watcher: kept("redis-password", rand.Text)}, kept("consul-management-token", uuid.NewString)
	files := map[string]secret.String{
		"postgres/password":       kept("postgres-password", rand.Text),
		"redis/password":          redis[watcher],
		"consul/management-token": management,
		"consul/consul.hcl":       secret.New(fmt.Sprintf(consulConfig, management.Reveal())),
	}
	keys, err := product.ProcessKeys(kept("master-key", func() string { return seal.NewMasterKey().Reveal() }))
	failed = errors.Join(failed, err)
	for _, name := range processes() {
		redis[name] = kept(name+"-redis-password", rand.Text)
		files[name+"/redis-url"] = c.redisURL(name, redis[name])
		files[name+"/consul-token"] = kept(name+"-consul-token", uuid.NewString)
		if key := keys[name]; key != nil {
			files[name+"/process-key"] = key.Text()
		}
	}
	files["redis/users.acl"] = redisUsers(redis)
	for _, service := range product.Services {
		at, err := provision.ServiceURL(c.administrator(secret.String{}), rolePrefix, service.Name, kept(service.Name+"-password", rand.Text))
		failed = errors.Join(failed, err)
		files[service.Name+"/database-url"] = at
	}
	return files, failed
}

func (c config) redisURL(user string, password secret.String) secret.String {
	return secret.New((&url.URL{Scheme: "redis", User: url.UserPassword(user, password.Reveal()), Host: c.Redis, Path: "/0"}).String())
}

// administrator is the URL of the database as its administrator.
func (c config) administrator(password secret.String) string {
	return (&url.URL{Scheme: "postgres", User: url.UserPassword(database, password.Reveal()), Host: c.Postgres, Path: "/" + database}).String()
}

// keep answers the secret of this name, which it makes where there is none yet.
func (c config) keep(name string, create func() string) (secret.String, error) {
	place := filepath.Join(c.Secrets, keeping, name)
	content, err := os.ReadFile(place)
	if errors.Is(err, fs.ErrNotExist) {
		made := secret.New(create())
		return made, replace(place, made)
	}
	return secret.New(strings.TrimSpace(string(content))), err
}

// kept answers a secret that is there.
func (c config) kept(name string) (secret.String, error) {
	content, err := os.ReadFile(filepath.Join(c.Secrets, keeping, name))
	if err != nil {
		return secret.String{}, fmt.Errorf("read a secret, which the command secrets makes: %w", err)
	}
	return secret.New(strings.TrimSpace(string(content))), nil
}

// replace writes a file whole or not at all. Who sees its folder may read it: that is we, and where somebody made the folder
// for it, the user of the process which it is for.
func replace(place string, content secret.String) error {
	if err := os.MkdirAll(filepath.Dir(place), 0o700); err != nil {
		return err
	}
	file, err := os.CreateTemp(filepath.Dir(place), ".new-")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	_, err = file.WriteString(content.Reveal())
	err = errors.Join(err, file.Chmod(0o444), file.Sync(), file.Close())
	if err != nil {
		return err
	}
	return os.Rename(file.Name(), place)
}

// consulConfig is a Consul of one server. It binds to itself alone, since there is no second one, and serves the others'
// questions.
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
