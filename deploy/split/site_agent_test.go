package main

import (
	"bytes"
	"context"
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
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ironplane/ironplane/backing/child"
	"github.com/ironplane/ironplane/deploy/internal/backings"
	"github.com/ironplane/ironplane/services/pxe"
	"github.com/ironplane/ironplane/services/pxe/filesync"
	"github.com/ironplane/ironplane/testkit"
)

const agentDocument = "../../docs/site-agent.md"

// siteAgent is an agent as the document has it installed, in a process of its own.
type siteAgent struct {
	*testing.T
	folder      string
	environment []string
	process     *child.Child
	id          int64
}

// newSiteAgent starts one that others reach by a line on which so many bytes a second come from it.
func newSiteAgent(t *testing.T, rate int64) *siteAgent {
	t.Helper()
	host := fmt.Sprintf("127.%d.%d.", 1+rand.IntN(200), rand.IntN(200)) // where the document's port is free
	public, own := host+"1", host+"2:8443"
	startSlowLine(t, public+":8443", own, rate)
	a := &siteAgent{T: t, folder: t.TempDir(), environment: []string{
		"PATH=" + os.Getenv("PATH"), "HOST=" + public, "IRONPLANE_LISTEN=" + own,
		"HOST_KEY=ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHUFGSJFCT8IXStp9iotgQlFRILJ5FVUFVlM3Z2l4gNG files"}}
	if err := os.Symlink(programs, filepath.Join(a.folder, "bin")); err != nil {
		t.Fatal(err)
	}
	if said := a.run("settings", "key", "check"); strings.Contains(said, "fails") || strings.Contains(said, "does not read it") {
		t.Errorf("it says %s", said)
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
		script.WriteString(testkit.Block(a, agentDocument, "agent "+name) + "\n")
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
		a.Fatalf("there are %+v", found)
	}
	a.id = found[0].ID
	body := map[string]any{"name": name}
	if parent != nil {
		body["parent"] = parent.id
	}
	c.Do("PATCH", fmt.Sprintf("/pxe/file/%d", a.id), body).Want(200)
}

func (a *siteAgent) files() string { return filepath.Join(a.folder, "site-agent/files") }

// Agents that are installed by the words of docs/site-agent.md sync over slow lines, the last one's the slowest, however often they and
// the pxe service are killed while files move: what is seen of a file is whole at any time, and in the end all have the same.
func TestSiteAgents(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("the words need curl")
	}
	f, c := startFleet(t, backings.Config{Data: t.TempDir()}, "IRONPLANE_ALLOWED_NETWORKS=127.0.0.0/8")
	group := c.Do("POST", "/group", `{"name": "Frankfurt"}`).Want(http.StatusOK).ID()
	rounds, each, largest, kills, rate := 3, 15, 2<<20, 2, int64(4<<20)
	if *full {
		rounds, each, largest, kills, rate = 10, 50, 16<<20, 5, 24<<20
	}
	parent, middle, last := newSiteAgent(t, rate), newSiteAgent(t, rate/4), newSiteAgent(t, rate)
	parent.tell(c, group, "parent", nil)
	middle.tell(c, group, "middle", parent)
	last.tell(c, group, "last", middle)

	want := map[string][]byte{}
	random := rand.NewChaCha8([32]byte{})
	inRound := func(round, i int) string { return fmt.Sprintf("local/%d/%d", i%7, round*each+i) }
	for round := range rounds {
		for i := range each {
			content := make([]byte, rand.IntN(largest>>(i%12)+1))
			_, _ = random.Read(content)
			want[inRound(round, i)] = content
		}
	}
	write(t, filepath.Join(last.files(), "gone/from the parent"), []byte("x"))

	look, stopLooking := context.WithCancel(t.Context())
	var looking sync.WaitGroup
	defer looking.Wait()
	defer stopLooking()
	var looked atomic.Int64
	for _, child := range []*siteAgent{middle, last} {
		looking.Go(func() {
			for look.Err() == nil {
				for path, content := range child.tree() {
					if looked.Add(1); path != "gone/from the parent" && !bytes.Equal(content, want[path]) {
						t.Errorf("%s is seen with %d bytes of %d", path, len(content), len(want[path]))
					}
				}
				time.Sleep(5 * time.Millisecond)
			}
		})
	}

	at := fmt.Sprintf("/pxe/file/%d/child/sync", parent.id)
	killed := 0
	for round := range rounds {
		for i := range each {
			parent.bring(inRound(round, i), want[inRound(round, i)])
		}
		c.Do("POST", at, `{"isWrapped": true}`).Want(http.StatusOK)
		left := kills
		for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("round %d is not done: %s", round, c.Do("GET", at, nil).Text)
			}
			answer := c.Do("GET", at, nil)
			if answer.Status != http.StatusOK {
				continue // the service has just been killed
			}
			is := testkit.Decode[filesync.FileSync](answer)
			if is.Status == "done" {
				break
			}
			inTheMiddle := slices.ContainsFunc(is.Children, func(one filesync.FileServerSync) bool {
				return one.Status == "running" && one.Parent != nil && one.Files < one.FilesTotal && one.Bytes > 0 && one.Bytes < one.BytesTotal
			})
			if left == 0 || !inTheMiddle {
				continue
			}
			left--
			killed++
			if *full && left == 2 && round%3 == 1 {
				kill(t, f.processes[pxe.Name])
				if err := f.startService(t.Context(), pxe.Name); err != nil {
					t.Fatal(err)
				}
				continue
			}
			[]*siteAgent{parent, middle, last}[rand.IntN(3)].kill()
			if left == 1 {
				c.Do("POST", at, `{"isWrapped": true}`).Want(http.StatusOK)
			}
		}
	}
	stopLooking()
	looking.Wait()
	t.Logf("%d files, %d kills in the middle of %d, %d looks at files", len(want), killed, rounds*kills, looked.Load())
	if killed == 0 {
		t.Error("nothing was killed while files moved")
	}
	for _, child := range []*siteAgent{parent, middle, last} {
		got := child.tree()
		if len(got) != len(want) {
			t.Errorf("there are %d files instead of %d", len(got), len(want))
		}
		for path, content := range want {
			if !bytes.Equal(got[path], content) {
				t.Errorf("%s is not what it is to be", path)
			}
		}
	}
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

// tree is what is seen of its files.
func (a *siteAgent) tree() map[string][]byte {
	all := map[string][]byte{}
	_ = filepath.WalkDir(a.files(), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return nil //nolint:nilerr // it has just gone
		}
		if content, err := os.ReadFile(path); err == nil {
			name, _ := filepath.Rel(a.files(), path)
			all[name] = content
		}
		return nil
	})
	return all
}
