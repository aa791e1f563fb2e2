package child

import "syscall"

// dieWithParent makes the kernel send SIGINT to the child when this process ends. All our children take it as a request to
// shut down in order.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGINT }

// StopOrphan stops a child that may have outlived its parent. On Linux there is none.
func StopOrphan(int) {}
