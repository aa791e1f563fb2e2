// Package process is how a program of Ironplane starts, serves, drains and ends.
package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"
)

// gcPercent is how much of it there may be before it is collected, in percent of what lives, which is little here, unless GOGC says
// otherwise. memory, or GOMEMLIMIT, is from when on it is collected sooner: each hash of a password leaves 46 MiB of it.
const (
	gcPercent   = 400
	memoryLimit = 512 << 20
)

// drainTimeout is how long requests that are under way may take once the process is told to stop.
const drainTimeout = 20 * time.Second

// Main runs a program until it ends by itself or SIGINT or SIGTERM ends its context, and exits. SIGHUP ends nothing. An
// error is shown as one sentence.
func Main(run func(context.Context) error) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)                           // so that a second signal ends it at once
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP) // which Operations.AtHangup is for
	err := run(ctx)
	stop()
	if err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "ironplane: "+err.Error())
		os.Exit(1)
	}
}

// Serve answers on a listener until ctx ends, and then lets requests finish that are under way. What net/http refuses
// before the handler sees it, a Refuser answers.
func Serve(ctx context.Context, listener net.Listener, handler http.Handler, log *slog.Logger) error {
	return serve(ctx, listener, handler, log, 0)
}

// serve is Serve, and accepts nothing for the last moment, in which it goes on serving those who are connected.
func serve(ctx context.Context, listener net.Listener, handler http.Handler, log *slog.Logger, grace time.Duration) error {
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    32 << 10,
		HTTP2: &http.HTTP2Config{
			SendPingTimeout:  30 * time.Second,
			PingTimeout:      15 * time.Second,
			WriteByteTimeout: 30 * time.Second,
		},
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug), // what callers do wrong is no news
	}
	if refuser, ok := handler.(Refuser); ok {
		listener = interceptRefusals(server, refuser, listener)
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	if grace > 0 {
		_ = listener.Close()
		time.Sleep(grace)
	}
	draining, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	defer cancel()
	err := server.Shutdown(draining)
	if errors.Is(err, net.ErrClosed) { // the listener, a second time
		err = nil
	}
	<-failed
	if err != nil {
		_ = server.Close()
		return fmt.Errorf("drain: %w", err)
	}
	return nil
}
