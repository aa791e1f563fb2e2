// Package child runs processes that end together with this one. On Linux the kernel ensures that, however this process ends.
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

// Child is a process that this process started. The caller of Start must Stop it.
type Child struct {
	name    string
	process *os.Process
	signals []syscall.Signal // ask it to stop, each less politely than the one before

	stopping atomic.Bool
	done     chan struct{}
	err      error // why it ended without being asked to; set before done closes
}

// Start starts a process that must end with this one. Stop sends the signals in turn, the politest first.
func Start(cmd *exec.Cmd, signals ...syscall.Signal) (*Child, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true // Ctrl-C must reach only this process, which stops its children in order
	dieWithParent(cmd.SysProcAttr)
	cmd.WaitDelay = time.Second // in case a grandchild keeps a pipe open

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

// PID returns the process id.
func (c *Child) PID() int { return c.process.Pid }

// Done is closed when the child has ended, stopped or by itself.
func (c *Child) Done() <-chan struct{} { return c.done }

// Err returns why the child ended by itself. It is nil while the child runs, and after Stop.
func (c *Child) Err() error {
	select {
	case <-c.done:
		return c.err
	default:
		return nil
	}
}

// Stop asks the child to end, and waits for it: until ctx is done for the first signal, and for killTimeout after each
// further one. It returns an error if the child needed more than one signal.
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
			return fmt.Errorf("stop %s: it ignored the first signal and was sent %q", c.name, signal)
		}
		if exited {
			return nil
		}
		ctx, limit = context.WithoutCancel(ctx), killTimeout
	}
	return fmt.Errorf("stop %s: process %d does not end", c.name, c.process.Pid)
}

// ask sends a signal, and reports whether the child ended before the limit or ctx did.
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

// Abort ends the child at once.
func (c *Child) Abort() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = c.Stop(ctx)
}

// Await returns nil once ready returns true. It fails if the child ends or ctx is done before that.
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
