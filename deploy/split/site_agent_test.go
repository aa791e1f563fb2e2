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

// siteAgent is an agent that was installed by the commands of the document, in a process of its own.
type siteAgent struct {
	*testing.T
	folder      string
	environment []string
	process     *child.Child
	id          int64
}

// newSiteAgent starts an agent in a folder. Others reach it over a line that passes on rate bytes a second.
func newSiteAgent(t *testing.T, folder string, rate int64) *siteAgent {
	t.Helper()
	host := fmt.Sprintf("127.%d.%d.", 1+rand.IntN(200), rand.IntN(200)) // an address at which the document's port is free
	public, own := host+"1", host+"2:8443"
	startSlowLine(t, public+":8443", own, rate)
	a := &siteAgent{T: t, folder: folder, environment: []string{
		"PATH=" + os.Getenv("PATH"), "HOST=" + public, "IRONPLANE_LISTEN=" + own,
		"HOST_KEY=ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHUFGSJFCT8IXStp9iotgQlFRILJ5FVUFVlM3Z2l4gNG files"}}
	if err := os.Symlink(programs, filepath.Join(a.folder, "bin")); err != nil {
		t.Fatal(err)
	}
	if output := a.run("settings", "key", "check"); strings.Contains(output, "fails") || strings.Contains(output, "does not read it") {
		t.Errorf("got %s, want neither %q nor %q in it", output, "fails", "does not read it")
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
	output, err := a.shell(blocks...).CombinedOutput()
	if err != nil {
		a.Fatalf("%v: %v\n%s", blocks, err, output)
	}
	return string(output)
}

// start starts the agent and waits until it listens.
func (a *siteAgent) start() {
	a.Helper()
	cmd := a.shell("settings", "start")
	cmd.Args[3] = strings.Replace(
		cmd.Args[3],
		"\nbin/site-agent",
		"\nexec bin/site-agent",
		1,
	) // so that a kill reaches the agent and not its shell
	cmd.Stderr = os.Stderr
	var err error
	if a.process, err = child.Start(cmd, syscall.SIGTERM, syscall.SIGKILL); err != nil {
		a.Fatal(err)
	}
	address := strings.TrimPrefix(a.environment[2], "IRONPLANE_LISTEN=")
	ctx, cancel := context.WithTimeout(a.Context(), startTimeout)
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

// register registers the agent with the control plane by the commands of the document, and sets its parent if there
// is one.
func (a *siteAgent) register(c *testkit.Client, group int64, name string, parent *siteAgent) {
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

// agentChain is three agents. The second one syncs from the first one, and the third one from the second one.
type agentChain struct {
	*testing.T
	fleet                *fleet
	c                    *testkit.Client
	parent, middle, last *siteAgent
	want                 map[string]sum
	sync                 string // the path of the sync
	kills                int
}

type sum [sha256.Size]byte

const (
	parentFile = "deleted/at the parent" // only the last agent has this file at first
	lateFolder = "local/late/"           // the folder of the files that are added last
)

// TestSiteAgents syncs three agents over slow lines while they and the pxe service are killed. One disk is full for
// a while, and one agent has a corrupt file. Every file that appears is complete at any time, and in the end all
// agents have the same files.
func TestSiteAgents(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("curl is not installed; Debian's package curl has it")
	}
	rounds, each, maxSize, kills, rate := 3, 15, 2<<20, 2, int64(4<<20)
	if *full {
		rounds, each, maxSize, kills, rate = 10, 50, 16<<20, 5, 24<<20
	}
	y := &agentChain{T: t, want: map[string]sum{}}
	y.fleet, y.c = startFleet(t, datastores.Config{Data: t.TempDir()}, "IRONPLANE_ALLOWED_NETWORKS=127.0.0.0/8")
	group := y.c.Do("POST", "/group", `{"name": "Frankfurt"}`).Want(http.StatusOK).ID()
	sizes := map[string]int{}
	inRound := func(round, i int) string { return fmt.Sprintf("local/%d/%d", i%7, round*each+i) }
	for round := range rounds {
		for i := range each {
			sizes[inRound(round, i)] = rand.IntN(maxSize>>(i%12) + 1)
		}
	}
	for i := range 5 {
		sizes[fmt.Sprint(lateFolder, i)] = 300_000
	}
	diskSize := int64(8 << 20) // for the other files of an agent
	for path, size := range sizes {
		y.want[path] = sha256.Sum256(content(path, size))
		diskSize += int64(size)
	}
	disk, small := smallDisk(t, diskSize)
	y.parent, y.middle, y.last = newSiteAgent(t, t.TempDir(), rate), newSiteAgent(t, t.TempDir(), rate/4), newSiteAgent(t, disk, rate)
	y.parent.register(y.c, group, "parent", nil)
	y.middle.register(y.c, group, "middle", y.parent)
	y.last.register(y.c, group, "last", y.middle)
	y.sync = fmt.Sprintf("/pxe/file/%d/child/sync", y.parent.id)
	write(t, filepath.Join(y.last.files(), parentFile), []byte("x"))

	stopMiddle, stopLast := y.watch(y.middle), y.watch(y.last)
	for round := range rounds {
		for i := range each {
			path := inRound(round, i)
			y.parent.addFile(path, content(path, sizes[path]))
		}
		y.round(round, kills)
	}
	t.Logf("%d files, %d kills during a sync of %d planned", len(y.want), y.kills, rounds*kills)
	if y.kills == 0 {
		t.Error("got no kill while files moved, want at least one")
	}
	stopMiddle()
	for path, size := range sizes {
		if strings.HasPrefix(path, lateFolder) {
			y.parent.addFile(path, content(path, size))
		}
	}
	if small {
		y.fillAndCorrupt(disk)
	}
	y.startSync()
	y.awaitSync("all agents have the same files", func(is filesync.FileSync) bool { return is.Status == "done" })
	stopLast()
	for _, one := range []*siteAgent{y.parent, y.middle, y.last} {
		got := one.tree(nil)
		if len(got) != len(y.want) {
			t.Errorf("got %d files, want %d", len(got), len(y.want))
		}
		for path, sizes := range y.want {
			if got[path].sum != sizes {
				t.Errorf("%s: got the SHA-256 %x, want %x", path, got[path].sum, sizes)
			}
		}
	}
}

// content returns the content of a file, which depends on its path only.
func content(path string, size int) []byte {
	sizes := make([]byte, size)
	_, _ = rand.NewChaCha8(sha256.Sum256([]byte(path))).Read(sizes)
	return sizes
}

// smallDisk returns a folder on a disk of the given size. Without root it returns a normal folder, and small is
// false.
func smallDisk(t *testing.T, size int64) (folder string, small bool) {
	t.Helper()
	folder = t.TempDir()
	if err := syscall.Mount("tmpfs", folder, "tmpfs", 0, fmt.Sprintf("size=%d", size)); err != nil {
		t.Log("the steps with a full disk and a corrupt file are left out, because a small disk needs root: ", err)
		return folder, false
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(folder, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return folder, true
}

// watch checks all visible files of an agent continuously until stop is called.
func (y *agentChain) watch(a *siteAgent) (stop func()) {
	ctx, cancel := context.WithCancel(y.Context())
	var watching sync.WaitGroup
	watching.Go(func() {
		var seen map[string]seenFile
		for ctx.Err() == nil {
			before := seen
			seen = a.tree(before)
			for path, is := range seen {
				if path != parentFile && is.sum != y.want[path] && before[path].sum != is.sum {
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

func (y *agentChain) startSync() { y.c.Do("POST", y.sync, `{"isWrapped": true}`).Want(http.StatusOK) }

// awaitSync requests the state of the sync until it meets a condition.
func (y *agentChain) awaitSync(condition string, is func(filesync.FileSync) bool) {
	y.Helper()
	last := ""
	testkit.Eventually(y, condition, func() bool {
		response := y.c.Do("GET", y.sync, nil)
		last = response.Text
		return response.Status == http.StatusOK && is(testkit.Decode[filesync.FileSync](response)) // else the service has just been killed
	}, func() string { return "got " + last })
}

// awaitFailure waits until the last agent reports a failure that contains why.
func (y *agentChain) awaitFailure(why string) {
	y.Helper()
	y.awaitSync("the last agent reports "+why, func(is filesync.FileSync) bool {
		last := is.Children[len(is.Children)-1]
		return last.Status == "retrying" && last.Error != nil && strings.Contains(*last.Error, why)
	})
}

// round syncs while a random process is killed, up to a number of times.
func (y *agentChain) round(round, left int) {
	y.Helper()
	y.startSync()
	y.awaitSync(fmt.Sprintf("round %d is done", round), func(is filesync.FileSync) bool {
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
			y.startSync() // starts the next attempt at once
		}
		return false
	})
}

// fillAndCorrupt fills the disk of the last agent, and then has its parent offer a corrupt file. The API reports
// both failures, and the corrupt file never appears.
func (y *agentChain) fillAndCorrupt(disk string) {
	y.Helper()
	var is syscall.Statfs_t
	if err := syscall.Statfs(disk, &is); err != nil {
		y.Fatal(err)
	}
	filling := filepath.Join(disk, "something else")
	write(y.T, filling, make([]byte, int64(is.Bavail)*is.Bsize-200_000))
	y.startSync()
	y.awaitFailure("the disk is full")

	y.middle.corrupt(lateFolder + "0")
	if err := os.Remove(filling); err != nil {
		y.Fatal(err)
	}
	y.startSync()
	y.awaitFailure(lateFolder + "0: the content does not match its SHA-256")
	if _, exists := y.last.tree(nil)[lateFolder+"0"]; exists {
		y.Errorf("got %s0, want no file whose content has another SHA-256", lateFolder)
	}
	kill(y.T, y.middle.process)
	if err := os.Remove(filepath.Join(y.middle.files(), lateFolder+"0")); err != nil { // so that it fetches the file again
		y.Fatal(err)
	}
	y.middle.start()
}

// corrupt overwrites a file and updates the agent's index, so that the agent still offers it with the old SHA-256.
func (a *siteAgent) corrupt(path string) {
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
	found := false
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
			line.Modified, line.Changed, line.Inode, found = stat.Mtim.Nano(), stat.Ctim.Nano(), stat.Ino, true
		}
		if text, err = json.Marshal(line); err != nil {
			a.Fatal(err)
		}
		lines = append(append(lines, text...), '\n')
	}
	if !found {
		a.Fatalf("got no line of %s in the index, want one", path)
	}
	write(a.T, index, lines)
	a.start()
}

// addFile moves a complete file into the agent's folder, as operators should.
func (a *siteAgent) addFile(path string, content []byte) {
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

// seenFile is the state of a file at some time.
type seenFile struct {
	sum  sum
	info fs.FileInfo
}

// tree returns the files of the agent. It does not read files again that have the same inode, time and size as
// before.
func (a *siteAgent) tree(before map[string]seenFile) map[string]seenFile {
	all := map[string]seenFile{}
	_ = filepath.WalkDir(a.files(), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return nil //nolint:nilerr // it was just deleted
		}
		name, _ := filepath.Rel(a.files(), path)
		info, err := entry.Info()
		if err != nil {
			return nil //nolint:nilerr // it was just deleted
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
