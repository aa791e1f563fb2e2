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

// folderLock is the right to run one server in a folder. It uses two locked files, each with a pid. This process locks
// <name>.owner until it ends. The server and its children inherit <name>.server, which stays locked until the last of them
// has ended. That distinguishes a server that outlived its owner from a stale pid that another process has by now.
type folderLock struct {
	owner  *os.File
	server string
}

// pollInterval is how often conditions are tested that cannot be waited for.
const pollInterval = 10 * time.Millisecond

// ErrInUse is the error if another process runs the server of a folder.
var ErrInUse = errors.New("the folder is in use")

// lockFolder fails with ErrInUse if another process, or another call in this process, has locked the folder.
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

// release unlocks the file before closing it: a child that is being forked holds the open file until its exec.
func (l *folderLock) release() {
	_ = syscall.Flock(int(l.owner.Fd()), syscall.LOCK_UN) // fails when released already
	l.owner.Close()
}

// lockServer waits until an earlier server has ended. It returns the locked file for a new server to inherit, and the
// earlier server's pid, or 0.
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

// lock returns syscall.EWOULDBLOCK if another process has the lock.
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

// readPID returns the pid in a lock file, or 0 if there is none.
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
