package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ironplane/ironplane/deploy/internal/datastores"
	"github.com/ironplane/ironplane/pkg/devservers/child"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/pxe"
	"github.com/ironplane/ironplane/services/pxe/filesync"
)

const agentDocument = "../../docs/do/site-agent.md"

// siteAgent is an agent as the document has it installed, in a process of its own.
type siteAgent struct {
	*testing.T
	folder      string
	environment []string
	process     *child.Child
	id          int64
}

// newSiteAgent starts one in a folder, that others reach by a line on which so many bytes a second come from it.
func newSiteAgent(t *testing.T, folder string, rate int64) *siteAgent {
	t.Helper()
	host := fmt.Sprintf("127.%d.%d.", 1+rand.IntN(200), rand.IntN(200)) // where the document's port is free
	public, own := host+"1", host+"2:8443"
	startSlowLine(t, public+":8443", own, rate)
	a := &siteAgent{T: t, folder: folder, environment: []string{
		"PATH=" + os.Getenv("PATH"), "HOST=" + public, "IRONPLANE_LISTEN=" + own,
		"HOST_KEY=ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHUFGSJFCT8IXStp9iotgQlFRILJ5FVUFVlM3Z2l4gNG files"}}
	if err := os.Symlink(programs, filepath.Join(a.folder, "bin")); err != nil {
		t.Fatal(err)
	}
	if said := a.run("settings", "key", "check"); strings.Contains(said, "fails") || strings.Contains(said, "does not read it") {
		t.Errorf("got %s, want neither %q nor %q in it", said, "fails", "does not read it")
	}
	a.start()
	t.Cleanup(func() {
		if err := a.process.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return a
}

func (a *siteAgent) shell(blocks ...string) *exec.Cmd {
	a.Helper()
	var script strings.Builder
	for _, name := range blocks {
		script.WriteString(testkit.CodeBlock(a, agentDocument, "agent "+name) + "\n")
	}
	cmd := exec.Command("sh", "-e", "-c", script.String())
	cmd.Dir, cmd.Env = a.folder, a.environment
	return cmd
}

func (a *siteAgent) run(blocks ...string) string {
	a.Helper()
	said, err := a.shell(blocks...).CombinedOutput()
	if err != nil {
		a.Fatalf("%v: %v\n%s", blocks, err, said)
	}
	return string(said)
}

// start starts it, and waits until it listens.
func (a *siteAgent) start() {
	a.Helper()
	cmd := a.shell("settings", "start")
	cmd.Args[3] = strings.Replace(cmd.Args[3], "\nbin/site-agent", "\nexec bin/site-agent", 1) // so that it is this process that is killed
	cmd.Stderr = os.Stderr
	var err error
	if a.process, err = child.Start(cmd, syscall.SIGTERM, syscall.SIGKILL); err != nil {
		a.Fatal(err)
	}
	address := strings.TrimPrefix(a.environment[2], "IRONPLANE_LISTEN=")
	ctx, cancel := context.WithTimeout(a.Context(), startsWithin)
	defer cancel()
	err = a.process.Await(ctx, func() bool {
		c, err := net.DialTimeout("tcp", address, time.Second)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
	if err != nil {
		a.Fatal(err)
	}
}

func (a *siteAgent) kill() {
	a.Helper()
	kill(a.T, a.process)
	a.start()
}

// tell tells the control plane of it, by the document, below a parent if there is one.
func (a *siteAgent) tell(c *testkit.Client, group int64, name string, parent *siteAgent) {
	a.Helper()
	a.environment = append(a.environment, "API="+c.URL, "KEY="+c.Key, fmt.Sprint("GROUP=", group))
	a.run("settings", "tell")
	found := testkit.Decode[[]pxe.FileServer](c.Do("GET", "/pxe/file?name=fra1-files1", nil).Want(200))
	if len(found) != 1 {
		a.Fatalf("got the file servers %+v, want one", found)
	}
	a.id = found[0].ID
	body := map[string]any{"name": name}
	if parent != nil {
		body["parent"] = parent.id
	}
	c.Do("PATCH", fmt.Sprintf("/pxe/file/%d", a.id), body).Want(200)
}

func (a *siteAgent) files() string { return filepath.Join(a.folder, "site-agent/files") }

// family is a parent, its child, and the child's own.
type family struct {
	*testing.T
	fleet                *fleet
	c                    *testkit.Client
	parent, middle, last *siteAgent
	want                 map[string]sum
	sync                 string // the path that asks for a sync
	kills                int
}

type sum [sha256.Size]byte

const (
	gone = "gone/from the parent" // which the last one has at first
	late = "local/late/"          // below it is what comes in the end
)

// Agents that are installed by the words of docs/do/site-agent.md sync over slow lines, the last one's the slowest, however often they and
// the pxe service are killed while files move, and although a disk is full and a child says that it has what it has not: what is seen of
// a file is whole at any time, and in the end all have the same.
func TestSiteAgents(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("the words need curl")
	}
	rounds, each, largest, kills, rate := 3, 15, 2<<20, 2, int64(4<<20)
	if *full {
		rounds, each, largest, kills, rate = 10, 50, 16<<20, 5, 24<<20
	}
	y := &family{T: t, want: map[string]sum{}}
	y.fleet, y.c = startFleet(t, datastores.Config{Data: t.TempDir()}, "IRONPLANE_ALLOWED_NETWORKS=127.0.0.0/8")
	group := y.c.Do("POST", "/group", `{"name": "Frankfurt"}`).Want(http.StatusOK).ID()
	content := map[string]int{} // sizes
	inRound := func(round, i int) string { return fmt.Sprintf("local/%d/%d", i%7, round*each+i) }
	for round := range rounds {
		for i := range each {
			content[inRound(round, i)] = rand.IntN(largest>>(i%12) + 1)
		}
	}
	for i := range 5 {
		content[fmt.Sprint(late, i)] = 300_000
	}
	room := int64(8 << 20) // for what an agent needs besides
	for path, size := range content {
		y.want[path] = sha256.Sum256(made(path, size))
		room += int64(size)
	}
	disk, small := smallDisk(t, room)
	y.parent, y.middle, y.last = newSiteAgent(t, t.TempDir(), rate), newSiteAgent(t, t.TempDir(), rate/4), newSiteAgent(t, disk, rate)
	y.parent.tell(y.c, group, "parent", nil)
	y.middle.tell(y.c, group, "middle", y.parent)
	y.last.tell(y.c, group, "last", y.middle)
	y.sync = fmt.Sprintf("/pxe/file/%d/child/sync", y.parent.id)
	write(t, filepath.Join(y.last.files(), gone), []byte("x"))

	stopMiddle, stopLast := y.watch(y.middle), y.watch(y.last)
	for round := range rounds {
		for i := range each {
			path := inRound(round, i)
			y.parent.bring(path, made(path, content[path]))
		}
		y.round(round, kills)
	}
	t.Logf("%d files, %d kills in the middle of %d", len(y.want), y.kills, rounds*kills)
	if y.kills == 0 {
		t.Error("got no kill while files moved, want at least one")
	}
	stopMiddle()
	for path, size := range content {
		if strings.HasPrefix(path, late) {
			y.parent.bring(path, made(path, size))
		}
	}
	if small {
		y.fillAndLie(disk)
	}
	y.ask()
	y.until("all have the same", func(is filesync.FileSync) bool { return is.Status == "done" })
	stopLast()
	for _, one := range []*siteAgent{y.parent, y.middle, y.last} {
		got := one.tree(nil)
		if len(got) != len(y.want) {
			t.Errorf("got %d files, want %d", len(got), len(y.want))
		}
		for path, content := range y.want {
			if got[path].sum != content {
				t.Errorf("%s: got the SHA-256 %x, want %x", path, got[path].sum, content)
			}
		}
	}
}

// made is the content of a file.
func made(path string, size int) []byte {
	content := make([]byte, size)
	_, _ = rand.NewChaCha8(sha256.Sum256([]byte(path))).Read(content)
	return content
}

// smallDisk is a folder on a disk of its own, of so many bytes, where this user can make one.
func smallDisk(t *testing.T, size int64) (folder string, small bool) {
	t.Helper()
	folder = t.TempDir()
	if err := syscall.Mount("tmpfs", folder, "tmpfs", 0, fmt.Sprintf("size=%d", size)); err != nil {
		t.Log("no disk is full, and no child lies, for a small disk needs root: ", err)
		return folder, false
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(folder, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return folder, true
}

// watch looks at all that is seen of an agent's files, again and again until it is told to stop.
func (y *family) watch(a *siteAgent) (stop func()) {
	ctx, cancel := context.WithCancel(y.Context())
	var watching sync.WaitGroup
	watching.Go(func() {
		var seen map[string]seenFile
		for ctx.Err() == nil {
			before := seen
			seen = a.tree(before)
			for path, is := range seen {
				if path != gone && is.sum != y.want[path] && before[path].sum != is.sum {
					y.Errorf("%s: got %d bytes with the SHA-256 %x, want %x", path, is.info.Size(), is.sum, y.want[path])
				}
			}
			time.Sleep(20 * time.Millisecond)
		}
	})
	stop = sync.OnceFunc(func() {
		cancel()
		watching.Wait()
	})
	y.Cleanup(stop)
	return stop
}

func (y *family) ask() { y.c.Do("POST", y.sync, `{"isWrapped": true}`).Want(http.StatusOK) }

// until waits for a sync to look like this, and shows it again and again.
func (y *family) until(what string, is func(filesync.FileSync) bool) {
	y.Helper()
	last := ""
	for deadline := time.Now().Add(2 * patience); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		answer := y.c.Do("GET", y.sync, nil)
		if last = answer.Text; answer.Status != http.StatusOK {
			continue // the service has just been killed
		}
		if is(testkit.Decode[filesync.FileSync](answer)) {
			return
		}
	}
	y.Fatalf("got %s, want that %s", last, what)
}

// untilFails waits until the last one fails for a reason.
func (y *family) untilFails(why string) {
	y.Helper()
	y.until("the last one says "+why, func(is filesync.FileSync) bool {
		last := is.Children[len(is.Children)-1]
		return last.Status == "retrying" && last.Error != nil && strings.Contains(*last.Error, why)
	})
}

// round syncs while somebody is killed again and again.
func (y *family) round(round, left int) {
	y.Helper()
	y.ask()
	y.until(fmt.Sprintf("round %d is done", round), func(is filesync.FileSync) bool {
		inTheMiddle := slices.ContainsFunc(is.Children, func(one filesync.FileServerSync) bool {
			return one.Status == "running" && one.Parent != nil && one.Files < one.FilesTotal && one.Bytes > 0 && one.Bytes < one.BytesTotal
		})
		if left == 0 || !inTheMiddle {
			return is.Status == "done"
		}
		left--
		y.kills++
		if *full && left == 2 && round%3 == 1 {
			kill(y.T, y.fleet.processes[pxe.Name])
			if err := y.fleet.startService(y.Context(), pxe.Name); err != nil {
				y.Fatal(err)
			}
			return false
		}
		[]*siteAgent{y.parent, y.middle, y.last}[rand.IntN(3)].kill()
		if left%2 == 1 {
			y.ask() // which does not wait for the next attempt
		}
		return false
	})
}

// fillAndLie has the last one's disk full, and its parent say that it has a file which it has not. Both are seen where an operator looks,
// and the file is not.
func (y *family) fillAndLie(disk string) {
	y.Helper()
	var is syscall.Statfs_t
	if err := syscall.Statfs(disk, &is); err != nil {
		y.Fatal(err)
	}
	filling := filepath.Join(disk, "something else")
	write(y.T, filling, make([]byte, int64(is.Bavail)*is.Bsize-200_000))
	y.ask()
	y.untilFails("the disk is full")

	y.middle.lie(late + "0")
	if err := os.Remove(filling); err != nil {
		y.Fatal(err)
	}
	y.ask()
	y.untilFails(late + "0: the content does not match its SHA-256")
	if _, there := y.last.tree(nil)[late+"0"]; there {
		y.Errorf("got %s0, want no file whose content has another SHA-256", late)
	}
	kill(y.T, y.middle.process)
	if err := os.Remove(filepath.Join(y.middle.files(), late+"0")); err != nil { // it gets it again
		y.Fatal(err)
	}
	y.middle.start()
}

// lie has an agent say that a file is what it was, which it is not any more.
func (a *siteAgent) lie(path string) {
	a.Helper()
	kill(a.T, a.process)
	file, index := filepath.Join(a.files(), path), filepath.Join(a.folder, "site-agent/index")
	info, err := os.Stat(file)
	if err != nil {
		a.Fatal(err)
	}
	write(a.T, file, bytes.Repeat([]byte("x"), int(info.Size())))
	if info, err = os.Stat(file); err != nil {
		a.Fatal(err)
	}
	known, err := os.ReadFile(index)
	if err != nil {
		a.Fatal(err)
	}
	var lines []byte
	lied := false
	for text := range bytes.Lines(known) {
		var line struct {
			Path     string `json:"path"`
			Size     int64  `json:"size"`
			Modified int64  `json:"modified"`
			Changed  int64  `json:"changed"`
			Inode    uint64 `json:"inode"`
			SHA256   string `json:"sha256"`
		}
		if err := json.Unmarshal(text, &line); err != nil {
			a.Fatal(err)
		}
		if line.Path == path {
			stat := info.Sys().(*syscall.Stat_t)
			line.Modified, line.Changed, line.Inode, lied = stat.Mtim.Nano(), stat.Ctim.Nano(), stat.Ino, true
		}
		if text, err = json.Marshal(line); err != nil {
			a.Fatal(err)
		}
		lines = append(append(lines, text...), '\n')
	}
	if !lied {
		a.Fatalf("got no line of %s in the index, want one", path)
	}
	write(a.T, index, lines)
	a.start()
}

// bring gives it a file, whole at once, as who brings files by hand should.
func (a *siteAgent) bring(path string, content []byte) {
	a.Helper()
	arriving := filepath.Join(a.folder, "arriving")
	write(a.T, arriving, content)
	path = filepath.Join(a.files(), path)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.Rename(arriving, path)); err != nil {
		a.Fatal(err)
	}
}

func write(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
}

// seenFile is a file as it was seen.
type seenFile struct {
	sum  sum
	info fs.FileInfo
}

// tree is what is seen of its files. Those that look as they did before are not read again.
func (a *siteAgent) tree(before map[string]seenFile) map[string]seenFile {
	all := map[string]seenFile{}
	_ = filepath.WalkDir(a.files(), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return nil //nolint:nilerr // it has just gone
		}
		name, _ := filepath.Rel(a.files(), path)
		info, err := entry.Info()
		if err != nil {
			return nil //nolint:nilerr // it has just gone
		}
		if was, known := before[name]; known && os.SameFile(was.info, info) && was.info.ModTime().Equal(info.ModTime()) &&
			was.info.Size() == info.Size() {
			all[name] = was
			return nil
		}
		if content, err := os.ReadFile(path); err == nil {
			all[name] = seenFile{sha256.Sum256(content), info}
		}
		return nil
	})
	return all
}
