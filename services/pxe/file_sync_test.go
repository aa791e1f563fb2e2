package pxe_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/jobs"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/pkg/testkit/neighbours"
	"github.com/ironplane/ironplane/services/pxe"
	"github.com/ironplane/ironplane/services/pxe/filesync"
	"github.com/ironplane/ironplane/services/pxe/siteagent/agent"
	"github.com/ironplane/ironplane/services/pxe/siteagent/machine"
	"github.com/ironplane/ironplane/services/pxe/siteagent/tree"
)

// sites is the service with agents of file servers.
type sites struct {
	*testing.T
	*testkit.RunningService
	*neighbours.All
	group int64
}

func newSites(t *testing.T) *sites {
	s, all := neighbours.Run(t, pxe.Definition, testkit.ServiceOptions{
		Settings: service.Settings{AllowedNetworks: "127.0.0.1", Store: t.TempDir()},
	})
	all.Network.SetGroup(1, "Berlin")
	return &sites{t, s, all, 1}
}

// fileServer is a running agent and its file server.
type fileServer struct {
	id     int64
	folder string
	server *httptest.Server
	agent  *agent.Agent
	sent   atomic.Int64 // files that the control plane has sent it
}

// start runs an agent in a folder. wrap wraps its handler.
func (s *sites) start(folder string, wrap func(http.Handler) http.Handler) (*httptest.Server, *agent.Agent) {
	s.Helper()
	files, err := tree.Open(folder)
	if err != nil {
		s.Fatal(err)
	}
	a, err := agent.New(files, secret.New(agentKey), machine.Settings{}, "1.2.3", slog.New(slog.NewTextHandler(s.Output(), nil)))
	if err != nil {
		s.Fatal(err)
	}
	ctx, end := context.WithCancel(context.Background())
	var working sync.WaitGroup
	working.Go(func() { _ = a.Run(ctx) })
	server := httptest.NewServer(wrap(a.Handler()))
	s.Cleanup(func() {
		server.Close()
		end()
		working.Wait()
		if err := errors.Join(a.Close(), files.Close()); err != nil {
			s.Error(err)
		}
	})
	return server, a
}

func unchanged(h http.Handler) http.Handler { return h }

// fileServer creates a file server below a parent (0: none) and runs its agent.
func (s *sites) fileServer(name string, parent int64, wrap func(http.Handler) http.Handler) *fileServer {
	s.Helper()
	f := &fileServer{folder: s.TempDir()}
	f.server, f.agent = s.start(f.folder, func(handler http.Handler) http.Handler {
		next := wrap(handler)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPut && strings.HasPrefix(r.URL.Path, "/v1/file/") {
				f.sent.Add(1)
			}
			next.ServeHTTP(w, r)
		})
	})
	host, port, _ := strings.Cut(strings.TrimPrefix(f.server.URL, "http://"), ":")
	body := map[string]any{
		"name":                   name,
		"install_max_concurrent": 1,
		"group":                  s.group,
		"host":                   host,
		"port":                   port,
		"api_key":                agentKey,
		"public_key":             hostKey,
	}
	if parent != 0 {
		body["parent"] = parent
	}
	f.id = s.Do("POST", "/pxe/file", body).Want(200).ID()
	return f
}

func (s *sites) write(f *fileServer, path, content string) {
	s.Helper()
	path = filepath.Join(f.folder, "files", path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		s.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		s.Fatal(err)
	}
}

func (s *sites) sync(f *fileServer) string {
	s.Helper()
	return s.Do("POST", path("/pxe/file/%d/child/sync", f.id), `{"isWrapped": true}`).Want(200).Text
}

func (s *sites) view(f *fileServer) filesync.FileSync {
	s.Helper()
	return testkit.Decode[filesync.FileSync](s.Do("GET", path("/pxe/file/%d/child/sync", f.id), nil).Want(200))
}

// awaitSync waits until a sync meets a condition.
func (s *sites) awaitSync(f *fileServer, condition string, is func(filesync.FileSync) bool) filesync.FileSync {
	s.Helper()
	return testkit.Await(s, condition, func() filesync.FileSync { return s.view(f) }, is)
}

// cancelSyncs cancels the jobs of all running syncs, as the system service does for an operator.
func (s *sites) cancelSyncs() {
	s.Helper()
	ctx := principal.NewContext(s.Context(), &principal.Call{Principal: testkit.AdminWith(principal.All)})
	system := s.Peers("system")
	found, err := jobs.List(
		ctx,
		system,
		pxe.Name,
		jobs.ListQuery{Kind: "file-sync", CreatedBefore: time.Now().Add(time.Hour).UnixMicro(), Limit: 100},
	)
	testkit.Must(s, err)
	for _, listed := range found {
		if listed.Job.State != "done" && listed.Job.State != "cancelled" {
			_, err := jobs.Cancel(ctx, system, pxe.Name, listed.Position.ID)
			testkit.Must(s, err)
		}
	}
}

func done(is filesync.FileSync) bool { return is.Status == "done" }

func (s *sites) wantSame(parent *fileServer, children ...*fileServer) {
	s.Helper()
	want := s.tree(parent)
	for _, child := range children {
		got := s.tree(child)
		if fmt.Sprint(got) != fmt.Sprint(want) {
			s.Errorf("file server %d: got %.300v, want %.300v", child.id, got, want)
		}
	}
}

func (s *sites) tree(f *fileServer) map[string]string {
	s.Helper()
	return testkit.ReadTree(s, filepath.Join(f.folder, "files"))
}

// The descendants of a file server get its files, and the control plane sends each file once, however often they are
// synced. The view shows why a file server fails.
func TestFileSync(t *testing.T) {
	t.Parallel()
	s := newSites(t)
	var mu sync.Mutex
	broken := true
	lies := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			lie := broken && (strings.HasSuffix(r.URL.Path, "/initrd") || r.URL.Path == "/v1/files")
			mu.Unlock()
			if lie { // also in a response with several files
				response := httptest.NewRecorder()
				next.ServeHTTP(response, r)
				_, _ = w.Write(bytes.ReplaceAll(response.Body.Bytes(), []byte("an initrd that is"), []byte("an initrd that IS")))
				return
			}
			next.ServeHTTP(w, r)
		})
	}
	top := s.fileServer("top", 0, unchanged)
	middle := s.fileServer("middle", top.id, lies)
	other := s.fileServer("other", top.id, unchanged)
	bottom := s.fileServer("bottom", middle.id, unchanged)
	for i := range 20 {
		s.write(top, fmt.Sprintf("local/%d", i), strings.Repeat("x", i*1000))
	}
	s.Do("POST", "/pxe/driver", `{"name": "Intel", "driver": "YSBkcml2ZXI="}`).Want(200)
	s.write(top, "local/boot/initrd", "an initrd that is")
	s.write(top, "by hand", "which the store does not have")
	s.write(other, "old", "deleted from the parent")

	if got := s.view(top); got.Status != "none" || len(got.Children) != 4 {
		t.Errorf("got %+v, want status none and 4 children", got)
	}
	s.Do("POST", path("/pxe/file/%d/child/sync", top.id), `{}`).WantErrors("/isWrapped", "required")
	s.Do("POST", "/pxe/file/999/child/sync", `{"isWrapped": false}`).Want(404)
	s.Do("GET", "/pxe/file/999/child/sync", nil).Want(404)
	if message := s.sync(bottom); !strings.Contains(message, "has no children") {
		t.Errorf("got %q, want that it has no children", message)
	}
	if message := s.sync(top); !strings.Contains(message, "It fills 4 file servers") {
		t.Errorf("got %q, want that it fills 4 file servers", message)
	}
	got := s.awaitSync(top, "the last one fails", func(is filesync.FileSync) bool {
		last := is.Children[len(is.Children)-1]
		return last.Status == "retrying" && last.Error != nil && is.Children[2].Status == "done"
	})
	if last := got.Children[3]; got.Status != "running" ||
		!strings.HasPrefix(*last.Error, "local/boot/initrd: the content does not match its SHA-256") ||
		last.Files != 21 ||
		last.FilesTotal != 22 ||
		last.Parent.Name != "middle" {
		t.Errorf("got %+v, want 21 of 22 files from middle and the error of local/boot/initrd", last)
	}
	s.wantSame(top, middle, other)
	if has := s.tree(top); len(has) != 22 || has["drivers/1"] != "a driver" {
		t.Errorf("got %v, want 22 files with the driver", has)
	}
	// The last one is given up, so the sync fails in part.
	s.awaitSync(top, "the last one is cancelled", func(is filesync.FileSync) bool {
		s.cancelSyncs()
		return is.Status == "partial" && is.Children[3].Status == "failed"
	})
	mu.Lock()
	broken = false
	mu.Unlock()
	s.sync(middle) // which fills only its descendants
	if got := s.awaitSync(middle, "the bottom has all", done); len(got.Children) != 1 {
		t.Errorf("got %+v, want 1 child", got)
	}
	s.wantSame(top, bottom)
	s.awaitSync(top, "all is done", done)

	s.sync(top)
	s.sync(top)
	got = s.awaitSync(top, "all is done again", done)
	for _, one := range got.Children {
		if one.Error != nil || one.Files != one.FilesTotal || one.Bytes != one.BytesTotal || one.FinishedAt == nil {
			t.Errorf("got %+v, want it finished with all files and bytes", one)
		}
	}
	s.wantSame(top, middle, other, bottom)
	for f, want := range map[*fileServer]int64{top: 1, middle: 0, other: 0, bottom: 0} {
		if sent := f.sent.Load(); sent != want {
			t.Errorf("file server %d: got %d files from the control plane, want %d", f.id, sent, want)
		}
	}
}

// The setting bounds how many children of a parent are filled at a time.
func TestFileSyncsAtATime(t *testing.T) {
	t.Parallel()
	s := newSites(t)
	top := s.fileServer("top", 0, unchanged)
	s.write(top, "local/file", "content")
	free, begun := make(chan struct{}), make(chan struct{}, 6)
	held := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost && r.URL.Path == "/v1/pull" {
				begun <- struct{}{}
				<-free
			}
			next.ServeHTTP(w, r)
		})
	}
	var children []*fileServer
	for i := range 6 {
		children = append(children, s.fileServer(fmt.Sprint("child ", i), top.id, held))
	}
	s.sync(top)
	for range 4 {
		<-begun
	}
	count := func(is filesync.FileSync, status string) (n int) {
		for _, one := range is.Children {
			if one.Status == status {
				n++
			}
		}
		return n
	}
	for range 20 {
		if is := s.view(top); count(is, "running") != 4 || count(is, "waiting") != 2 {
			t.Errorf("got %+v, want 4 running and 2 waiting", is)
		}
	}
	s.System.SetSetting("pxe.sync_children", "6")
	<-begun
	<-begun
	close(free)
	s.awaitSync(top, "all are filled", done)
	s.wantSame(top, children...)
}

// With use_sftp, contents go by SFTP, and only to a host with the configured key. A sync that is requested while another
// one ends is done, too.
func TestFileSyncBySFTP(t *testing.T) {
	t.Parallel()
	s := newSites(t)
	var puts, gets atomic.Int64 // of contents, by HTTP
	counted := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if isFile := strings.HasPrefix(r.URL.Path, "/v1/file/"); isFile && r.Method == http.MethodGet || r.URL.Path == "/v1/files" {
				gets.Add(1)
			} else if isFile && r.ContentLength > 0 {
				puts.Add(1)
			}
			next.ServeHTTP(w, r)
		})
	}
	top := s.fileServer("top", 0, counted)
	child := s.fileServer("child", top.id, unchanged)
	big := strings.Repeat("a driver ", 200_000)
	s.Do("POST", "/pxe/driver", map[string]string{"name": "Intel", "driver": base64.StdEncoding.EncodeToString([]byte(big))}).Want(200)
	s.write(top, "local/readme", "by hand")

	at := path("/pxe/file/%d", top.id)
	address, key := s.serveSFTP(top)
	_, port, _ := strings.Cut(address, ":")
	sftp := map[string]any{"use_sftp": true, "port": port}
	s.Do("PATCH", at, map[string]any{"ssh": sftp}).WantErrors("/http/api_key", "required")
	got := s.Do("PATCH", at, map[string]any{"ssh": sftp, "api_key": agentKey}).Want(200)
	if is := testkit.Decode[pxe.FileServer](got); !is.SSH.UseSFTP || is.SSH.PublicKey != hostKey {
		t.Errorf("got %+v, want SFTP with the host key unchanged", is.SSH)
	}
	s.Do("PATCH", at, map[string]any{"public_key": key}).WantErrors("/http/api_key", "required")
	s.sync(top)
	failed := s.awaitSync(top, "it fails", func(is filesync.FileSync) bool { return is.Children[0].Status == "retrying" })
	if message := *failed.Children[0].Error; message != "connect to the agent by SFTP: the SSH host key is not the expected one" {
		t.Errorf("got the error %q, want that the SSH host key is not the expected one", message)
	}
	s.Do("PATCH", at, map[string]any{"public_key": key, "api_key": agentKey}).Want(200)
	s.sync(top)
	s.awaitSync(top, "all is done", done)
	if puts.Load() != 0 || gets.Load() != 0 {
		t.Errorf("got %d contents sent and %d asked for by HTTP, want 0 and 0", puts.Load(), gets.Load())
	}
	if has := s.tree(top); has["drivers/1"] != big {
		t.Errorf("got %d files with other content of the driver, want the %d bytes that were uploaded", len(has), len(big))
	}
	s.wantSame(top, child)

	for range 5 {
		s.sync(top)
		s.awaitSync(top, "the top is filled again", func(is filesync.FileSync) bool { return is.Children[0].Status == "done" })
	}
	s.awaitSync(top, "all is done", done)
}

// serveSFTP makes the agent of a file server serve SFTP, and returns its address and its host key.
func (s *sites) serveSFTP(f *fileServer) (address, public string) {
	s.Helper()
	key, err := agent.LoadOrCreateHostKey(filepath.Join(s.TempDir(), "key"))
	if err != nil {
		s.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.Fatal(err)
	}
	ctx, end := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := f.agent.ServeSFTP(ctx, listener, agent.SFTPConfig{HostKey: key}); err != nil {
			s.Error(err)
		}
	})
	s.Cleanup(func() {
		end()
		serving.Wait()
	})
	return listener.Addr().String(), strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key.PublicKey())))
}
