package backing

import "syscall"

// dieWithParent has the kernel send the child a SIGINT, which shuts both Postgres and Redis down in order, when we die.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGINT }

// stopOrphan has nothing to add to that.
func stopOrphan(int) {}
