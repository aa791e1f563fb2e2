//go:build !linux

package child

import "syscall"

// dieWithParent can do nothing here.
func dieWithParent(*syscall.SysProcAttr) {}

// StopOrphan asks a child to end that may have outlived its parent. Whoever waits for its end sees when that failed.
func StopOrphan(pid int) { _ = syscall.Kill(pid, syscall.SIGINT) }
