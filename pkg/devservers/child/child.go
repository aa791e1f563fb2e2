// Package child runs processes that end when this one does: on Linux the kernel sees to it, however this one ends.
package child

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	stopTimeout  = time.Minute      // for the first signal; Postgres writes a checkpoint before it ends
	killTimeout  = 10 * time.Second // for each further one; Postgres gives its own children 5 s after a SIGQUIT
	pollInterval = 10 * time.Millisecond
)

// Child is a process that we started. It belongs to whoever did, who has to Stop it.
type Child struct {
	name    string
	process *os.Process
	signals []syscall.Signal // ask it to stop, each less politely than the one before

	stopping atomic.Bool
	done     chan struct{}
	err      error // why it ended without being asked to; set before done closes
}

// Start starts a process that is to end with us. The signals are what Stop asks it to end by, each less politely than
// the one before.
func Start(cmd *exec.Cmd, signals ...syscall.Signal) (*Child, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true // a terminal's Ctrl-C is for us alone, who stop our children in order
	dieWithParent(cmd.SysProcAttr)
	cmd.WaitDelay = time.Second // for a grandchild that keeps a pipe of ours open

	c := &Child{name: filepath.Base(cmd.Path), signals: signals, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		// To the kernel the parent is the thread that forked, and Go may end a thread: this one stays for as long
		// as the child does (golang/go#27505).
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		c.process = cmd.Process
		started <- err
		if err != nil {
			return
		}
		err = cmd.Wait()
		if !c.stopping.Load() {
			c.err = ended(c.name, err)
		}
		close(c.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", c.name, err)
	}
	return c, nil
}

func ended(name string, err error) error {
	if err == nil {
		err = errors.New("exit status 0")
	}
	return fmt.Errorf("%s ended by itself: %w", name, err)
}

// PID is its process id.
func (c *Child) PID() int { return c.process.Pid }

// Done is closed when it has ended, whether stopped or by itself.
func (c *Child) Done() <-chan struct{} { return c.done }

// Err says why it ended by itself; it is nil while it runs and after Stop.
func (c *Child) Err() error {
	select {
	case <-c.done:
		return c.err
	default:
		return nil
	}
}

// Stop asks the child to end and waits for it: until ctx is done for the first signal, killTimeout for each further
// one. That it took more than one is an error.
func (c *Child) Stop(ctx context.Context) error {
	select {
	case <-c.done:
		return nil
	default:
	}
	c.stopping.Store(true)
	limit := stopTimeout
	for i, signal := range c.signals {
		exited, err := c.ask(ctx, signal, limit)
		if err != nil {
			return fmt.Errorf("stop %s: %w", c.name, err)
		}
		if exited && i > 0 {
			return fmt.Errorf("stop %s: it did not end when asked to and got the signal %q", c.name, signal)
		}
		if exited {
			return nil
		}
		ctx, limit = context.WithoutCancel(ctx), killTimeout
	}
	return fmt.Errorf("stop %s: process %d does not end", c.name, c.process.Pid)
}

// ask sends a signal and tells whether the child ended before the limit or ctx did.
func (c *Child) ask(ctx context.Context, signal syscall.Signal, limit time.Duration) (exited bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := c.process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return false, err
	}
	select {
	case <-c.done:
		return true, nil
	case <-ctx.Done():
		return false, nil
	}
}

// Abort ends a child of which nothing more is wanted.
func (c *Child) Abort() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = c.Stop(ctx)
}

// Await returns nil once ready says so, an error if the child ended or ctx was done before that.
func (c *Child) Await(ctx context.Context, ready func() bool) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for !ready() {
		select {
		case <-c.done:
			return c.err
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
	return nil
}
