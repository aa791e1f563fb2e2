package process

import (
	"context"
	"net"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

// States of a process for systemd: see sd_notify(3).
const (
	isReady     = "READY=1"
	isReloading = "RELOADING=1"
	isStopping  = "STOPPING=1"
	isAlive     = "WATCHDOG=1"
)

// notifyTimeout bounds a message to systemd: go-systemd waits forever.
const notifyTimeout = time.Second

// notify tells systemd the state of this process, if systemd runs it.
func (o *Operations) notify(state string) {
	socket := os.Getenv("NOTIFY_SOCKET")
	if socket == "" {
		return
	}
	if err := sendState(socket, state); err != nil {
		o.log.Warn("notify systemd failed", "state", state, "error", err)
	}
}

func sendState(socket, state string) error {
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(notifyTimeout)); err != nil {
		return err
	}
	_, err = conn.Write([]byte(state))
	return err
}

// watchdog returns after what time without a sign of life systemd restarts this process; 0: never.
func watchdog() time.Duration {
	limit, err := strconv.Atoi(os.Getenv("WATCHDOG_USEC"))
	if pid := os.Getenv("WATCHDOG_PID"); err != nil || pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return 0
	}
	return time.Duration(limit) * time.Microsecond
}

// keepAlive tells systemd regularly that the process is alive, until stop is called. A check that hangs stops the messages,
// so systemd restarts the process.
func (o *Operations) keepAlive(ctx context.Context) (stop func()) {
	limit := watchdog()
	if limit <= 0 {
		return func() {}
	}
	ctx, end := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for tick := time.Tick(limit / 3); ctx.Err() == nil; {
			o.runChecks(ctx)
			o.notify(isAlive)
			select {
			case <-tick:
			case <-ctx.Done():
			}
		}
	}()
	return func() {
		end()
		<-ended
	}
}

// OnHangup calls renew at each SIGHUP, until stop is called. renew rereads files such as passwords.
func (o *Operations) OnHangup(renew func()) (stop func()) {
	hangups, ended := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(hangups, syscall.SIGHUP)
	go func() {
		defer close(ended)
		for range hangups {
			o.notify(isReloading)
			o.log.Warn("SIGHUP received, renewing database sessions")
			renew()
			o.notify(isReady)
		}
	}()
	return func() {
		signal.Stop(hangups)
		close(hangups)
		<-ended
	}
}
