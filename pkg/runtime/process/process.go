// Package process starts, serves, drains and stops a program of Ironplane.
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

// gcPercent is the default GOGC: little memory lives here, so garbage is collected late. memoryLimit is the default
// GOMEMLIMIT, from which garbage is collected sooner: each password hash leaves 46 MiB of it.
const (
	gcPercent   = 400
	memoryLimit = 512 << 20
)

// DrainTimeout is how long open requests may take once the process is told to stop and the drain delay is over. Supervisors have
// to wait longer before they kill the process.
const DrainTimeout = 20 * time.Second

// Main runs a program until it ends, or until SIGINT or SIGTERM ends its context, and exits. SIGHUP does not end the
// program. An error is printed as one line, with exit status 1.
func Main(run func(context.Context) error) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)                           // a second signal ends the process at once
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP) // ignored, except by Operations.OnHangup
	err := run(ctx)
	stop()
	if err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "ironplane: "+err.Error())
		os.Exit(1)
	}
}

// Serve answers on a listener until ctx ends, and then lets open requests finish. If the handler is a Refuser, it also
// answers the requests that net/http refuses by itself.
func Serve(ctx context.Context, listener net.Listener, handler http.Handler, log *slog.Logger) error {
	return serve(ctx, listener, handler, log, 0)
}

// closeAmbiguous closes a connection after a request that may have had two lengths: a proxy in front may have believed the other one, and
// sent what another caller sees as the next request. net/http takes Content-Length away from a request with chunks, and
// Transfer-Encoding from one of HTTP/1.0. So both are always the last ones on their connection. Processes of the mesh send one length.
func closeAmbiguous(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		isPeer := r.TLS != nil && len(r.TLS.PeerCertificates) > 0
		if !isPeer && (len(r.TransferEncoding) > 0 || r.ProtoMajor == 1 && r.ProtoMinor == 0) {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// serve is Serve. After ctx ends it closes the listener, and serves open connections for grace before it shuts down.
func serve(ctx context.Context, listener net.Listener, handler http.Handler, log *slog.Logger, grace time.Duration) error {
	server := &http.Server{
		Handler:           closeAmbiguous(handler),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    32 << 10,
		HTTP2: &http.HTTP2Config{
			SendPingTimeout:  30 * time.Second,
			PingTimeout:      15 * time.Second,
			WriteByteTimeout: 30 * time.Second,
		},
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug), // errors of callers are not worth a warning
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
	draining, cancel := context.WithTimeout(context.WithoutCancel(ctx), DrainTimeout)
	defer cancel()
	err := server.Shutdown(draining)
	if errors.Is(err, net.ErrClosed) { // the listener is closed already
		err = nil
	}
	<-failed
	if err != nil {
		_ = server.Close()
		return fmt.Errorf("drain: %w", err)
	}
	return nil
}
