package process

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/alicebob/miniredis/v2"

	"github.com/ironplane/ironplane/pkg/cache"
	"github.com/ironplane/ironplane/pkg/runtime/consul"
	"github.com/ironplane/ironplane/pkg/secret"
)

// secretFile creates a file for a secret, and returns the secret as a program reads it from the file.
func secretFile(t *testing.T, content string) (write func(string), read secret.String) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	write = func(content string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(content+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(content)
	var config struct {
		Secret secret.String `env:"SECRET"`
	}
	if invalid := configure(&config, []string{"SECRET_FILE=" + path}, "serve"); invalid != nil {
		t.Fatal(invalid)
	}
	return write, config.Secret
}

// After a password is changed in Redis and in its file, new connections use it.
func TestRedisPasswordIsReloaded(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	server.RequireUserAuth("network", "first")
	write, url := secretFile(t, "redis://network:first@"+server.Addr())
	client, err := cache.Open(url)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ping := func() error { return client.Ping(t.Context()).Err() }
	if err := ping(); err != nil {
		t.Fatal(err)
	}
	server.Close() // closes the connections, too
	server.RequireUserAuth("network", "second")
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	if err := ping(); err == nil {
		t.Error("the old password: got no error, want one")
	}
	write("no URL") // half written, say
	if err := ping(); err == nil {
		t.Error("a file that is half written: got no error, want one")
	}
	write("redis://network:second@" + server.Addr())
	if err := ping(); err != nil {
		t.Error(err)
	}
}

// After a token is changed in its file, the next request uses it.
func TestConsulTokenIsReloaded(t *testing.T) {
	t.Parallel()
	var got string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.Header.Get("X-Consul-Token")
		_, _ = io.WriteString(w, "[]")
	}))
	defer server.Close()
	write, token := secretFile(t, "first")
	agent, err := consul.Open(consul.Config{Consul: server.URL, Token: token}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for _, wanted := range []string{"first", "second"} {
		write(wanted)
		if _, err := agent.Instances(t.Context(), "network"); err != nil || got != wanted {
			t.Errorf("got the token %q, %v, want %q", got, err, wanted)
		}
	}
}
