package process

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/runtime/health"
)

// A process tells systemd when it is ready, reloads and stops, and meanwhile that it is alive. A check that hangs stops the
// messages.
func TestNotify(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "notify")
	systemd, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer systemd.Close()
	t.Setenv("NOTIFY_SOCKET", socket)
	t.Setenv("WATCHDOG_USEC", "30000")
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
	hear := func(within time.Duration) (string, error) {
		var message [256]byte
		if err := systemd.SetReadDeadline(time.Now().Add(within)); err != nil {
			t.Fatal(err)
		}
		n, err := systemd.Read(message[:])
		return string(message[:n]), err
	}
	until := func(want string) {
		t.Helper()
		for {
			message, err := hear(5 * time.Minute)
			if err != nil {
				t.Fatalf("got %v, want %s", err, want)
			}
			if message == want {
				return
			}
			if message != "WATCHDOG=1" {
				t.Fatalf("got %q, want %s", message, want)
			}
		}
	}

	o, hang := NewOperations("test"), make(chan struct{})
	o.Check(health.Check{Name: "hanging", Ask: func(context.Context) error { <-hang; return nil }})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended, renewed := make(chan error), make(chan struct{})
	go func() {
		ended <- o.Run(ctx, OperationsConfig{}, LogConfig{Level: slog.LevelError}, func(ctx context.Context, _ *slog.Logger) error {
			defer o.OnHangup(func() { <-renewed })()
			return o.Serve(ctx, listener, http.NotFoundHandler(), func() {})
		})
	}()
	until("READY=1")
	if message, err := hear(100 * time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a process that hangs: got %q, %v, want no message", message, err)
	}
	close(hang)
	until("WATCHDOG=1")
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	until("RELOADING=1")
	close(renewed)
	until("READY=1")
	stop()
	until("STOPPING=1") // the process must end even if systemd does not listen any more
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
