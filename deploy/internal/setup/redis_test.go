package setup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ironplane/ironplane/deploy/internal/ports"
	"github.com/ironplane/ironplane/gateway"
	"github.com/ironplane/ironplane/pkg/auth/apikey"
	"github.com/ironplane/ironplane/pkg/auth/keycache"
	"github.com/ironplane/ironplane/pkg/auth/lockout"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/cache"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/runtime/peers"
	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/settings"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/pkg/wake"
)

// installation has the secrets of an installation, and perhaps a Redis with their users.
type installation struct {
	t      *testing.T
	config config
}

func newInstallation(t *testing.T) *installation {
	t.Helper()
	program, err := exec.LookPath("redis-server")
	if err != nil {
		t.Skip("redis-server is not installed; Debian's package redis-server has it")
	}
	addresses, err := ports.Free(1)
	if err != nil {
		t.Fatal(err)
	}
	address := addresses[0]
	i := &installation{t, config{Secrets: t.TempDir(), Redis: address, Postgres: "127.0.0.1:1"}}
	if err := createSecrets(i.config); err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(address)
	server := exec.Command(
		program,
		"--port",
		port,
		"--bind",
		"127.0.0.1",
		"--save",
		"",
		"--dir",
		t.TempDir(),
		"--aclfile",
		i.file("redis/users.acl"),
	)
	server.Stdout, server.Stderr = t.Output(), t.Output()
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Process.Kill(); _ = server.Wait() })
	watching := i.client(watcher, fmt.Sprintf("redis://%s:%s@%s/0", watcher, i.content("redis/password"), address))
	testkit.Eventually(i.t, "Redis answers", func() bool { return watching.Ping(t.Context()).Err() == nil })
	return i
}

func (i *installation) file(name string) string { return filepath.Join(i.config.Secrets, name) }

func (i *installation) content(name string) string {
	i.t.Helper()
	text, err := os.ReadFile(i.file(name))
	if err != nil {
		i.t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

func (i *installation) client(process, url string) *cache.Client {
	i.t.Helper()
	if url == "" {
		url = i.content(process + "/redis-url")
	}
	client, err := cache.Open(secret.New(url))
	if err != nil {
		i.t.Fatal(err)
	}
	i.t.Cleanup(func() { _ = client.Close() })
	return client
}

// entries returns the cached entries as a process reads and writes them, with its own user and key.
func (i *installation) entries(process string) *keycache.Store {
	i.t.Helper()
	key, err := seal.ParseProcessKey(secret.New(i.content(process+"/process-key")), process)
	if err != nil {
		i.t.Fatal(err)
	}
	signer, err := key.Signer(keycache.Purpose)
	if err != nil {
		i.t.Fatal(err)
	}
	return keycache.NewStore(i.client(process, ""), signer, slog.New(slog.DiscardHandler))
}

// TestRedisUsers shows that the users' rights are enough for the product.
func TestRedisUsers(t *testing.T) {
	t.Parallel()
	i := newInstallation(t)
	identityEntries := i.entries("identity")
	key := apikey.New().Reveal()
	identity := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(r.URL.Path, "/internal/")
		var answer any
		if strings.HasPrefix(name, "key/") {
			answer, _ = keycache.Fill(r.Context(), identityEntries, name, func(context.Context) (keycache.Key, error) {
				return keycache.Key{ID: 7, Owner: principal.Owner{Type: principal.Admin, ID: 1}}, nil
			})
		} else {
			answer, _ = keycache.Fill(r.Context(), identityEntries, name, func(context.Context) (keycache.Owner, error) {
				return keycache.Owner{Active: true, Name: "anna"}, nil
			})
		}
		_ = json.NewEncoder(w).Encode(answer)
	})
	gatewayEntries, log := i.entries(principal.Gateway), slog.New(slog.DiscardHandler)
	services := map[string]http.Handler{"identity": identity}
	g := gateway.New(gateway.Config{}, services,
		peers.New(principal.Gateway, services), gatewayEntries, i.client(principal.Gateway, ""), nil, log)
	defer g.Close()
	requestSucceeds := func() bool {
		r, w := httptest.NewRequest("GET", "/admin", http.NoBody), httptest.NewRecorder()
		r.Header.Set("X-Api-Key", key)
		g.ServeHTTP(w, r)
		return w.Code == http.StatusOK
	}
	testkit.Eventually(i.t, "the gateway reads identity's entries", func() bool {
		identityEntries.Bind(t.Context(), "identity", "now")
		if !requestSucceeds() {
			return false
		}
		owner, _, err := keycache.Get[keycache.Owner](t.Context(), gatewayEntries, "identity", "owner/admin/1")
		return err == nil && owner.Name == "anna"
	})
	count := fmt.Sprintf("rate:owner:admin:1:%d/%d", settings.OwnerRate.In(nil), settings.OwnerBurst.In(nil))
	if left := i.client(principal.Gateway, "").Exists(t.Context(), count); left.Err() == nil {
		t.Error("got EXISTS allowed for the gateway, want a refusal")
	}
	counting := i.client(principal.Gateway, "")
	testkit.Eventually(i.t, "the gateway counts limits", func() bool {
		n, err := counting.Get(t.Context(), count).Result()
		return requestSucceeds() && err == nil && n != ""
	})
	testkit.Eventually(i.t, "identity removes its entry, and Redis refuses nothing", func() bool {
		if err := identityEntries.Remove(t.Context(), "owner/admin/1"); err != nil {
			t.Fatal(err)
		}
		_, _, err := keycache.Get[keycache.Owner](t.Context(), gatewayEntries, "identity", "owner/admin/1")
		return errors.Is(err, keycache.ErrNone) && identityEntries.IsUp() && gatewayEntries.IsUp()
	})
	guess := func() (right bool, err error) { // by a new process, which has counted nothing itself
		lockouts := lockout.New(i.client("identity", ""), slog.New(slog.DiscardHandler))
		return lockouts.Try(t.Context(), lockout.Guess{Name: "/admin/1", Key: 1}, func() (bool, error) { return false, nil })
	}
	for range lockout.MaxPerKey {
		if _, err := guess(); err != nil {
			t.Fatal(err)
		}
	}
	testkit.Eventually(i.t, "identity counts guesses", func() bool {
		_, err := guess()
		return problem.Is(err, problem.TooManyRequests)
	})
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	waking := wake.New(i.client("pxe", ""))
	running.Go(func() { waking.Run(ctx) })
	for _, process := range []string{"network", principal.Gateway} {
		hearing := wake.New(i.client(process, ""))
		woken := hearing.Listen("pxe", "something")
		running.Go(func() { hearing.Run(ctx) })
		testkit.Eventually(i.t, process+" is subscribed", hearing.IsSubscribed)
		<-woken // a subscription begins with a wake-up, as earlier ones may be lost
		testkit.Eventually(i.t, "pxe wakes "+process, func() bool {
			waking.Wake("pxe", "something")
			select {
			case <-woken:
				return hearing.IsSubscribed()
			case <-time.After(50 * time.Millisecond):
				return false
			}
		})
	}
}

// TestRedisUsersMayNoMore shows that Redis refuses other commands to a process, and everything to unknown users.
func TestRedisUsersMayNoMore(t *testing.T) {
	t.Parallel()
	i := newInstallation(t)
	forbidden := map[string][]string{
		"everybody": {
			"FLUSHALL",
			"FLUSHDB",
			"KEYS *",
			"SCAN 0",
			"CONFIG GET *",
			"ACL LIST",
			"CLIENT LIST",
			"MONITOR",
			"SCRIPT FLUSH",
			"SHUTDOWN",
			"PUBLISH other x",
		},
		principal.Gateway: {
			"DEL entry:key/ab",
			"HSET entry:key/ab body x",
			"DEL rate:owner:admin:1",
			"PUBLISH events:pxe 1",
			"EVAL return(redis.call('del','entry:key/ab')) 0",
		},
		"network":  {"HMGET entry:key/ab body", "GET rate:owner:admin:1", "SET rate:owner:admin:1 0", "EVAL return(1) 0"},
		"identity": {"GET rate:owner:admin:1", "SET rate:owner:admin:1 0", "SET entry:key/ab x"},
		watcher:    {"GET rate:owner:admin:1", "PUBLISH events:pxe 1"},
	}
	for _, user := range append(processes(), watcher) {
		url := ""
		if user == watcher {
			url = fmt.Sprintf("redis://%s:%s@%s/0", watcher, i.content("redis/password"), i.config.Redis)
		}
		client := i.client(user, url)
		for _, command := range append(forbidden[user], forbidden["everybody"]...) {
			var args []any
			for _, word := range strings.Fields(command) {
				args = append(args, word)
			}
			if err := client.Do(t.Context(), args...).
				Err(); err == nil ||
				!strings.Contains(err.Error(), "NOPERM") && !strings.Contains(err.Error(), "can't run this command") {
				t.Errorf("%s: got %v for %s, want a refusal", user, err, command)
			}
		}
	}
	for _, url := range []string{
		"redis://" + i.config.Redis, "redis://:" + i.content("redis/password") + "@" + i.config.Redis, "redis://network:wrong@" + i.config.Redis,
	} {
		if err := i.client("", url).Ping(t.Context()).Err(); err == nil {
			t.Error("got an unknown user accepted, want a refusal")
		}
	}
}

// TestSecretsOfProcesses shows that each process finds its own secrets in its own folder, and never the master key, which
// earlier versions left there.
func TestSecretsOfProcesses(t *testing.T) {
	t.Parallel()
	c := config{Secrets: t.TempDir()}
	i := &installation{t, c}
	if err := os.MkdirAll(i.file("network"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(i.file("network/master-key"), []byte("left"), 0o444); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := createSecrets(c); err != nil {
			t.Fatal(err)
		}
		seen := map[string]string{}
		for _, process := range processes() {
			for _, name := range []string{"process-key", "redis-url", "consul-token"} {
				content := i.content(process + "/" + name)
				if other := seen[content]; other != "" {
					t.Errorf("got the same %s for %s and %s, want different ones", name, process, other)
				}
				seen[content] = process
			}
			var printed strings.Builder
			c.Process, c.MasterKey = process, secret.New(i.content("setup/master-key"))
			if err := printProcessKey(c, &printed); err != nil || strings.TrimSpace(printed.String()) != i.content(process+"/process-key") {
				t.Errorf("got another key of %s (%v), want the one in its file", process, err)
			}
			secretFiles, err := filepath.Glob(i.file(process + "/*"))
			if err != nil {
				t.Fatal(err)
			}
			for _, file := range secretFiles {
				if text, err := os.ReadFile(
					file,
				); err != nil || strings.Contains(string(text), i.content("setup/master-key")) ||
					filepath.Base(file) == "master-key" {
					t.Errorf("%s: got the master key in %s (%v), want it withheld", process, file, err)
				}
			}
		}
	}
	c.Process = "unknown"
	if err := printProcessKey(c, &strings.Builder{}); err == nil || !strings.Contains(err.Error(), "gateway") {
		t.Errorf("got %v for the key of an unknown process, want an error that names the gateway", err)
	}
}

// TestCheck shows that the checks before bootstrap report which requirements are met.
func TestCheck(t *testing.T) {
	t.Parallel()
	i := newInstallation(t)
	i.config.Consul = "http://127.0.0.1:1"
	none := config{Secrets: t.TempDir()}
	for _, c := range []struct {
		config
		passing int
	}{{i.config, 2}, {none, 0}} {
		passing := 0
		for _, check := range c.checks() {
			if check.Ask(t.Context()) == nil {
				passing++
			}
		}
		if passing != c.passing {
			t.Errorf("%q: got %d checks that pass, want %d", c.Secrets, passing, c.passing)
		}
	}
}
