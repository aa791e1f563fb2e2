package agent_test

import (
	"cmp"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/pxe/siteagent"
)

// newDisk creates a file with an ext4 file system of this size.
func newDisk(t *testing.T, image string, size int64, options ...string) {
	t.Helper()
	testkit.Must(t, os.WriteFile(image, nil, 0o600))
	testkit.Must(t, os.Truncate(image, size))
	runOrSkip(t, "mkfs.ext4", append(options, "-q", "-F", image)...)
}

// mount mounts the file system of an image until the end of the test.
func mount(t *testing.T, image string) (folder string) {
	t.Helper()
	folder = t.TempDir()
	runOrSkip(t, "mount", "-o", "loop", image, folder)
	t.Cleanup(func() { testkit.Must(t, syscall.Unmount(folder, syscall.MNT_DETACH)) })
	return folder
}

func runOrSkip(t *testing.T, program string, arguments ...string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil || os.Geteuid() != 0 {
		t.Skipf("a disk for the test needs root and %s, which Debian's packages e2fsprogs and mount have", program)
	}
	if output, err := exec.CommandContext(t.Context(), program, arguments...).CombinedOutput(); err != nil {
		t.Skipf("this machine cannot create a disk for the test, for example without loop devices: %s: %v %s", program, err, output)
	}
}

// When a pull is done its files are on the disk: a copy of the disk at that time, as after a power failure, has them.
func TestPowerCut(t *testing.T) {
	t.Parallel()
	image := filepath.Join(t.TempDir(), "disk")
	newDisk(t, image, 96<<20)
	parent, child := start(t, t.TempDir()), start(t, mount(t, image))
	want := mixedFiles(200)
	want["large"] = randomContent(44 << 20)
	for path, content := range want {
		testkit.Must(t, os.MkdirAll(filepath.Dir(filepath.Join(parent.folder, "files", path)), 0o755))
		testkit.Must(t, os.WriteFile(filepath.Join(parent.folder, "files", path), []byte(content), 0o644))
	}
	child.put("gone", "gone")
	if pull := child.runPull(parent.target()); pull.State != siteagent.PullDone {
		t.Fatalf("got %+v, want the state %v", pull, siteagent.PullDone)
	}
	after := filepath.Join(t.TempDir(), "after")
	text, err := os.ReadFile(image) // what has reached the disk, without the page cache
	testkit.Must(t, err)
	testkit.Must(t, os.WriteFile(after, text, 0o600))
	got := testkit.ReadTree(t, filepath.Join(mount(t, after), "files"))
	for path, content := range want {
		if got[path] != content {
			t.Errorf("%s: got %.20q, want %.20q", path, got[path], content)
		}
	}
	if len(got) != len(want) {
		t.Errorf("got %d files, want %d", len(got), len(want))
	}
}

// newFailingDisk returns a file system that accepts writes and then fails to store them, until grow makes it larger.
func newFailingDisk(t *testing.T) (folder string, grow func() error) {
	t.Helper()
	tmpfs := t.TempDir() // smaller than the file system in it
	if err := syscall.Mount("tmpfs", tmpfs, "tmpfs", 0, "size=10m"); err != nil {
		t.Skip("a disk that fails needs root, to mount it: ", err)
	}
	t.Cleanup(func() { testkit.Must(t, syscall.Unmount(tmpfs, syscall.MNT_DETACH)) })
	image := filepath.Join(tmpfs, "disk")
	newDisk(t, image, 256<<20, "-O", "^has_journal")
	return mount(t, image), func() error { return syscall.Mount("", tmpfs, "", syscall.MS_REMOUNT, "size=300m") }
}

// If the disk fails to store a part of a content, no file appears, even if it stores the rest. An upload does not resume from what
// is only in memory.
func TestFailingDisk(t *testing.T) {
	t.Parallel()
	disk, grow := newFailingDisk(t)
	parent, child := start(t, t.TempDir()), start(t, disk)
	content := randomContent(120 << 20)
	f := newFile("large", content)
	checkRefused := func() {
		t.Helper()
		child.wantTree(map[string]string{})
		if received, err := child.client.GetReceived(t.Context(), f.SHA256); err != nil || received != 0 {
			t.Errorf("got %d bytes received (%v), want 0", received, err)
		}
	}
	testkit.Must(t, os.WriteFile(filepath.Join(parent.folder, "files", "large"), []byte(content), 0o644))
	if pull := child.runPull(parent.target()); pull.State != siteagent.PullFailed {
		t.Errorf("got %+v, want the state %v", pull, siteagent.PullFailed)
	}
	checkRefused()
	const beforeFailure = 70 << 20 // much more than the buffers between sender and disk hold
	growing := readerFunc(func([]byte) (int, error) { return 0, cmp.Or(grow(), io.EOF) })
	if err := child.client.Put(
		t.Context(),
		f,
		0,
		io.MultiReader(strings.NewReader(content[:beforeFailure]), growing, strings.NewReader(content[beforeFailure:])),
	); err == nil {
		t.Error("got no error of an upload to a full disk, want one")
	}
	checkRefused()
}

// After the disk failed to store a part of an interrupted upload, a pull does not resume that part.
func TestFailedPart(t *testing.T) {
	t.Parallel()
	disk, grow := newFailingDisk(t)
	parent, child := start(t, t.TempDir()), start(t, disk)
	content := randomContent(24 << 20)
	f := newFile("large", content)
	upload := fmt.Sprintf("/v1/file/large?sha256=%s&size=%d&offset=0", f.SHA256, f.Size)
	if status, text := child.request("PUT", upload, key, strings.NewReader(content[:20<<20])); status != http.StatusBadRequest {
		t.Fatalf("got %d %s for an incomplete upload, want %d", status, text, http.StatusBadRequest)
	}
	parent.put("small", "small")
	if pull := child.runPull(parent.target()); pull.State != siteagent.PullFailed {
		t.Errorf("got %+v, want the state %v", pull, siteagent.PullFailed)
	}
	if received, err := child.client.GetReceived(t.Context(), f.SHA256); err != nil || received != 20<<20 {
		t.Errorf("got %d bytes received (%v), want %d", received, err, 20<<20)
	}
	testkit.Must(t, grow())
	testkit.Must(t, os.WriteFile(filepath.Join(parent.folder, "files", "large"), []byte(content), 0o644))
	if pull := child.runPull(parent.target()); pull.State != siteagent.PullDone {
		t.Errorf("got %+v, want the state %v", pull, siteagent.PullDone)
	}
	got, err := os.Open(filepath.Join(disk, "files", "large"))
	testkit.Must(t, err)
	defer got.Close()
	testkit.Must(t, unix.Fadvise(int(got.Fd()), 0, 0, unix.FADV_DONTNEED)) // so that it is read from the disk
	child.wantTree(map[string]string{"small": "small", "large": content})
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// randomContent returns a content that does not repeat.
func randomContent(size int) string {
	content := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{}).Read(content)
	return string(content)
}

// On a full disk a pull fails and says why. When there is space, the next one completes.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	disk := t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=2m"); err != nil {
		t.Skip("a small disk needs root, to mount it: ", err)
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
	pull := child.runPull(parent.target())
	if pull.State != siteagent.PullFailed || !strings.Contains(pull.Error, "the disk is full") {
		t.Errorf("got %+v, want it failed because the disk is full", pull)
	}
	for path, content := range child.tree() {
		if want[path] != content {
			t.Errorf("%s: got %.20q, want %.20q", path, content, want[path])
		}
	}
	testkit.Must(t, os.Remove(filling))
	if pull := child.runPull(parent.target()); pull.State != siteagent.PullDone {
		t.Errorf("got %+v, want the state %v", pull, siteagent.PullDone)
	}
	child.wantTree(want)
}
