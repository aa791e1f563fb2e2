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

// RedisOptions say how to run a Redis. The zero value will do.
type RedisOptions struct {
	// Dir is where a Redis that outlived its process is found and stopped by the next start, on systems where the
	// kernel does not do that (all but Linux). Without it nothing is written anywhere.
	Dir string
	// IsEmbedded starts the stand-in also where there is a redis-server.
	Embedded bool

	programs []string // in place of the usual ones
}

// Redis is a running server that forgets everything when it ends. It belongs to whoever started it, who has to Stop it.
type Redis struct {
	server   server
	lock     *folderLock // nil without a Dir
	address  string
	password string
}

// server has two kinds: a child and the stand-in.
type server interface {
	Done() <-chan struct{}
	Err() error
	Stop(context.Context) error
}

// StartRedis starts a redis-server or, where none is installed, a stand-in inside this process, and returns when it can
// be used. ctx limits the start only.
func StartRedis(ctx context.Context, o RedisOptions) (*Redis, error) {
	r := &Redis{password: newPassword()}
	if err := r.start(ctx, o); err != nil {
		return nil, fmt.Errorf("start Redis: %w", err)
	}
	return r, nil
}

// URL is the address of the server, with the password in it.
func (r *Redis) URL() string {
	u := url.URL{Scheme: "redis", User: url.UserPassword("", r.password), Host: r.address, Path: "/0"}
	return u.String()
}

// IsEmbedded tells whether this is the stand-in: it serves one process well, knows fewer commands and holds its keys in
// our memory without a limit.
func (r *Redis) IsEmbedded() bool {
	_, ok := r.server.(*embeddedRedis)
	return ok
}

// Done is closed when the server has ended, whether stopped or by itself.
func (r *Redis) Done() <-chan struct{} { return r.server.Done() }

// Err says why the server ended by itself; it is nil while it runs and after Stop.
func (r *Redis) Err() error { return r.server.Err() }

// Stop ends the server. It waits until ctx is done, for a minute at the most, before it kills it, which is an error. It
// is due also when the server has ended by itself.
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
	// Its own word for it: what answers on the port could be a stranger's, who took it just before.
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

// configuration lets Redis forget what was not used for longest where there is no room: it may forget anything, but not
// refuse to be told of a revoked key.
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
