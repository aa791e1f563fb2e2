package backing

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	stopTimeout  = time.Minute      // for the first signal; Postgres writes a checkpoint before it ends
	killTimeout  = 10 * time.Second // for each further one; Postgres gives its own children 5 s after a SIGQUIT
	pollInterval = 10 * time.Millisecond
)

// child is a process that we started and wait for.
type child struct {
	name    string
	process *os.Process
	signals []syscall.Signal // ask it to stop, each less politely than the one before

	stopping atomic.Bool
	done     chan struct{}
	err      error // why it ended without being asked to; set before done closes
}

// startChild starts a process that is to end with us.
func startChild(cmd *exec.Cmd, signals ...syscall.Signal) (*child, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true // a terminal's Ctrl-C is for us alone, who stop our children in order
	dieWithParent(cmd.SysProcAttr)
	cmd.WaitDelay = time.Second // for a grandchild that keeps a pipe of ours open

	c := &child{name: filepath.Base(cmd.Path), signals: signals, done: make(chan struct{})}
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

func (c *child) ended() <-chan struct{} { return c.done }

func (c *child) cause() error {
	select {
	case <-c.done:
		return c.err
	default:
		return nil
	}
}

// stop asks the child to end and waits for it: until ctx is done for the first signal, killTimeout for each further
// one. That it took more than one is an error.
func (c *child) stop(ctx context.Context) error {
	select {
	case <-c.done:
		return nil
	default:
	}
	c.stopping.Store(true)
	limit := stopTimeout
	for i, signal := range c.signals {
		gone, err := c.ask(ctx, signal, limit)
		if err != nil {
			return fmt.Errorf("stop %s: %w", c.name, err)
		}
		if gone && i > 0 {
			return fmt.Errorf("stop %s: it did not end when asked to and got the signal %q", c.name, signal)
		}
		if gone {
			return nil
		}
		ctx, limit = context.WithoutCancel(ctx), killTimeout
	}
	return fmt.Errorf("stop %s: process %d does not end", c.name, c.process.Pid)
}

// ask sends a signal and tells whether the child ended before the limit or ctx did.
func (c *child) ask(ctx context.Context, signal syscall.Signal, limit time.Duration) (gone bool, err error) {
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

// abort ends a child of which nothing more is wanted.
func (c *child) abort() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = c.stop(ctx)
}

// await returns nil once ready says so, an error if the child ended or ctx was done before that.
func (c *child) await(ctx context.Context, ready func() bool) error {
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

// tail is a writer that remembers the last of what was written.
type tail struct {
	mu   sync.Mutex
	text []byte
}

const tailSize = 4 << 10 // bytes

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	if n := len(t.text) - tailSize; n > 0 {
		t.text = append(t.text[:0], t.text[n:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}
