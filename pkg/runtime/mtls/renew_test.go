package mtls

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/pkg/testkit/syncbuf"
)

// An authority can be replaced while requests continue.
func TestRenew(t *testing.T) {
	t.Parallel()
	i := newInstall(t)
	next := newAuthority(t)
	both := slices.Concat(i.authority.Certificate(), next.Certificate())
	address := i.serve(i.network, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/last" {
			w.Header().Set("Connection", "close") // so that new connections are made all the time
		}
		_, _ = io.WriteString(w, "{}")
	}))
	peers := i.peers(i.gateway, address)

	var asked atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	for n := range 4 {
		path := []string{"/", "/last"}[n%2]
		callers.Go(func() {
			for ctx.Err() == nil {
				if err := peers.Ask(principal.NewContext(t.Context(), caller), "network", path, &struct{}{}); err != nil {
					t.Error(err)
					return
				}
				asked.Add(1)
			}
		})
	}
	renew := func(id *Identity, by *Authority, ca []byte) {
		t.Helper()
		issued, err := by.Issue(id.name)
		if err == nil {
			err = id.Renew(issued, ca)
		}
		if err != nil {
			t.Error(err)
		}
		for before := asked.Load(); asked.Load() < before+50 && !t.Failed(); {
			time.Sleep(time.Millisecond)
		}
	}
	for _, id := range []*Identity{i.network, i.gateway} {
		renew(id, i.authority, both)
	}
	for _, id := range []*Identity{i.network, i.gateway} {
		renew(id, next, both)
	}
	for _, id := range []*Identity{i.network, i.gateway} {
		renew(id, next, next.Certificate())
	}
	stop()
	callers.Wait()

	if err := i.network.Renew(Issued{}, next.Certificate()); err == nil {
		t.Error("renew without a certificate: got no error, want one")
	}
	issued, err := next.Issue("gateway")
	if err != nil {
		t.Fatal(err)
	}
	if err := i.network.Renew(issued, next.Certificate()); err == nil {
		t.Error("renew with another service's certificate: got no error, want one")
	}
	if err := peers.Ask(principal.NewContext(t.Context(), caller), "network", "/last", &struct{}{}); err != nil {
		t.Error("ask after refused renewals:", err)
	}
	if c, err := tls.Dial("tcp", address, i.identity("gateway").ClientConfig("network")); err == nil {
		c.Close()
		t.Error("a certificate of the old authority: got a connection, want none")
	}
}

func TestFollowFiles(t *testing.T) {
	t.Parallel()
	authority := newAuthority(t)
	dir := t.TempDir()
	files := Files{filepath.Join(dir, "network.crt"), filepath.Join(dir, "network.key"), filepath.Join(dir, "ca.crt")}
	write := func(file string, content []byte) {
		t.Helper()
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	issued, err := authority.Issue("network")
	if err != nil {
		t.Fatal(err)
	}
	write(files.Certificate, issued.Certificate)
	write(files.Key, []byte(issued.Key.Reveal()))
	write(files.CA, authority.Certificate())
	id, err := Load("network", files)
	if err != nil {
		t.Fatal(err)
	}
	var log syncbuf.Buffer
	ctx, stop := context.WithCancel(t.Context())
	var following sync.WaitGroup
	following.Go(func() { id.follow(ctx, files, time.Millisecond, slog.New(slog.NewTextHandler(&log, nil))) })
	before := id.credentials.Load().certificate.Leaf.SerialNumber
	if issued, err = authority.Issue("network"); err != nil {
		t.Fatal(err)
	}
	write(files.Certificate, issued.Certificate) // and not yet its key
	testkit.Eventually(t, "files that do not fit together are logged", func() bool { return strings.Contains(log.String(), "cannot be used") })
	if id.credentials.Load().certificate.Leaf.SerialNumber.Cmp(before) != 0 {
		t.Error("a certificate without its key: got it in use, want the one before")
	}
	write(files.Key, []byte(issued.Key.Reveal()))
	testkit.Eventually(
		t,
		"the new certificate is used",
		func() bool { return id.credentials.Load().certificate.Leaf.SerialNumber.Cmp(before) != 0 },
	)
	stop()
	following.Wait()
	if strings.Contains(log.String(), "PRIVATE KEY") || strings.Count(log.String(), "\n") > 2 {
		t.Errorf("got the log %s, want at most two lines without a key", log.String())
	}
}
