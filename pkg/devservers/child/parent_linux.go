package child

import "syscall"

// dieWithParent has the kernel send the child a SIGINT, which all that we run takes for a wish to end in order.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGINT }

// StopOrphan asks a child to end that may have outlived its parent; here none does.
func StopOrphan(int) {}
