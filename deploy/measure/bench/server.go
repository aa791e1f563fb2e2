package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/ironplane/ironplane/pkg/devservers/child"
)

// serverCommand is the hidden command with which bench runs itself as a server. A server reads its configuration from stdin,
// and writes its endpoint to stdout when it is ready. It stops when stdin ends, so it stops with bench.
const serverCommand = "serve"

// startTimeout is the limit for a server to become ready.
const startTimeout = 2 * time.Minute

// serverConfig is a server's configuration. It goes through stdin because it has passwords, which other users could see in
// arguments and environments.
type serverConfig struct {
	Databases map[string]string // the services' database URLs by service
	Profile   string            // a file for a CPU profile; empty: none
	Member    memberConfig      // for a server that is one of several processes
}

// endpoint has the addresses and the API key of a server that is ready.
type endpoint struct{ Address, TLS, Key string }

// startServer starts a server, and waits until it is ready. The caller must stop it.
func startServer(ctx context.Context, kind string, o serverConfig) (endpoint, *child.Child, error) {
	program, err := os.Executable()
	if err != nil {
		return endpoint{}, nil, fmt.Errorf("find this program: %w", err)
	}
	cmd := exec.Command(program, serverCommand, kind)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe() // stays open until one of them ends
	if err != nil {
		return endpoint{}, nil, err
	}
	output, stdout, err := os.Pipe()
	if err != nil {
		return endpoint{}, nil, err
	}
	defer output.Close()
	cmd.Stdout = stdout
	server, err := child.Start(cmd, syscall.SIGTERM, syscall.SIGKILL)
	stdout.Close() // only the server uses it now
	if err != nil {
		return endpoint{}, nil, err
	}
	r, err := sendConfig(ctx, o, stdin, output)
	if err != nil {
		server.Abort()
		return endpoint{}, nil, errors.Join(err, server.Err())
	}
	return r, server, nil
}

// sendConfig sends a server its configuration, and waits until it is ready.
func sendConfig(ctx context.Context, o serverConfig, stdin io.Writer, output *os.File) (r endpoint, err error) {
	if err := json.NewEncoder(stdin).Encode(o); err != nil {
		return r, fmt.Errorf("send the server its configuration: %w", err)
	}
	if err := output.SetReadDeadline(time.Now().Add(startTimeout)); err != nil {
		return r, err
	}
	defer context.AfterFunc(ctx, func() { _ = output.SetReadDeadline(time.Now()) })()
	if err := json.NewDecoder(output).Decode(&r); ctx.Err() != nil {
		return r, ctx.Err()
	} else if err != nil {
		return r, fmt.Errorf("wait until the server is ready: %w", err)
	}
	return r, nil
}
