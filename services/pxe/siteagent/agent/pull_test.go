package agent_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/pxe/siteagent"
	"github.com/ironplane/ironplane/services/pxe/siteagent/tree"
)

// mixedFiles returns files of mixed sizes, some of them with the same content.
func mixedFiles(n int) map[string]string {
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

// After a pull the child has the parent's files. The next pull transfers nothing.
func TestPull(t *testing.T) {
	t.Parallel()
	parent, child := start(t, t.TempDir()), start(t, t.TempDir())
	want := mixedFiles(60)
	want["was a file/is a folder"], want["was a folder"] = "x", "y"
	for path, content := range want {
		parent.put(path, content)
	}
	child.put("was a file", "x")
	child.put("was a folder/with/a file", "z")
	child.put("gone/for ever", "gone")
	child.put("empty", "not empty")
	pull := child.runPull(parent.target())
	if pull.State != siteagent.PullDone || pull.Files != int64(len(want)) || pull.FilesTotal != pull.Files || pull.Bytes != pull.BytesTotal ||
		pull.Error != "" {
		t.Errorf("got %+v, want all %d files done", pull, len(want))
	}
	child.wantTree(want)
	if parts, err := os.ReadDir(filepath.Join(child.folder, "parts")); err != nil || len(parts) > 0 {
		t.Errorf("got the parts %v (%v), want none", parts, err)
	}
	counted := newProxy(t, parent)
	if pull := child.runPull(counted.target()); pull.State != siteagent.PullDone || counted.files.Load() != 0 {
		t.Errorf("got %+v and %d requests for files, want it done without requests", pull, counted.files.Load())
	}
	feed, err := child.client.GetFeed(t.Context(), 1)
	if err != nil || len(feed.Entries) != 2 || feed.Entries[0].Kind != "pulled" || feed.Entries[1].Number != feed.Last {
		t.Errorf("got %+v (%v), want 2 entries, the first of kind pulled", feed, err)
	}
	badTarget := parent.target()
	badTarget.Token = "x"
	if pull := child.runPull(badTarget); pull.State != siteagent.PullFailed || !strings.Contains(pull.Error, "API key") {
		t.Errorf("got %+v, want it failed because of the API key", pull)
	}
	child.wantTree(want) // a parent that refuses its list deletes nothing
}

// proxy is between a child and its parent, and changes responses as the test wants.
type proxy struct {
	parent *testAgent
	server *httptest.Server
	files  atomic.Int64
	spans  sync.Map // paths of files that were requested with a range
	change func(w http.ResponseWriter, path string, content []byte) bool

	together atomic.Int64
	bundle   func(w http.ResponseWriter, content []byte) bool
}

func newProxy(t *testing.T, parent *testAgent) *proxy {
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
		response := httptest.NewRecorder()
		parent.server.Config.Handler.ServeHTTP(response, r)
		if isFile && p.change(w, path, response.Body.Bytes()) {
			return
		}
		if r.URL.Path == "/v1/files" {
			p.together.Add(1)
			if p.bundle(w, response.Body.Bytes()) {
				return
			}
		}
		maps.Copy(w.Header(), response.Header())
		w.WriteHeader(response.Code)
		_, _ = io.Copy(w, response.Body)
	}))
	t.Cleanup(p.server.Close)
	return p
}

func (p *proxy) target() siteagent.Target {
	p.parent.Helper()
	return siteagent.Target{URL: p.server.URL, Token: p.parent.grant()}
}

// If a parent sends wrong or incomplete contents, the child shows no such file. It gets the other files, and names what is
// missing.
func TestPullFromABadParent(t *testing.T) {
	t.Parallel()
	parent, child := start(t, t.TempDir()), start(t, t.TempDir())
	want := mixedFiles(20)
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
		pull := child.runPull(p.target())
		if pull.State != siteagent.PullFailed || !strings.Contains(pull.Error, "lie") && !strings.Contains(pull.Error, "short") {
			t.Errorf("got %+v, want it failed with lie or short in the error", pull)
		}
		for path, content := range child.tree() {
			if want[path] != content {
				t.Errorf("%s: got %.20q, want %.20q", path, content, want[path])
			}
		}
	}
	honest.Store(true)
	want["lie"], want["short"] = big, "short"+big
	if pull := child.runPull(p.target()); pull.State != siteagent.PullDone {
		t.Errorf("got %+v, want the state %v", pull, siteagent.PullDone)
	}
	child.wantTree(want)
	if _, resumed := p.spans.Load("short"); !resumed {
		t.Error("got no request for the rest of short, want the download resumed")
	}
}

// One wrong content does not stop the other files.
func TestPullAroundALie(t *testing.T) {
	t.Parallel()
	parent, child := start(t, t.TempDir()), start(t, t.TempDir())
	want := mixedFiles(30)
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
	pull := child.runPull(p.target())
	if pull.State != siteagent.PullFailed || !strings.HasPrefix(pull.Error, "a lie: "+tree.ErrContent.Error()) ||
		pull.Files != int64(len(want)) ||
		pull.FilesTotal != pull.Files+1 {
		t.Errorf("got %+v, want %d files and the error of a lie", pull, len(want))
	}
	child.wantTree(want)
}

// Small files are requested together. If the bundle fails or lacks a file, the child requests it alone.
func TestPullTogether(t *testing.T) {
	t.Parallel()
	parent := start(t, t.TempDir())
	want := map[string]string{"large": strings.Repeat("large", siteagent.MaxBundledSize)}
	for i := range siteagent.MaxBundledFiles + 50 {
		want[fmt.Sprintf("%d/%d", i%3, i)] = strings.Repeat(fmt.Sprint(i), i)
	}
	for path, content := range want {
		testkit.Must(t, os.MkdirAll(filepath.Dir(filepath.Join(parent.folder, "files", path)), 0o755))
		testkit.Must(t, os.WriteFile(filepath.Join(parent.folder, "files", path), []byte(content), 0o644))
	}
	splitFrames := func(content []byte) (frames [][]byte) {
		for len(content) > 0 {
			end := bytes.IndexByte(content, '\n') + 1
			var is siteagent.BundleHeader
			testkit.Must(t, json.Unmarshal(content[:end], &is))
			end += int(is.Size)
			frames, content = append(frames, content[:end]), content[end:]
		}
		return frames
	}
	for name, tc := range map[string]struct {
		bundle func(w http.ResponseWriter, content []byte) bool
		alone  int64 // files that are requested alone
	}{
		"as it is": {func(http.ResponseWriter, []byte) bool { return false }, 1},
		"an older parent": {func(w http.ResponseWriter, _ []byte) bool {
			w.WriteHeader(http.StatusNotFound)
			return true
		}, int64(len(want)) - 1},
		"cut off": {func(w http.ResponseWriter, content []byte) bool {
			_, _ = w.Write(bytes.Join(splitFrames(content)[:10], nil))
			_, _ = io.WriteString(w, `{"size":5}`+"\nhal")
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}, int64(len(want)) - 1 - 10*2 + 2}, // a resumed file with a wrong content is requested once more
		"too large": {func(w http.ResponseWriter, content []byte) bool {
			_, _ = w.Write(bytes.Join(splitFrames(content)[:10], nil))
			_, _ = fmt.Fprintf(w, "{\"size\":%d}\n%s", siteagent.MaxBundledSize+1, make([]byte, siteagent.MaxBundledSize+1))
			return true
		}, int64(len(want)) - 1 - 10*2},
		"nonsense": {func(w http.ResponseWriter, content []byte) bool {
			_, _ = io.WriteString(w, strings.Repeat("x", 1<<20))
			return true
		}, int64(len(want)) - 1},
		"some left out": {func(w http.ResponseWriter, content []byte) bool {
			for n, frame := range splitFrames(content) {
				if n < 10 {
					frame = []byte(`{"left_out":true}` + "\n")
				}
				_, _ = w.Write(frame)
			}
			return true
		}, 1 + 10*2},
	} {
		child, p := start(t, t.TempDir()), newProxy(t, parent)
		p.bundle = tc.bundle
		pull := child.runPull(p.target())
		if pull.State != siteagent.PullDone || pull.Files != int64(len(want)) || pull.Bytes != pull.BytesTotal {
			t.Errorf("%s: got %+v, want all %d files done", name, pull, len(want))
		}
		if p.files.Load() != tc.alone || p.together.Load() != 2 {
			t.Errorf("%s: got %d requests for one and %d for several, want %d and 2", name, p.files.Load(), p.together.Load(), tc.alone)
		}
		child.wantTree(want)
	}
}

// After a kill the child does not request what had arrived. What the disk lost of it is requested again.
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
		testkit.Must(t, os.WriteFile(filepath.Join(folder, "parts", newFile("", want[fmt.Sprint(i)]).SHA256), content, 0o600))
	}
	child, p := start(t, folder), newProxy(t, parent)
	var requested sync.Map
	p.bundle = func(_ http.ResponseWriter, content []byte) bool {
		for i := range 15 {
			if bytes.Contains(content, []byte(want[fmt.Sprint(i)])) {
				requested.Store(i, true)
			}
		}
		return false
	}
	if pull := child.runPull(p.target()); pull.State != siteagent.PullDone || pull.Bytes != pull.BytesTotal {
		t.Errorf("got %+v, want all bytes done", pull)
	}
	child.wantTree(want)
	requested.Range(func(i, _ any) bool {
		t.Errorf("got another request for file %d, want none", i)
		return true
	})
	if p.files.Load() != 7 || p.together.Load() != 1 {
		t.Errorf("got %d requests for one file and %d for several, want 7 and 1", p.files.Load(), p.together.Load())
	}
	if parts, err := os.ReadDir(filepath.Join(folder, "parts")); err != nil || len(parts) > 0 {
		t.Errorf("got the parts %v (%v), want none", parts, err)
	}
}
