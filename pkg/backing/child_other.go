//go:build !linux

package backing

import "syscall"

// dieWithParent can do nothing here: the next start in the folder stops a child that outlived us.
func dieWithParent(*syscall.SysProcAttr) {}

func stopOrphan(pid int) { _ = syscall.Kill(pid, syscall.SIGINT) } // who waits for its end sees when that failed
