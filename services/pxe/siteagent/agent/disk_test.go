package agent_test

import (
	"cmp"
	"fmt"
	"io"
	"math/rand/v2"
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
		t.Fatalf("got %+v, want the state %v", is, siteagent.Done)
	}
	after := filepath.Join(t.TempDir(), "after")
	text, err := os.ReadFile(image) // what has reached the disk, and nothing else
	testkit.Must(t, err)
	testkit.Must(t, os.WriteFile(after, text, 0o600))
	got := testkit.Tree(t, filepath.Join(mount(t, after), "files"))
	for path, content := range want {
		if got[path] != content {
			t.Errorf("%s: got %.20q, want %.20q", path, got[path], content)
		}
	}
	if len(got) != len(want) {
		t.Errorf("got %d files, want %d", len(got), len(want))
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
			t.Errorf("got %d bytes received (%v), want 0", is, err)
		}
	}
	testkit.Must(t, os.WriteFile(filepath.Join(parent.folder, "files", "large"), []byte(content), 0o644))
	if is := child.pull(parent.target()); is.State != siteagent.Failed {
		t.Errorf("got %+v, want the state %v", is, siteagent.Failed)
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
		t.Error("got no error of an upload to a full disk, want one")
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
		t.Fatal("got no error of a file that is cut off, want one")
	}
	parent.put("small", "small")
	if is := child.pull(parent.target()); is.State != siteagent.Failed {
		t.Errorf("got %+v, want the state %v", is, siteagent.Failed)
	}
	if is, err := child.client.Received(t.Context(), f.SHA256); err != nil || is != 20<<20 {
		t.Errorf("got %d bytes received (%v), want %d", is, err, 20<<20)
	}
	testkit.Must(t, room())
	testkit.Must(t, os.WriteFile(filepath.Join(parent.folder, "files", "large"), []byte(content), 0o644))
	if is := child.pull(parent.target()); is.State != siteagent.Done {
		t.Errorf("got %+v, want the state %v", is, siteagent.Done)
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
		t.Errorf("got %+v, want it failed because the disk is full", is)
	}
	for path, content := range child.tree() {
		if want[path] != content {
			t.Errorf("%s: got %.20q, want %.20q", path, content, want[path])
		}
	}
	testkit.Must(t, os.Remove(filling))
	if is := child.pull(parent.target()); is.State != siteagent.Done {
		t.Errorf("got %+v, want the state %v", is, siteagent.Done)
	}
	child.wantTree(want)
}
