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

// serverCommand is the hidden command by which bench runs itself as a server. A server is told what to do by an order
// on its stdin, says on its stdout when it is ready, and ends when its stdin does, which is when bench does.
const serverCommand = "serve"

// startTime is how long a server may take to be ready.
const startTime = 2 * time.Minute

// order is what a server is told. It holds passwords, which arguments and environments would show.
type order struct {
	Databases map[string]string // the services' URLs by their names
	Profile   string            // a file for a CPU profile, none where empty
	Member    member            // of a server that is one process of several
}

// ready is what a server says once it can be used.
type ready struct{ Address, TLS, Key string }

// startServer starts one and waits until it is ready. It belongs to the caller.
func startServer(ctx context.Context, kind string, o order) (ready, *child.Child, error) {
	program, err := os.Executable()
	if err != nil {
		return ready{}, nil, fmt.Errorf("find this program: %w", err)
	}
	cmd := exec.Command(program, serverCommand, kind)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe() // stays open for as long as both live
	if err != nil {
		return ready{}, nil, err
	}
	said, stdout, err := os.Pipe()
	if err != nil {
		return ready{}, nil, err
	}
	defer said.Close()
	cmd.Stdout = stdout
	server, err := child.Start(cmd, syscall.SIGTERM, syscall.SIGKILL)
	stdout.Close() // is the server's now
	if err != nil {
		return ready{}, nil, err
	}
	r, err := brief(ctx, o, stdin, said)
	if err != nil {
		server.Abort()
		return ready{}, nil, errors.Join(err, server.Err())
	}
	return r, server, nil
}

// brief gives a server its order and waits until it is ready.
func brief(ctx context.Context, o order, stdin io.Writer, said *os.File) (r ready, err error) {
	if err := json.NewEncoder(stdin).Encode(o); err != nil {
		return r, fmt.Errorf("give the order: %w", err)
	}
	if err := said.SetReadDeadline(time.Now().Add(startTime)); err != nil {
		return r, err
	}
	defer context.AfterFunc(ctx, func() { _ = said.SetReadDeadline(time.Now()) })()
	if err := json.NewDecoder(said).Decode(&r); ctx.Err() != nil {
		return r, ctx.Err()
	} else if err != nil {
		return r, fmt.Errorf("wait until it is ready: %w", err)
	}
	return r, nil
}
