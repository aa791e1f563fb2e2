package devservers

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/ironplane/ironplane/pkg/devservers/child"
)

// RedisOptions configure a Redis server. The zero value is valid.
type RedisOptions struct {
	// Dir lets the next start find and stop a Redis that outlived its process, on systems other than Linux. Without it
	// nothing is written to disk.
	Dir string
	// Embedded starts the embedded server even if redis-server is installed.
	Embedded bool

	programs []string // in place of the usual ones
}

// Redis is a running server that keeps nothing on disk. The caller of StartRedis must Stop it.
type Redis struct {
	server   server
	lock     *folderLock // nil without a Dir
	address  string
	password string
}

// server is a child process or the embedded server.
type server interface {
	Done() <-chan struct{}
	Err() error
	Stop(context.Context) error
}

// StartRedis starts a redis-server, or an embedded server in this process if none is installed. It returns when the server
// is ready. ctx limits only the start.
func StartRedis(ctx context.Context, o RedisOptions) (*Redis, error) {
	r := &Redis{password: newPassword()}
	if err := r.start(ctx, o); err != nil {
		return nil, fmt.Errorf("start Redis: %w", err)
	}
	return r, nil
}

// URL returns the address of the server, with the password.
func (r *Redis) URL() string {
	u := url.URL{Scheme: "redis", User: url.UserPassword("", r.password), Host: r.address, Path: "/0"}
	return u.String()
}

// IsEmbedded reports whether the server runs in this process. The embedded server suits one process, knows fewer commands,
// and its memory is not limited.
func (r *Redis) IsEmbedded() bool {
	_, ok := r.server.(*embeddedRedis)
	return ok
}

// Done is closed when the server has ended, stopped or by itself.
func (r *Redis) Done() <-chan struct{} { return r.server.Done() }

// Err returns why the server ended by itself. It is nil while the server runs, and after Stop.
func (r *Redis) Err() error { return r.server.Err() }

// Stop ends the server. It waits until ctx is done, at most a minute, before it kills the server, which is an error. Call
// Stop even if the server has ended by itself.
func (r *Redis) Stop(ctx context.Context) error {
	if r.lock != nil {
		defer r.lock.release()
	}
	return r.server.Stop(ctx)
}

func (r *Redis) start(ctx context.Context, o RedisOptions) (err error) {
	if o.programs == nil {
		o.programs = []string{"redis-server", "valkey-server"}
	}
	program := ""
	if !o.Embedded {
		program = firstInPath(o.programs)
	}
	if program == "" {
		s, err := startEmbedded(r.password)
		if err != nil {
			return err
		}
		r.server, r.address = s, s.redis.Addr()
		return nil
	}
	if o.Dir != "" {
		if err := os.MkdirAll(o.Dir, 0o711); err != nil {
			return err
		}
		if r.lock, err = lockFolder(o.Dir, "redis"); err != nil {
			return err
		}
		defer func() {
			if err != nil {
				r.lock.release()
			}
		}()
	}
	return onFreePort(func(port int) error { return r.serve(ctx, program, port) })
}

func firstInPath(programs []string) string {
	for _, name := range programs {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

func (r *Redis) serve(ctx context.Context, program string, port int) error {
	// Not Postgres's user: what got into this Redis has no business in that data.
	runAs, err := findAccount("redis", "nobody")
	if err != nil {
		return err
	}
	var tail child.Tail
	cmd := exec.Command(program, "-")
	cmd.Dir, cmd.Env = "/", childEnv
	cmd.Stdout, cmd.Stderr = &tail, &tail
	cmd.Stdin = strings.NewReader(configuration(port, r.password)) // arguments would show the password in ps
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: runAs}
	var lock *os.File
	if r.lock != nil {
		if lock, _, err = r.lock.lockServer(ctx); err != nil {
			return err
		}
		defer lock.Close() // the server has it now
		cmd.ExtraFiles = []*os.File{lock}
	}
	c, err := child.Start(cmd, syscall.SIGINT, syscall.SIGKILL)
	if err != nil {
		return err
	}
	if lock != nil {
		if err := writePID(lock, c.PID()); err != nil {
			c.Abort()
			return err
		}
	}
	const timeout = 30 * time.Second
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("not ready after %v", timeout))
	defer cancel()
	// The log says that this Redis is ready. What answers on the port could be another process's, which began to listen just before.
	err = c.Await(ctx, func() bool { return strings.Contains(tail.String(), "eady to accept connections") })
	if err != nil {
		c.Abort()
		if c.Err() != nil && strings.Contains(tail.String(), addressInUse) {
			return errPortInUse
		}
		return fmt.Errorf("%w; it said: %s", err, strings.TrimSpace(tail.String()))
	}
	r.server, r.address = c, net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	return nil
}

// configuration returns the server's configuration. If memory is full, Redis evicts the least recently used keys: it may
// lose any key, but must not refuse to store a revocation.
func configuration(port int, password string) string {
	return fmt.Sprintf(`
bind 127.0.0.1
port %d
requirepass %s
save ""
appendonly no
maxmemory 256mb
maxmemory-policy allkeys-lru
`, port, password)
}
