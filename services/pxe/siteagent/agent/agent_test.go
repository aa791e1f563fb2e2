package agent_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/pxe/siteagent"
	"github.com/ironplane/ironplane/services/pxe/siteagent/agent"
	"github.com/ironplane/ironplane/services/pxe/siteagent/machine"
	"github.com/ironplane/ironplane/services/pxe/siteagent/tree"
)

const key = "what the control plane knows"

// running is an agent that runs until the test ends, or it is stopped.
type running struct {
	*testing.T
	folder, fingerprint string
	server              *httptest.Server
	agent               *agent.Agent
	machines            http.Handler
	client              *siteagent.Client // with the API key
	stop                func()
}

func start(t *testing.T, folder string) *running {
	t.Helper()
	return startWith(t, folder, machine.Settings{})
}

func startWith(t *testing.T, folder string, machines machine.Settings) *running {
	t.Helper()
	files, err := tree.Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	a, err := agent.New(files, secret.New(key), machines, "1.2.3", slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := agent.OwnCertificate(filepath.Join(folder, "certificate"))
	if err != nil {
		t.Fatal(err)
	}
	r := &running{T: t, folder: folder, agent: a, machines: a.Open(), server: httptest.NewUnstartedServer(a.Handler())}
	if r.fingerprint, err = certificate.Fingerprint(); err != nil {
		t.Fatal(err)
	}
	r.server.Listener = tls.NewListener(r.server.Listener, certificate.TLS())
	r.server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	r.server.Start()
	r.server.URL = "https://" + r.server.Listener.Addr().String()
	r.client = r.clientWith(key)
	ctx, end := context.WithCancel(context.Background())
	var working sync.WaitGroup
	working.Go(func() {
		if err := a.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	r.stop = sync.OnceFunc(func() {
		end()
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

func (r *running) clientWith(key string) *siteagent.Client {
	asking, err := siteagent.NewHTTP(r.fingerprint)
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(asking.CloseIdleConnections)
	return &siteagent.Client{URL: r.server.URL, Key: secret.New(key), HTTP: asking}
}

// file is one with this content.
func file(path, content string) siteagent.File {
	sum := sha256.Sum256([]byte(content))
	return siteagent.File{Path: path, Size: int64(len(content)), SHA256: hex.EncodeToString(sum[:])}
}

func (r *running) put(path, content string) {
	r.Helper()
	if err := r.client.Put(r.Context(), file(path, content), 0, strings.NewReader(content)); err != nil {
		r.Fatal(err)
	}
}

// tree is what the folder of files holds, by path.
func (r *running) tree() map[string]string {
	r.Helper()
	return testkit.Tree(r, filepath.Join(r.folder, "files"))
}

func (r *running) wantTree(want map[string]string) {
	r.Helper()
	got := r.tree()
	if maps.Equal(got, want) {
		return
	}
	for path, content := range want {
		if got[path] != content {
			r.Errorf("%s is %.20q instead of %.20q", path, got[path], content)
		}
	}
	for path := range got {
		if _, wanted := want[path]; !wanted {
			r.Errorf("there is %s", path)
		}
	}
}

func (r *running) do(method, path, key string, body io.Reader) (status int, text string) {
	r.Helper()
	request, err := http.NewRequestWithContext(r.Context(), method, r.server.URL+path, body)
	if err != nil {
		r.Fatal(err)
	}
	if key != "" {
		request.Header.Set("Authorization", "Bearer "+key)
	}
	answer, err := r.client.HTTP.Transport.RoundTrip(request)
	if err != nil {
		r.Fatal(err)
	}
	defer answer.Body.Close()
	content, err := io.ReadAll(answer.Body)
	if err != nil {
		r.Fatal(err)
	}
	return answer.StatusCode, string(content)
}

func (r *running) grant() (token string) {
	r.Helper()
	token = fmt.Sprint("token ", rand.Uint64())
	sum := sha256.Sum256([]byte(token))
	if err := r.client.Grant(r.Context(), siteagent.Grant{SHA256: hex.EncodeToString(sum[:]), Seconds: 60}); err != nil {
		r.Fatal(err)
	}
	return token
}

// pull orders one, and waits for what comes of it.
func (r *running) pull(from siteagent.Target) siteagent.Pull {
	r.Helper()
	id := fmt.Sprint(rand.Uint64())
	if err := r.client.Order(r.Context(), siteagent.Order{ID: id, Parent: from}); err != nil {
		r.Fatal(err)
	}
	for deadline := time.Now().Add(5 * time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		is, err := r.client.Pull(r.Context(), id)
		if err != nil {
			r.Fatal(err)
		}
		if is.State != siteagent.Running {
			return is
		}
	}
	r.Fatal("it does not end")
	return siteagent.Pull{}
}

func (r *running) target() siteagent.Target {
	r.Helper()
	return siteagent.Target{URL: r.server.URL, Fingerprint: r.fingerprint, Token: r.grant()}
}

// Nothing is answered without the key, and with a token files alone.
func TestKeys(t *testing.T) {
	t.Parallel()
	r := start(t, t.TempDir())
	r.put("a/b", "content")
	token := r.grant()
	sum := file("", "content").SHA256
	for path, want := range map[string]int{
		"GET /v1/health": 403, "GET /v1/feed?after=0": 403, "POST /v1/grant": 403, "POST /v1/pull": 403, "GET /v1/pull/1": 403, "GET /v1/content/" + sum: 403,
		"PUT /v1/file/a": 403, "DELETE /v1/file/a/b": 403, "GET /v1/manifest": 200, "GET /v1/file/a/b": 200, "GET /v1/file/x": 404, "POST /v1/files": 200, "GET /": 404,
	} {
		method, path, _ := strings.Cut(path, " ")
		for _, wrong := range []string{"", "x", key + "x", key[1:], sum} {
			if status, _ := r.do(method, path, wrong, strings.NewReader("{}")); status != http.StatusUnauthorized {
				t.Errorf("%s %s with the key %q: %d", method, path, wrong, status)
			}
		}
		if status, text := r.do(method, path, token, strings.NewReader("{}")); status != want {
			t.Errorf("%s %s with a token: %d %s", method, path, status, text)
		}
	}
	if _, err := agent.New(nil, secret.New("short"), machine.Settings{}, "", nil); err == nil {
		t.Error("a short key is taken")
	}
	for body, want := range map[string]int{`{`: 400, `{"sha256": "x", "seconds": 1}`: 422, `{"sha256": "` + sum + `", "seconds": 0}`: 422, `{"sha256": "` + sum + `", "seconds": 99999999}`: 422,
		`{"sha256": "` + strings.Repeat("0", 100_000) + `"}`: 400} {
		if status, text := r.do("POST", "/v1/grant", key, strings.NewReader(body)); status != want {
			t.Errorf("%.80s: %d %s", body, status, text)
		}
	}
	elsewhere, err := siteagent.NewHTTP(strings.Repeat("00", sha256.Size))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (&siteagent.Client{URL: r.server.URL, Key: secret.New(key), HTTP: elsewhere}).Health(
		t.Context(),
	); !errors.Is(
		err,
		siteagent.ErrFingerprint,
	) {
		t.Errorf("with another certificate: %v", err)
	}
}

// Whatever a path says, and whatever lies in the folder, nothing outside is read, written or deleted, and nothing but files.
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

	f := file("", "planted")
	upload := fmt.Sprintf("?sha256=%s&size=%d&offset=0", f.SHA256, f.Size)
	for _, path := range []string{"link", "up/secret", "up/agent/certificate", "parts/x", "pipe/x", "../secret", "..%2fsecret", "%2e%2e/secret", "a/../../secret", "a/%2e%2e/%2e%2e/secret", "/secret", "%2fsecret",
		"a//b", "", ".", "./x", "x/.", "bad%0aname", "a%00b", strings.Repeat("a", 256), strings.Repeat("a/", 600) + "a", "%ff"} {
		if status, text := r.do("GET", "/v1/file/"+path, key, nil); status == 200 {
			t.Errorf("GET %s: %q", path, text)
		}
		if status, _ := r.do(
			"PUT",
			"/v1/file/"+path+upload,
			key,
			strings.NewReader("planted"),
		); status == 200 &&
			path != "link" { // which becomes a file
			t.Errorf("PUT %s: %d", path, status)
		}
		r.do("DELETE", "/v1/file/"+path, key, nil)
		answer := httptest.NewRecorder()
		request := httptest.NewRequest("GET", "/", nil)
		request.URL.Path = "/" + path
		if r.machines.ServeHTTP(answer, request); answer.Code == 200 {
			t.Errorf("a machine gets %s: %q", path, answer.Body)
		}
	}
	asked := siteagent.Together{
		Paths: []string{"link", "up/secret", "parts/x", "pipe", "../secret", "/secret", "empty", "inside", "", "bad\nname", "plain"},
	}
	text, err := json.Marshal(asked)
	testkit.Must(t, err)
	if status, text := r.do(
		"POST",
		"/v1/files",
		key,
		bytes.NewReader(text),
	); status != 200 ||
		text != strings.Repeat(`{"size":0,"left_out":true}`+"\n", 10)+`{"size":7}`+"\ncontent" {
		t.Errorf("POST /v1/files: %d %q", status, text)
	}
	for _, path := range []string{"pipe", "empty", "inside"} {
		if status, text := r.do("GET", "/v1/file/"+path, key, nil); status != 404 {
			t.Errorf("GET %s: %d %s", path, status, text)
		}
	}
	if content, err := os.ReadFile(filepath.Join(outer, "secret")); err != nil || string(content) != "secret" {
		t.Errorf("%q %v", content, err)
	}
	if all, err := os.ReadDir(outer); err != nil || len(all) != 2 {
		t.Errorf("%v %v", all, err)
	}
	all, err := r.client.Manifest(t.Context())
	if err != nil || len(all) != 1 || all[0] != file("plain", "content") {
		t.Errorf("%v %v", all, err)
	}
	said, err := r.client.Feed(t.Context(), 1)
	if err != nil || len(said.Entries) != 1 || said.Entries[0].Kind != "not-served" {
		t.Errorf("%+v %v", said, err)
	}
}

// A file is seen once it is whole and right, and goes on where it was.
func TestUpload(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	r := start(t, folder)
	content := strings.Repeat("0123456789", 100_000)
	f := file("big", content)
	received := func(want int64) {
		t.Helper()
		if got, err := r.client.Received(t.Context(), f.SHA256); err != nil || got != want {
			t.Fatalf("there are %d bytes instead of %d: %v", got, want, err)
		}
	}
	upload := fmt.Sprintf("/v1/file/big?sha256=%s&size=%d&offset=0", f.SHA256, f.Size)
	if status, text := r.do("PUT", upload, key, strings.NewReader(content[:300_000])); status != http.StatusBadRequest {
		t.Errorf("half a file is taken: %d %s", status, text)
	}
	received(300_000)
	r.wantTree(map[string]string{})
	r.stop()
	r = start(t, folder)
	received(300_000)
	if err := r.client.Put(t.Context(), f, f.Size-10, strings.NewReader(content[f.Size-10:])); !siteagent.IsRefusal(err, http.StatusConflict) {
		t.Errorf("from another offset: %v", err)
	}
	testkit.Must(t, r.client.Put(t.Context(), f, 300_000, strings.NewReader(content[300_000:])))
	r.wantTree(map[string]string{"big": content})

	wrong := file("wrong", "one content")
	if err := r.client.Put(
		t.Context(),
		wrong,
		0,
		strings.NewReader("two content"),
	); !siteagent.IsRefusal(
		err,
		http.StatusUnprocessableEntity,
	) {
		t.Errorf("another content is taken: %v", err)
	}
	r.wantTree(map[string]string{"big": content})
}

// A content that is there is not sent again, and a file is replaced at once.
func TestKnownContent(t *testing.T) {
	t.Parallel()
	r := start(t, t.TempDir())
	r.put("one", "content")
	f := file("folder/two", "content")
	if n, err := r.client.Received(t.Context(), f.SHA256); err != nil || n != f.Size {
		t.Errorf("%d %v", n, err)
	}
	testkit.Must(t, r.client.Put(t.Context(), f, f.Size, http.NoBody))
	r.put("one", "another")
	r.put("empty", "")
	r.wantTree(map[string]string{"one": "another", "folder/two": "content", "empty": ""})
	if err := r.client.Put(t.Context(), file("one/below", "x"), 0, strings.NewReader("x")); !siteagent.IsRefusal(err, http.StatusConflict) {
		t.Errorf("below a file: %v", err)
	}
	if err := r.client.Put(t.Context(), file("folder", "x"), 0, strings.NewReader("x")); !siteagent.IsRefusal(err, http.StatusConflict) {
		t.Errorf("in place of a folder: %v", err)
	}
	testkit.Must(t, r.client.Delete(t.Context(), "folder/two"))
	testkit.Must(t, r.client.Delete(t.Context(), "folder/two"))
	if _, err := os.Stat(filepath.Join(r.folder, "files/folder")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an empty folder stays: %v", err)
	}
	// One that was written by hand is noticed.
	testkit.Must(t, os.WriteFile(filepath.Join(r.folder, "files/one"), []byte("by hand"), 0o644))
	all, err := r.client.Manifest(t.Context())
	if err != nil || len(all) != 2 || all[1] != file("one", "by hand") {
		t.Errorf("%v %v", all, err)
	}
}

// Machines get files without a key, also parts of them, and no lists.
func TestMachines(t *testing.T) {
	t.Parallel()
	r := start(t, t.TempDir())
	r.put("boot/vmlinuz", "0123456789")
	get := func(method, path, span string) *httptest.ResponseRecorder {
		answer, request := httptest.NewRecorder(), httptest.NewRequest(method, path, nil)
		if span != "" {
			request.Header.Set("Range", span)
		}
		r.machines.ServeHTTP(answer, request)
		return answer
	}
	if got := get("GET", "/boot/vmlinuz", ""); got.Code != 200 || got.Body.String() != "0123456789" {
		t.Errorf("%d %s", got.Code, got.Body)
	}
	if got := get("GET", "/boot/vmlinuz", "bytes=3-5"); got.Code != 206 || got.Body.String() != "345" {
		t.Errorf("%d %s", got.Code, got.Body)
	}
	if got := get("HEAD", "/boot/vmlinuz", ""); got.Code != 200 || got.Header().Get("Content-Length") != "10" || got.Body.Len() > 0 {
		t.Errorf("%d %v", got.Code, got.Header())
	}
	for path, want := range map[string]int{"/": 404, "/boot": 404, "/boot/": 404, "/v1/manifest": 404, "/feed": 404} {
		if got := get("GET", path, ""); got.Code != want {
			t.Errorf("%s: %d", path, got.Code)
		}
	}
	if got := get("PUT", "/boot/vmlinuz", ""); got.Code != 405 {
		t.Errorf("PUT: %d", got.Code)
	}
}

// some are files of mixed sizes, some of them with the same content.
func some(n int) map[string]string {
	all, random := map[string]string{}, rand.NewChaCha8([32]byte{})
	for i := range n {
		content := make([]byte, 1<<(i%18))
		_, _ = random.Read(content)
		all[fmt.Sprintf("folder %d/é%%/%d", i%7, i)] = string(content)
		if i%10 == 0 {
			all[fmt.Sprintf("again/%d", i)] = string(content)
		}
	}
	all["empty"], all["also empty"] = "", ""
	return all
}

// What a parent has its child has, after one pull, and the next one moves nothing.
func TestPull(t *testing.T) {
	t.Parallel()
	parent, child := start(t, t.TempDir()), start(t, t.TempDir())
	want := some(60)
	want["was a file/is a folder"], want["was a folder"] = "x", "y"
	for path, content := range want {
		parent.put(path, content)
	}
	child.put("was a file", "x")
	child.put("was a folder/with/a file", "z")
	child.put("gone/for ever", "gone")
	child.put("empty", "not empty")
	is := child.pull(parent.target())
	if is.State != siteagent.Done || is.Files != int64(len(want)) || is.FilesTotal != is.Files || is.Bytes != is.BytesTotal || is.Error != "" {
		t.Errorf("%+v", is)
	}
	child.wantTree(want)
	if parts, err := os.ReadDir(filepath.Join(child.folder, "parts")); err != nil || len(parts) > 0 {
		t.Errorf("%v is left: %v", parts, err)
	}
	counted := newProxy(t, parent)
	if is := child.pull(counted.target()); is.State != siteagent.Done || counted.files.Load() != 0 {
		t.Errorf("%+v, %d files were asked for", is, counted.files.Load())
	}
	said, err := child.client.Feed(t.Context(), 1)
	if err != nil || len(said.Entries) != 2 || said.Entries[0].Kind != "pulled" || said.Entries[1].Number != said.Last {
		t.Errorf("%+v %v", said, err)
	}
	wrong := parent.target()
	wrong.Token = "x"
	if is := child.pull(wrong); is.State != siteagent.Failed || !strings.Contains(is.Error, "API key") {
		t.Errorf("%+v", is)
	}
	child.wantTree(want) // a parent that does not say what it has has not nothing
}

// proxy stands before a parent, and does to what it answers what the test wants.
type proxy struct {
	parent *running
	server *httptest.Server
	files  atomic.Int64
	spans  sync.Map // paths of files that were asked for from an offset on
	change func(w http.ResponseWriter, path string, content []byte) bool

	together atomic.Int64
	bundle   func(w http.ResponseWriter, content []byte) bool
}

func newProxy(t *testing.T, parent *running) *proxy {
	p := &proxy{
		parent: parent,
		change: func(http.ResponseWriter, string, []byte) bool { return false },
		bundle: func(http.ResponseWriter, []byte) bool { return false },
	}
	p.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path, isFile := strings.CutPrefix(r.URL.Path, "/v1/file/")
		if isFile {
			p.files.Add(1)
			if r.Header.Get("Range") != "" {
				p.spans.Store(path, true)
			}
		}
		answer := httptest.NewRecorder()
		parent.server.Config.Handler.ServeHTTP(answer, r)
		if isFile && p.change(w, path, answer.Body.Bytes()) {
			return
		}
		if r.URL.Path == "/v1/files" {
			p.together.Add(1)
			if p.bundle(w, answer.Body.Bytes()) {
				return
			}
		}
		maps.Copy(w.Header(), answer.Header())
		w.WriteHeader(answer.Code)
		_, _ = io.Copy(w, answer.Body)
	}))
	t.Cleanup(p.server.Close)
	return p
}

func (p *proxy) target() siteagent.Target {
	p.parent.Helper()
	return siteagent.Target{URL: p.server.URL, Token: p.parent.grant()}
}

// Of a parent that lies about what a file holds, or cuts it off, nothing wrong is ever seen. The rest is got, and what is missing is named.
func TestPullFromABadParent(t *testing.T) {
	t.Parallel()
	parent, child := start(t, t.TempDir()), start(t, t.TempDir())
	want := some(20)
	for path, content := range want {
		parent.put(path, content)
	}
	big := strings.Repeat("0123456789", 100_000)
	parent.put("lie", big)
	parent.put("short", "short"+big)
	p := newProxy(t, parent)
	var honest atomic.Bool
	p.change = func(w http.ResponseWriter, path string, content []byte) bool {
		switch {
		case honest.Load():
			return false
		case path == "lie":
			_, _ = w.Write(bytes.ToUpper(append([]byte("x"), content[1:]...)))
		case path == "short":
			_, _ = w.Write(content[:len(content)/2])
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		default:
			return false
		}
		return true
	}
	for range 3 {
		is := child.pull(p.target())
		if is.State != siteagent.Failed || !strings.Contains(is.Error, "lie") && !strings.Contains(is.Error, "short") {
			t.Errorf("%+v", is)
		}
		for path, content := range child.tree() {
			if want[path] != content {
				t.Errorf("there is %s: %.20q", path, content)
			}
		}
	}
	honest.Store(true)
	want["lie"], want["short"] = big, "short"+big
	if is := child.pull(p.target()); is.State != siteagent.Done {
		t.Errorf("%+v", is)
	}
	child.wantTree(want)
	if _, resumed := p.spans.Load("short"); !resumed {
		t.Error("what has arrived is asked for again")
	}
}

// A lie alone keeps nothing else from arriving.
func TestPullAroundALie(t *testing.T) {
	t.Parallel()
	parent, child := start(t, t.TempDir()), start(t, t.TempDir())
	want := some(30)
	for path, content := range want {
		parent.put(path, content)
	}
	parent.put("a lie", "truth")
	child.put("gone", "gone")
	p := newProxy(t, parent)
	p.change = func(w http.ResponseWriter, path string, _ []byte) bool {
		if path == "a lie" {
			_, _ = io.WriteString(w, "wrong")
		}
		return path == "a lie"
	}
	p.bundle = func(w http.ResponseWriter, content []byte) bool {
		_, _ = w.Write(bytes.ReplaceAll(content, []byte("truth"), []byte("wrong")))
		return true
	}
	is := child.pull(p.target())
	if is.State != siteagent.Failed || !strings.HasPrefix(is.Error, "a lie: "+tree.ErrContent.Error()) || is.Files != int64(len(want)) ||
		is.FilesTotal != is.Files+1 {
		t.Errorf("%+v", is)
	}
	child.wantTree(want)
}

// Small files come together, and where that is not given, is cut off or makes no sense, each by itself.
func TestPullTogether(t *testing.T) {
	t.Parallel()
	parent := start(t, t.TempDir())
	want := map[string]string{"large": strings.Repeat("large", siteagent.SmallFile)}
	for i := range siteagent.MostTogether + 50 {
		want[fmt.Sprintf("%d/%d", i%3, i)] = strings.Repeat(fmt.Sprint(i), i)
	}
	for path, content := range want {
		testkit.Must(t, os.MkdirAll(filepath.Dir(filepath.Join(parent.folder, "files", path)), 0o755))
		testkit.Must(t, os.WriteFile(filepath.Join(parent.folder, "files", path), []byte(content), 0o644))
	}
	whole := func(content []byte) (frames [][]byte) {
		for len(content) > 0 {
			end := bytes.IndexByte(content, '\n') + 1
			var is siteagent.Bundled
			testkit.Must(t, json.Unmarshal(content[:end], &is))
			end += int(is.Size)
			frames, content = append(frames, content[:end]), content[end:]
		}
		return frames
	}
	for name, of := range map[string]struct {
		bundle func(w http.ResponseWriter, content []byte) bool
		alone  int64 // files that are asked for by themselves
	}{
		"as it is": {func(http.ResponseWriter, []byte) bool { return false }, 1},
		"an older parent": {func(w http.ResponseWriter, _ []byte) bool {
			w.WriteHeader(http.StatusNotFound)
			return true
		}, int64(len(want)) - 1},
		"cut off": {func(w http.ResponseWriter, content []byte) bool {
			_, _ = w.Write(bytes.Join(whole(content)[:10], nil))
			_, _ = io.WriteString(w, `{"size":5}`+"\nhal")
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}, int64(len(want)) - 1 - 10*2 + 2}, // what was gone on with and makes no whole is asked for once more
		"too large": {func(w http.ResponseWriter, content []byte) bool {
			_, _ = w.Write(bytes.Join(whole(content)[:10], nil))
			_, _ = fmt.Fprintf(w, "{\"size\":%d}\n%s", siteagent.SmallFile+1, make([]byte, siteagent.SmallFile+1))
			return true
		}, int64(len(want)) - 1 - 10*2},
		"nonsense": {func(w http.ResponseWriter, content []byte) bool {
			_, _ = io.WriteString(w, strings.Repeat("x", 1<<20))
			return true
		}, int64(len(want)) - 1},
		"some left out": {func(w http.ResponseWriter, content []byte) bool {
			for n, frame := range whole(content) {
				if n < 10 {
					frame = []byte(`{"left_out":true}` + "\n")
				}
				_, _ = w.Write(frame)
			}
			return true
		}, 1 + 10*2},
	} {
		child, p := start(t, t.TempDir()), newProxy(t, parent)
		p.bundle = of.bundle
		is := child.pull(p.target())
		if is.State != siteagent.Done || is.Files != int64(len(want)) || is.Bytes != is.BytesTotal {
			t.Errorf("%s: %+v", name, is)
		}
		if p.files.Load() != of.alone || p.together.Load() != 2 {
			t.Errorf("%s: %d requests for one file, %d for several", name, p.files.Load(), p.together.Load())
		}
		child.wantTree(want)
	}
}

// What has arrived and was not yet seen, as the agent was killed, is not asked for again; and what the disk has lost of it, as the
// machine went down, is.
func TestPullAfterAKill(t *testing.T) {
	t.Parallel()
	parent, folder := start(t, t.TempDir()), t.TempDir()
	want := map[string]string{}
	for i := range 20 {
		want[fmt.Sprint(i)] = strings.Repeat(fmt.Sprint("content ", i), 100)
		parent.put(fmt.Sprint(i), want[fmt.Sprint(i)])
	}
	testkit.Must(t, os.Mkdir(filepath.Join(folder, "parts"), 0o700))
	testkit.Must(t, os.WriteFile(filepath.Join(folder, "parts", "passing-ABC"), []byte("a copy"), 0o600))
	for i := range 15 {
		content := []byte(want[fmt.Sprint(i)])
		switch {
		case i >= 10:
			content = make([]byte, len(content))
		case i >= 8:
			content = content[:len(content)/2]
		}
		testkit.Must(t, os.WriteFile(filepath.Join(folder, "parts", file("", want[fmt.Sprint(i)]).SHA256), content, 0o600))
	}
	child, p := start(t, folder), newProxy(t, parent)
	var asked sync.Map
	p.bundle = func(_ http.ResponseWriter, content []byte) bool {
		for i := range 15 {
			if bytes.Contains(content, []byte(want[fmt.Sprint(i)])) {
				asked.Store(i, true)
			}
		}
		return false
	}
	if is := child.pull(p.target()); is.State != siteagent.Done || is.Bytes != is.BytesTotal {
		t.Errorf("%+v", is)
	}
	child.wantTree(want)
	asked.Range(func(i, _ any) bool {
		t.Errorf("%d is asked for again", i)
		return true
	})
	if p.files.Load() != 7 || p.together.Load() != 1 {
		t.Errorf("%d requests for one file, %d for several", p.files.Load(), p.together.Load())
	}
	if parts, err := os.ReadDir(filepath.Join(folder, "parts")); err != nil || len(parts) > 0 {
		t.Errorf("%v is left: %v", parts, err)
	}
}

// newDisk makes a disk of this size, in a file.
func newDisk(t *testing.T, image string, size int64, options ...string) {
	t.Helper()
	testkit.Must(t, os.WriteFile(image, nil, 0o600))
	testkit.Must(t, os.Truncate(image, size))
	orSkip(t, "mkfs.ext4", append(options, "-q", "-F", image)...)
}

// mount answers where a disk is until the test ends.
func mount(t *testing.T, image string) (folder string) {
	t.Helper()
	folder = t.TempDir()
	orSkip(t, "mount", "-o", "loop", image, folder)
	t.Cleanup(func() { testkit.Must(t, syscall.Unmount(folder, syscall.MNT_DETACH)) })
	return folder
}

func orSkip(t *testing.T, program string, arguments ...string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil || os.Geteuid() != 0 {
		t.Skipf("a disk of its own needs %s, and root", program)
	}
	if said, err := exec.CommandContext(t.Context(), program, arguments...).CombinedOutput(); err != nil {
		t.Skipf("a disk of its own cannot be made: %s: %v %s", program, err, said)
	}
}

// Once a pull is done its files are on the disk: who mounts that as it is in this moment, as after a power cut, has them.
func TestPowerCut(t *testing.T) {
	t.Parallel()
	image := filepath.Join(t.TempDir(), "disk")
	newDisk(t, image, 96<<20)
	parent, child := start(t, t.TempDir()), start(t, mount(t, image))
	want := some(200)
	want["large"] = large(44 << 20)
	for path, content := range want {
		testkit.Must(t, os.MkdirAll(filepath.Dir(filepath.Join(parent.folder, "files", path)), 0o755))
		testkit.Must(t, os.WriteFile(filepath.Join(parent.folder, "files", path), []byte(content), 0o644))
	}
	child.put("gone", "gone")
	if is := child.pull(parent.target()); is.State != siteagent.Done {
		t.Fatalf("%+v", is)
	}
	after := filepath.Join(t.TempDir(), "after")
	text, err := os.ReadFile(image) // what has reached the disk, and nothing else
	testkit.Must(t, err)
	testkit.Must(t, os.WriteFile(after, text, 0o600))
	got := testkit.Tree(t, filepath.Join(mount(t, after), "files"))
	for path, content := range want {
		if got[path] != content {
			t.Errorf("%s is %.20q", path, got[path])
		}
	}
	if len(got) != len(want) {
		t.Errorf("there are %d files instead of %d", len(got), len(want))
	}
}

// newFailingDisk is a disk that takes what is written and fails to keep it, until there is room for it.
func newFailingDisk(t *testing.T) (folder string, room func() error) {
	t.Helper()
	below := t.TempDir() // it has less room than the disk in it says
	if err := syscall.Mount("tmpfs", below, "tmpfs", 0, "size=10m"); err != nil {
		t.Skip("a disk that fails needs root: ", err)
	}
	t.Cleanup(func() { testkit.Must(t, syscall.Unmount(below, syscall.MNT_DETACH)) })
	image := filepath.Join(below, "disk")
	newDisk(t, image, 256<<20, "-O", "^has_journal")
	return mount(t, image), func() error { return syscall.Mount("", below, "", syscall.MS_REMOUNT, "size=300m") }
}

// A disk that fails to keep a part of what it took makes no file, also where it keeps the rest; and nothing is gone on with that is in
// memory
// alone.
func TestFailingDisk(t *testing.T) {
	t.Parallel()
	disk, room := newFailingDisk(t)
	parent, child := start(t, t.TempDir()), start(t, disk)
	content := large(120 << 20)
	f := file("large", content)
	refused := func() {
		t.Helper()
		child.wantTree(map[string]string{})
		if is, err := child.client.Received(t.Context(), f.SHA256); err != nil || is != 0 {
			t.Errorf("%d bytes would be gone on with: %v", is, err)
		}
	}
	testkit.Must(t, os.WriteFile(filepath.Join(parent.folder, "files", "large"), []byte(content), 0o644))
	if is := child.pull(parent.target()); is.State != siteagent.Failed {
		t.Errorf("it is pulled: %+v", is)
	}
	refused()
	const failing = 70 << 20 // much more than lies between sender and disk
	late := readerFunc(func([]byte) (int, error) { return 0, cmp.Or(room(), io.EOF) })
	if err := child.client.Put(
		t.Context(),
		f,
		0,
		io.MultiReader(strings.NewReader(content[:failing]), late, strings.NewReader(content[failing:])),
	); err == nil {
		t.Error("it is taken")
	}
	refused()
}

// What a disk has failed to keep of a file that was cut off is not believed, whoever was told of it meanwhile.
func TestFailedPart(t *testing.T) {
	t.Parallel()
	disk, room := newFailingDisk(t)
	parent, child := start(t, t.TempDir()), start(t, disk)
	content := large(24 << 20)
	f := file("large", content)
	if err := child.client.Put(t.Context(), f, 0, strings.NewReader(content[:20<<20])); err == nil {
		t.Fatal("a part is taken for all of it")
	}
	parent.put("small", "small")
	if is := child.pull(parent.target()); is.State != siteagent.Failed {
		t.Errorf("nobody is told: %+v", is)
	}
	if is, err := child.client.Received(t.Context(), f.SHA256); err != nil || is != 20<<20 {
		t.Errorf("%d bytes have arrived: %v", is, err)
	}
	testkit.Must(t, room())
	testkit.Must(t, os.WriteFile(filepath.Join(parent.folder, "files", "large"), []byte(content), 0o644))
	if is := child.pull(parent.target()); is.State != siteagent.Done {
		t.Errorf("%+v", is)
	}
	got, err := os.Open(filepath.Join(disk, "files", "large"))
	testkit.Must(t, err)
	defer got.Close()
	testkit.Must(t, unix.Fadvise(int(got.Fd()), 0, 0, unix.FADV_DONTNEED)) // it is read from the disk
	child.wantTree(map[string]string{"small": "small", "large": content})
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// large is a content that does not repeat.
func large(size int) string {
	content := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{}).Read(content)
	return string(content)
}

// On a full disk a pull fails and says so; once there is room, it goes on.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	disk := t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=2m"); err != nil {
		t.Skip("a small disk needs root: ", err)
	}
	t.Cleanup(func() { testkit.Must(t, syscall.Unmount(disk, syscall.MNT_DETACH)) })
	parent, child := start(t, t.TempDir()), start(t, disk)
	want := map[string]string{}
	for i := range 12 {
		want[fmt.Sprint(i)] = strings.Repeat(fmt.Sprint(i), 100_000)[:100_000]
		parent.put(fmt.Sprint(i), want[fmt.Sprint(i)])
	}
	filling := filepath.Join(disk, "something else")
	testkit.Must(t, os.WriteFile(filling, make([]byte, 1_500_000), 0o644))
	is := child.pull(parent.target())
	if is.State != siteagent.Failed || !strings.Contains(is.Error, "the disk is full") {
		t.Errorf("%+v", is)
	}
	for path, content := range child.tree() {
		if want[path] != content {
			t.Errorf("there is %s: %.20q", path, content)
		}
	}
	testkit.Must(t, os.Remove(filling))
	if is := child.pull(parent.target()); is.State != siteagent.Done {
		t.Errorf("%+v", is)
	}
	child.wantTree(want)
}

// What there is to say is numbered on after a restart, and where it was lost it is another history.
func TestFeed(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	r := start(t, folder)
	first, err := r.client.Feed(t.Context(), 0)
	if err != nil || first.Last != 1 || len(first.Entries) != 1 || first.Entries[0].Kind != "started" || first.Health.Version != "1.2.3" ||
		first.Health.FreeBytes <= 0 ||
		first.Health.TotalBytes < first.Health.FreeBytes {
		t.Fatalf("%+v %v", first, err)
	}
	r.stop()
	second, err := start(t, folder).client.Feed(t.Context(), 1)
	if err != nil || second.Last != 2 || len(second.Entries) != 1 || second.Entries[0].Number != 2 || second.History != first.History {
		t.Fatalf("%+v %v", second, err)
	}
	if _, err := tree.Open(folder); !errors.Is(err, tree.ErrBusy) {
		t.Errorf("a second agent in the folder: %v", err)
	}
	other, err := start(t, t.TempDir()).client.Feed(t.Context(), 0)
	if err != nil || other.History == first.History || other.Last != 1 {
		t.Fatalf("%+v %v", other, err)
	}
}

// A certificate that is replaced counts for the next caller.
func TestCertificateIsReplaced(t *testing.T) {
	t.Parallel()
	r := start(t, t.TempDir())
	file := filepath.Join(r.folder, "certificate")
	if is, err := os.Stat(file); err != nil || is.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", is, err)
	}
	testkit.Must(t, os.Remove(file))
	other, err := agent.OwnCertificate(file)
	testkit.Must(t, err)
	testkit.Must(t, os.Chtimes(file, time.Time{}, time.Now().Add(time.Hour))) // the clock of files is coarse
	r.client.HTTP.CloseIdleConnections()
	if _, err := r.client.Health(t.Context()); !errors.Is(err, siteagent.ErrFingerprint) {
		t.Errorf("the old fingerprint is right: %v", err)
	}
	if r.fingerprint, err = other.Fingerprint(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.clientWith(key).Health(t.Context()); err != nil {
		t.Error(err)
	}
}
