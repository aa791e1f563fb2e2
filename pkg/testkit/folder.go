package testkit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

const (
	// memoryFolder is the folder of a file system in memory, on systems that have one, and room what has to be free in it.
	memoryFolder  = "/dev/shm"
	minFreeMemory = 2 << 30
	noExec        = 8 // among the file system's flags: nothing in it can be executed
	// orphanAge is how old a folder is that nobody is about to lock any more.
	orphanAge = time.Minute

	folderPrefix = "ironplane-test-"
)

// UseMemory has the folders of a package's tests, in which they start installations, lie in memory where there is room, until end.
// Its TestMain calls it.
func UseMemory() (end func()) {
	dir, err := newFolder(true) // tests write scripts there
	if err == nil {
		err = errors.Join(os.Chmod(dir, 0o711), os.Setenv("TMPDIR", dir)) // Postgres' user comes through it
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "the tests' folders do not lie in memory:", err)
	}
	return func() { _ = os.RemoveAll(dir) }
}

// newFolder makes a folder for a Postgres: in memory where there is room, as a database is more than a thousand files, which
// a disk's file system makes and deletes more slowly than Postgres does all that a test wants of it. In one that executes,
// programs can lie besides.
func newFolder(executes bool) (string, error) {
	var system syscall.Statfs_t
	if syscall.Statfs(memoryFolder, &system) != nil || uint64(system.Bavail)*uint64(system.Bsize) < minFreeMemory ||
		executes && system.Flags&noExec != 0 {
		return os.MkdirTemp("", folderPrefix)
	}
	removeOrphans()
	dir, err := os.MkdirTemp(memoryFolder, folderPrefix)
	if err != nil {
		return "", err
	}
	_, err = lock(dir) // until this process ends
	return dir, err
}

// removeOrphans deletes the folders of tests that were killed: they would take memory.
func removeOrphans() {
	all, _ := filepath.Glob(filepath.Join(memoryFolder, folderPrefix+"*"))
	for _, dir := range all {
		info, err := os.Stat(dir)
		if err != nil || time.Since(info.ModTime()) < orphanAge {
			continue
		}
		if locked, err := lock(dir); err == nil {
			_ = os.RemoveAll(dir)
			_ = syscall.Close(locked)
		}
	}
}

// lock fails where another process has the lock.
func lock(dir string) (descriptor int, err error) {
	descriptor, err = syscall.Open(dir, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	if err := syscall.Flock(descriptor, syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = syscall.Close(descriptor)
		return 0, err
	}
	return descriptor, nil
}
