//go:build !linux

package child

import "syscall"

// dieWithParent does nothing: only Linux can signal the end of a parent.
func dieWithParent(*syscall.SysProcAttr) {}

// StopOrphan stops a child that may have outlived its parent. A failure shows when waiting for the child's lock.
func StopOrphan(pid int) { _ = syscall.Kill(pid, syscall.SIGINT) }
