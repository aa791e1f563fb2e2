package child

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

func TestStopKills(t *testing.T) {
	t.Parallel()
	var tail Tail
	stubborn := exec.Command("sh", "-c", `trap "" INT; echo started; exec sleep 3600`)
	stubborn.Stdout = &tail
	c, err := Start(stubborn, syscall.SIGINT, syscall.SIGKILL)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Await(t.Context(), func() bool { return tail.String() != "" }); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := c.Stop(ctx); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("stop: got %v, want an error that says killed", err)
	}
	select {
	case <-c.Done():
	default:
		t.Error("got a running child after Stop, want it ended")
	}
	if err := c.Err(); err != nil {
		t.Errorf("the cause after Stop: got %v, want nil", err)
	}
}

func TestAwaitEndedChild(t *testing.T) {
	t.Parallel()
	c, err := Start(exec.Command("true"), syscall.SIGKILL)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Await(t.Context(), func() bool { return false }); err == nil || !strings.Contains(err.Error(), "exit status 0") {
		t.Errorf("await: got %v, want an error that says exit status 0", err)
	}
	if _, err := Start(exec.Command("/missing")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("start a missing program: got %v, want %v", err, os.ErrNotExist)
	}
}

func TestTail(t *testing.T) {
	t.Parallel()
	var tail Tail
	for range 3 {
		fmt.Fprint(&tail, strings.Repeat("x", tailSize/2))
	}
	fmt.Fprint(&tail, "end")
	if s := tail.String(); len(s) != tailSize || !strings.HasSuffix(s, "xend") {
		t.Errorf("got %d bytes that end with %q, want %d that end with xend", len(s), s[max(0, len(s)-5):], tailSize)
	}
}
