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
	noExec        = 8 // the flag of file systems without executables
	// orphanAge is the age from which a folder without a lock is an orphan.
	orphanAge = time.Minute

	folderPrefix = "ironplane-test-"
)

// UseMemory puts the temporary folders of a package's tests into memory, if there is room, until end is called. TestMain calls
// it.
func UseMemory() (end func()) {
	dir, err := newFolder(true) // tests write scripts in it
	if err == nil {
		err = errors.Join(os.Chmod(dir, 0o711), os.Setenv("TMPDIR", dir)) // the user of Postgres must be able to enter
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "test folders are not in memory:", err)
	}
	return func() { _ = os.RemoveAll(dir) }
}

// newFolder creates a folder for Postgres, in memory if there is room. A database has more than a thousand files, which a disk
// creates and deletes too slowly. executes asks for a file system that can execute programs.
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

// removeOrphans deletes the folders of tests that were killed, since they use memory.
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

// lock locks a folder. It fails if another process has the lock.
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
