// Package devservers starts the Postgres and the Redis that a process or a test run needs, as children of it.
//
// Both listen on 127.0.0.1 alone, on a port that was free, and want a random password: other users of the machine do
// not get in. They end with this process, also when it is killed: on Linux the kernel sees to it; elsewhere the next
// start in the same folder stops what an earlier one left behind.
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

// childEnv is all that children see of an environment: ours may hold secrets, and variables that steer Postgres.
var childEnv = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "LC_ALL=C", "TZ=UTC"}

// findAccount is whom the children of a root process run as: the first of these users that exists, as Postgres refuses to
// run as root and Redis has no need to. It is nil, for ourselves, where we are not root.
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

// passFile hands the child an open file or folder and returns the path by which the child finds it. A child that runs as
// another user than we do may not get through the parents of the real path, such as the 0700 home of root.
func passFile(cmd *exec.Cmd, f *os.File) string {
	if cmd.SysProcAttr.Credential == nil || runtime.GOOS != "linux" {
		return f.Name()
	}
	cmd.ExtraFiles = append(cmd.ExtraFiles, f)
	return "/proc/self/fd/" + strconv.Itoa(2+len(cmd.ExtraFiles))
}

var errPortInUse = errors.New("the port was taken by another process")

// Both servers pass on what strerror(3) says, in the C locale.
const addressInUse = "Address already in use"

// onFreePort calls start with a port that was free a moment ago, and again with another one if start's error is
// errPortInUse.
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
