// Package devservers starts the Postgres and the Redis that a process or a test run needs, as child processes.
//
// Both listen on a free port of 127.0.0.1 and require a random password, so other users of the machine cannot connect. They
// end with this process, even if it is killed. On Linux the kernel ensures that. On other systems the next start in the same
// folder stops the servers of an earlier run.
package devservers

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"runtime"
	"strconv"
	"strings"
	"syscall"
)

// childEnv is the whole environment of child processes. The environment of this process may contain secrets, and variables
// that change how Postgres behaves.
var childEnv = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "LC_ALL=C", "TZ=UTC"}

// findAccount returns the first of these users that exists, for children of a root process. Postgres refuses to run as root,
// and Redis has no need to. It returns nil if this process does not run as root.
func findAccount(names ...string) (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range names {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("user %s: %w", name, err)
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("user %s: %w", name, err)
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, fmt.Errorf("this process is root and there is no other user to run as: none of %s exists", strings.Join(names, ", "))
}

// passFile hands an open file or folder to the child, and returns the path by which the child finds it. A child with another
// user may not have access to the parents of the real path, such as root's home.
func passFile(cmd *exec.Cmd, f *os.File) string {
	if cmd.SysProcAttr.Credential == nil || runtime.GOOS != "linux" {
		return f.Name()
	}
	cmd.ExtraFiles = append(cmd.ExtraFiles, f)
	return "/proc/self/fd/" + strconv.Itoa(2+len(cmd.ExtraFiles))
}

var errPortInUse = errors.New("the port is in use by another process")

// Both servers print the text of strerror(3) in the C locale.
const addressInUse = "Address already in use"

// onFreePort calls start with a free port. If start returns errPortInUse, because another process was faster, it tries other
// ports.
func onFreePort(start func(port int) error) error {
	const attempts = 5
	var err error
	for range attempts {
		var l net.Listener
		if l, err = net.Listen("tcp4", "127.0.0.1:0"); err != nil {
			return fmt.Errorf("find a free port: %w", err)
		}
		port := l.Addr().(*net.TCPAddr).Port
		if err = l.Close(); err != nil {
			return fmt.Errorf("find a free port: %w", err)
		}
		if err = start(port); !errors.Is(err, errPortInUse) {
			return err
		}
	}
	return err
}

func newPassword() string { return rand.Text() }
