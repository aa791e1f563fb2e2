package agent_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/pxe/siteagent"
	"github.com/ironplane/ironplane/services/pxe/siteagent/agent"
	"github.com/ironplane/ironplane/services/pxe/siteagent/machine"
	"github.com/ironplane/ironplane/services/pxe/siteagent/tree"
)

const key = "the API key of all agents in tests"

// testAgent is a running agent. It stops at the end of the test, or by stop.
type testAgent struct {
	*testing.T
	folder, fingerprint string
	server              *httptest.Server
	agent               *agent.Agent
	files               *tree.Tree
	machines            http.Handler
	client              *siteagent.Client // with the API key
	stop                func()

	serveMachines   sync.Once
	machinesAddress string
}

func start(t *testing.T, folder string) *testAgent {
	t.Helper()
	return startWith(t, folder, machine.Settings{})
}

func startWith(t *testing.T, folder string, machines machine.Settings) *testAgent {
	t.Helper()
	files, err := tree.Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	a, err := agent.New(files, secret.New(key), machines, "1.2.3", slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := agent.LoadOrCreateCertificate(filepath.Join(folder, "certificate"))
	if err != nil {
		t.Fatal(err)
	}
	r := &testAgent{
		T:        t,
		folder:   folder,
		agent:    a,
		files:    files,
		machines: a.MachineHandler(),
		server:   httptest.NewUnstartedServer(a.Handler()),
	}
	if r.fingerprint, err = certificate.Fingerprint(); err != nil {
		t.Fatal(err)
	}
	r.server.Listener = tls.NewListener(r.server.Listener, certificate.TLSConfig())
	r.server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	r.server.Start()
	r.server.URL = "https://" + r.server.Listener.Addr().String()
	r.client = r.clientWith(key)
	ctx, cancel := context.WithCancel(context.Background())
	var working sync.WaitGroup
	working.Go(func() {
		if err := a.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	r.stop = sync.OnceFunc(func() {
		cancel()
		working.Wait()
		r.client.HTTP.CloseIdleConnections()
		r.server.Close()
		if err := errors.Join(a.Close(), files.Close()); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(r.stop)
	return r
}

func (r *testAgent) clientWith(key string) *siteagent.Client {
	httpClient, err := siteagent.NewHTTPClient(r.fingerprint)
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(httpClient.CloseIdleConnections)
	return &siteagent.Client{URL: r.server.URL, Key: secret.New(key), HTTP: httpClient}
}

// newFile describes a file with this content.
func newFile(path, content string) siteagent.File {
	sum := sha256.Sum256([]byte(content))
	return siteagent.File{Path: path, Size: int64(len(content)), SHA256: hex.EncodeToString(sum[:])}
}

func (r *testAgent) put(path, content string) {
	r.Helper()
	if err := r.client.Put(r.Context(), newFile(path, content), 0, strings.NewReader(content)); err != nil {
		r.Fatal(err)
	}
}

// tree returns the contents of the agent's files by path.
func (r *testAgent) tree() map[string]string {
	r.Helper()
	return testkit.ReadTree(r, filepath.Join(r.folder, "files"))
}

func (r *testAgent) wantTree(want map[string]string) {
	r.Helper()
	got := r.tree()
	if maps.Equal(got, want) {
		return
	}
	for path, content := range want {
		if got[path] != content {
			r.Errorf("%s: got %.20q, want %.20q", path, got[path], content)
		}
	}
	for path := range got {
		if _, wanted := want[path]; !wanted {
			r.Errorf("got the file %s, want it missing", path)
		}
	}
}

func (r *testAgent) request(method, path, key string, body io.Reader) (status int, text string) {
	r.Helper()
	request, err := http.NewRequestWithContext(r.Context(), method, r.server.URL+path, body)
	if err != nil {
		r.Fatal(err)
	}
	if key != "" {
		request.Header.Set("Authorization", "Bearer "+key)
	}
	response, err := r.client.HTTP.Transport.RoundTrip(request)
	if err != nil {
		r.Fatal(err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		r.Fatal(err)
	}
	return response.StatusCode, string(content)
}

func (r *testAgent) grant() (token string) {
	r.Helper()
	token = fmt.Sprint("token ", rand.Uint64())
	sum := sha256.Sum256([]byte(token))
	if err := r.client.Grant(r.Context(), siteagent.Grant{SHA256: hex.EncodeToString(sum[:]), Seconds: 60}); err != nil {
		r.Fatal(err)
	}
	return token
}

// runPull orders a pull and waits for its end.
func (r *testAgent) runPull(from siteagent.Target) siteagent.Pull {
	r.Helper()
	id := fmt.Sprint(rand.Uint64())
	if err := r.client.OrderPull(r.Context(), siteagent.PullOrder{ID: id, Parent: from}); err != nil {
		r.Fatal(err)
	}
	for deadline := time.Now().Add(5 * time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		pull, err := r.client.GetPull(r.Context(), id)
		if err != nil {
			r.Fatal(err)
		}
		if pull.State != siteagent.PullRunning {
			return pull
		}
	}
	r.Fatal("got a pull that is still running, want it ended")
	return siteagent.Pull{}
}

func (r *testAgent) target() siteagent.Target {
	r.Helper()
	return siteagent.Target{URL: r.server.URL, Fingerprint: r.fingerprint, Token: r.grant()}
}

// Without a key every request fails, and a token may only read files.
func TestKeys(t *testing.T) {
	t.Parallel()
	r := start(t, t.TempDir())
	r.put("a/b", "content")
	token := r.grant()
	sum := newFile("", "content").SHA256
	for path, want := range map[string]int{
		"GET /v1/health": 403, "GET /v1/feed?after=0": 403, "POST /v1/grant": 403, "POST /v1/pull": 403, "GET /v1/pull/1": 403,
		"GET /v1/content/" + sum: 403,
		"PUT /v1/file/a":         403, "DELETE /v1/file/a/b": 403, "GET /v1/manifest": 200, "GET /v1/file/a/b": 200, "GET /v1/file/x": 404,
		"POST /v1/files": 200, "GET /": 404,
	} {
		method, path, _ := strings.Cut(path, " ")
		for _, badKey := range []string{"", "x", key + "x", key[1:], sum} {
			if status, _ := r.request(method, path, badKey, strings.NewReader("{}")); status != http.StatusUnauthorized {
				t.Errorf("%s %s with the key %q: got %d, want %d", method, path, badKey, status, http.StatusUnauthorized)
			}
		}
		if status, text := r.request(method, path, token, strings.NewReader("{}")); status != want {
			t.Errorf("%s %s with a token: got %d %s, want %d", method, path, status, text, want)
		}
	}
	if _, err := agent.New(nil, secret.New("short"), machine.Settings{}, "", nil); err == nil {
		t.Error("got an agent with a short key, want an error")
	}
	for body, want := range map[string]int{`{`: 400, `{"sha256": "x", "seconds": 1}`: 422, `{"sha256": "` + sum + `", "seconds": 0}`: 422, `{"sha256": "` + sum + `", "seconds": 99999999}`: 422,
		`{"sha256": "` + strings.Repeat("0", 100_000) + `"}`: 400} {
		if status, text := r.request("POST", "/v1/grant", key, strings.NewReader(body)); status != want {
			t.Errorf("%.80s: got %d %s, want %d", body, status, text, want)
		}
	}
	elsewhere, err := siteagent.NewHTTPClient(strings.Repeat("00", sha256.Size))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (&siteagent.Client{URL: r.server.URL, Key: secret.New(key), HTTP: elsewhere}).GetHealth(
		t.Context(),
	); !errors.Is(
		err,
		siteagent.ErrFingerprint,
	) {
		t.Errorf("got %v with another certificate, want %v", err, siteagent.ErrFingerprint)
	}
}

// No path and no entry of the folder lets a caller read, write or delete anything outside of it. Only regular files are served.
func TestNothingOutside(t *testing.T) {
	t.Parallel()
	outer := t.TempDir()
	folder := filepath.Join(outer, "agent")
	testkit.Must(t, os.Mkdir(folder, 0o755))
	r := start(t, folder)
	files := filepath.Join(folder, "files")
	testkit.Must(t, os.WriteFile(filepath.Join(outer, "secret"), []byte("secret"), 0o644))
	testkit.Must(t, os.Symlink("../../secret", filepath.Join(files, "link")))
	testkit.Must(t, os.Symlink("../..", filepath.Join(files, "up")))
	testkit.Must(t, os.Symlink("../parts", filepath.Join(files, "parts")))
	testkit.Must(t, os.Symlink("plain", filepath.Join(files, "inside")))
	testkit.Must(t, syscall.Mkfifo(filepath.Join(files, "pipe"), 0o644))
	testkit.Must(t, os.Mkdir(filepath.Join(files, "empty"), 0o755))
	testkit.Must(t, os.WriteFile(filepath.Join(files, "bad\nname"), []byte("x"), 0o644))
	r.put("plain", "content")

	f := newFile("", "planted")
	upload := fmt.Sprintf("?sha256=%s&size=%d&offset=0", f.SHA256, f.Size)
	for _, path := range []string{"link", "up/secret", "up/agent/certificate", "parts/x", "pipe/x", "../secret", "..%2fsecret",
		"%2e%2e/secret", "a/../../secret", "a/%2e%2e/%2e%2e/secret", "/secret", "%2fsecret",
		"a//b", "", ".", "./x", "x/.", "bad%0aname", "a%00b", strings.Repeat("a", 256), strings.Repeat("a/", 600) + "a", "%ff"} {
		if status, text := r.request("GET", "/v1/file/"+path, key, nil); status == 200 {
			t.Errorf("GET %s: got 200 %q, want a refusal", path, text)
		}
		if status, _ := r.request(
			"PUT",
			"/v1/file/"+path+upload,
			key,
			strings.NewReader("planted"),
		); status == 200 &&
			path != "link" { // a PUT replaces the link by a file
			t.Errorf("PUT %s: got %d, want a refusal", path, status)
		}
		r.request("DELETE", "/v1/file/"+path, key, nil)
		response := httptest.NewRecorder()
		request := httptest.NewRequest("GET", "/", nil)
		request.URL.Path = "/" + path
		if r.machines.ServeHTTP(response, request); response.Code == 200 {
			t.Errorf("%s: got 200 %q for a machine, want a refusal", path, response.Body)
		}
	}
	bundle := siteagent.BundleRequest{
		Paths: []string{"link", "up/secret", "parts/x", "pipe", "../secret", "/secret", "empty", "inside", "", "bad\nname", "plain"},
	}
	text, err := json.Marshal(bundle)
	testkit.Must(t, err)
	if status, text := r.request(
		"POST",
		"/v1/files",
		key,
		bytes.NewReader(text),
	); status != 200 ||
		text != strings.Repeat(`{"size":0,"left_out":true}`+"\n", 10)+`{"size":7}`+"\ncontent" {
		t.Errorf("POST /v1/files: got %d %q, want 200 with 10 files left out and one with its content", status, text)
	}
	for _, path := range []string{"pipe", "empty", "inside"} {
		if status, text := r.request("GET", "/v1/file/"+path, key, nil); status != 404 {
			t.Errorf("GET %s: got %d %s, want 404", path, status, text)
		}
	}
	if content, err := os.ReadFile(filepath.Join(outer, "secret")); err != nil || string(content) != "secret" {
		t.Errorf("got the content %q (%v), want secret", content, err)
	}
	if all, err := os.ReadDir(outer); err != nil || len(all) != 2 {
		t.Errorf("got %v (%v) in the outer folder, want 2 entries", all, err)
	}
	all, err := r.client.GetManifest(t.Context())
	if err != nil || len(all) != 1 || all[0] != newFile("plain", "content") {
		t.Errorf("got the files %v (%v), want %v", all, err, newFile("plain", "content"))
	}
	feed, err := r.client.GetFeed(t.Context(), 1)
	if err != nil || len(feed.Entries) != 1 || feed.Entries[0].Kind != "not-served" {
		t.Errorf("got %+v (%v), want one not-served entry", feed, err)
	}
}

// Machines read files and ranges of files without a key. They get no lists.
func TestMachines(t *testing.T) {
	t.Parallel()
	r := start(t, t.TempDir())
	r.put("boot/vmlinuz", "0123456789")
	get := func(method, path, span string) *httptest.ResponseRecorder {
		response, request := httptest.NewRecorder(), httptest.NewRequest(method, path, nil)
		if span != "" {
			request.Header.Set("Range", span)
		}
		r.machines.ServeHTTP(response, request)
		return response
	}
	if got := get("GET", "/boot/vmlinuz", ""); got.Code != 200 || got.Body.String() != "0123456789" {
		t.Errorf("got %d %s, want 200 0123456789", got.Code, got.Body)
	}
	if got := get("GET", "/boot/vmlinuz", "bytes=3-5"); got.Code != 206 || got.Body.String() != "345" {
		t.Errorf("got %d %s, want 206 345", got.Code, got.Body)
	}
	if got := get("HEAD", "/boot/vmlinuz", ""); got.Code != 200 || got.Header().Get("Content-Length") != "10" || got.Body.Len() > 0 {
		t.Errorf("got %d %v with %d bytes, want 200 with a length of 10 and no body", got.Code, got.Header(), got.Body.Len())
	}
	for path, want := range map[string]int{"/": 404, "/boot": 404, "/boot/": 404, "/v1/manifest": 404, "/feed": 404} {
		if got := get("GET", path, ""); got.Code != want {
			t.Errorf("%s: got %d, want %d", path, got.Code, want)
		}
	}
	if got := get("PUT", "/boot/vmlinuz", ""); got.Code != 405 {
		t.Errorf("PUT: got %d, want 405", got.Code)
	}
}

// After a restart the feed's numbers continue. A new folder has another history.
func TestFeed(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	r := start(t, folder)
	first, err := r.client.GetFeed(t.Context(), 0)
	if err != nil || first.Last != 1 || len(first.Entries) != 1 || first.Entries[0].Kind != "started" || first.Health.Version != "1.2.3" ||
		first.Health.FreeBytes <= 0 ||
		first.Health.TotalBytes < first.Health.FreeBytes {
		t.Fatalf("got %+v (%v), want one started entry and the health of version 1.2.3", first, err)
	}
	r.stop()
	second, err := start(t, folder).client.GetFeed(t.Context(), 1)
	if err != nil || second.Last != 2 || len(second.Entries) != 1 || second.Entries[0].Number != 2 || second.History != first.History {
		t.Fatalf("got %+v (%v), want entry 2 of the history %v", second, err, first.History)
	}
	if _, err := tree.Open(folder); !errors.Is(err, tree.ErrBusy) {
		t.Errorf("got %v for a second agent in the folder, want %v", err, tree.ErrBusy)
	}
	other, err := start(t, t.TempDir()).client.GetFeed(t.Context(), 0)
	if err != nil || other.History == first.History || other.Last != 1 {
		t.Fatalf("got %+v (%v), want another history with one entry", other, err)
	}
}
