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

// What systemd is told of a process, as sd_notify(3) has it.
const (
	isReady     = "READY=1"
	isReloading = "RELOADING=1"
	isStopping  = "STOPPING=1"
	isAlive     = "WATCHDOG=1"
)

// notifyTimeout is how long systemd may take to be told: go-systemd waits for ever.
const notifyTimeout = time.Second

// notify tells systemd, where this process is a service of it, how the process is.
func (o *Operations) notify(state string) {
	socket := os.Getenv("NOTIFY_SOCKET")
	if socket == "" {
		return
	}
	if err := sendState(socket, state); err != nil {
		o.log.Warn("systemd cannot be told how this process is", "state", state, "error", err)
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

// watchdog is how long systemd waits for a sign of life of this process before it starts another one; 0: for ever.
func watchdog() time.Duration {
	limit, err := strconv.Atoi(os.Getenv("WATCHDOG_USEC"))
	if pid := os.Getenv("WATCHDOG_PID"); err != nil || pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return 0
	}
	return time.Duration(limit) * time.Microsecond
}

// keepAlive tells systemd as often as it wants to know, until stop is called, that the process is alive, which one that hangs
// in a check is not.
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

// OnHangup has what goes on renewed at each SIGHUP, by what files say then, until stop is called.
func (o *Operations) OnHangup(renew func()) (stop func()) {
	hangups, ended := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(hangups, syscall.SIGHUP)
	go func() {
		defer close(ended)
		for range hangups {
			o.notify(isReloading)
			o.log.Warn("SIGHUP: sessions with the database begin anew, by what files say now")
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
