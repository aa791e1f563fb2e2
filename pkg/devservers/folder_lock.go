package devservers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/ironplane/ironplane/pkg/devservers/child"
)

// folderLock is the right to run one server in a folder. It stands on two locked files, each with a pid in it: <name>.owner
// is locked by us and so until we end, however we do; <name>.server is locked by the server and whatever it forks, who
// inherit the open file, and so until the last of them is gone. That tells a server that outlived its owner from a
// stale pid that is some other process by now.
type folderLock struct {
	owner  *os.File
	server string
}

// pollInterval is for what cannot be waited for otherwise.
const pollInterval = 10 * time.Millisecond

// ErrInUse means that another process runs the server of a folder.
var ErrInUse = errors.New("the folder is in use")

// lockFolder fails when another living process, or another call in this one, has locked it.
func lockFolder(dir, name string) (*folderLock, error) {
	path := filepath.Join(dir, name+".owner")
	owner, err := lock(path)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, fmt.Errorf("%w by process %d", ErrInUse, readPID(path))
	}
	if err != nil {
		return nil, err
	}
	if err := writePID(owner, os.Getpid()); err != nil {
		owner.Close()
		return nil, err
	}
	return &folderLock{owner: owner, server: filepath.Join(dir, name+".server")}, nil
}

// release unlocks before it closes: a process that is being forked elsewhere in us has the file too until its exec.
func (l *folderLock) release() {
	_ = syscall.Flock(int(l.owner.Fd()), syscall.LOCK_UN) // fails when released already
	l.owner.Close()
}

// lockServer returns the locked file that a new server is to inherit, once an earlier server is gone, and the earlier
// server's pid, 0 if there was none.
func (l *folderLock) lockServer(ctx context.Context) (*os.File, int, error) {
	const timeout = 30 * time.Second
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for asked := false; ; {
		f, err := lock(l.server)
		if err == nil {
			return f, readPID(l.server), nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, 0, err
		}
		pid := readPID(l.server)
		if !asked && pid > 0 {
			child.StopOrphan(pid)
			asked = true
		}
		select {
		case <-ctx.Done():
			return nil, 0, fmt.Errorf("wait for process %d, the server of an earlier run, to end: %w", pid, ctx.Err())
		case <-tick.C:
		}
	}
}

// lock returns syscall.EWOULDBLOCK when another has the lock.
func lock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return f, nil
}

func writePID(f *os.File, pid int) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.WriteAt([]byte(strconv.Itoa(pid)), 0)
	return err
}

// readPID is the pid in a lock file, 0 when none was written yet.
func readPID(path string) int {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0
	}
	return pid
}
