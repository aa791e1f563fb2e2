package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/ironplane/ironplane/deploy/internal/ports"
	"github.com/ironplane/ironplane/pkg/devservers/child"
	"github.com/ironplane/ironplane/pkg/runtime/mtls"
)

// findNginx returns the program and its version.
func findNginx(ctx context.Context) (program, version string, err error) {
	program, err = exec.LookPath("nginx")
	if err != nil {
		program, err = exec.LookPath("/usr/sbin/nginx") // only root has this folder on PATH
	}
	if err != nil {
		return "", "", errors.New("nginx is not installed")
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	text, err := exec.CommandContext(ctx, program, "-v").CombinedOutput()
	if err != nil {
		return "", "", fmt.Errorf("%s -v: %w", program, err)
	}
	_, version, _ = strings.Cut(strings.TrimSpace(string(text)), ": ")
	return program, version, nil
}

// nginxConfig configures nginx as a fast plain proxy: it keeps connections on both sides open, and logs nothing. The paths are
// below nginx's prefix. Those that are not used keep it from creating the default folders, which only root may do.
const nginxConfig = `
daemon off;
worker_processes auto;
pid nginx.pid;
error_log stderr error;
events { worker_connections 4096; }
http {
	access_log off;
	client_body_temp_path temp;
	proxy_temp_path temp;
	fastcgi_temp_path temp;
	uwsgi_temp_path temp;
	scgi_temp_path temp;
	keepalive_requests 1000000000;
	upstream service {
		server %s;
		keepalive 1024;
		keepalive_requests 1000000000;
	}
	server {
		listen %s;
		listen %s ssl http2;
		ssl_certificate %s;
		ssl_certificate_key %s;
		location / {
			proxy_pass http://service;
			proxy_http_version 1.1;
			proxy_set_header Connection "";
		}
	}
}
`

// startNginx starts nginx in front of a service, and waits until it listens. The caller must stop it.
func startNginx(ctx context.Context, program, folder, service string, files mtls.Files) (at endpoint, nginx *child.Child, err error) {
	free, err := ports.Free(2)
	if err != nil {
		return at, nil, err
	}
	at.Address, at.TLS = free[0], free[1]
	if err := os.Mkdir(folder, 0o700); err != nil {
		return at, nil, fmt.Errorf("create nginx's folder: %w", err)
	}
	config := filepath.Join(folder, "nginx.conf")
	if err := os.WriteFile(
		config,
		fmt.Appendf(nil, nginxConfig, service, at.Address, at.TLS, files.Certificate, files.Key),
		0o600,
	); err != nil {
		return at, nil, fmt.Errorf("write nginx's configuration: %w", err)
	}
	cmd := exec.Command(program, "-p", folder, "-c", config)
	cmd.Env = []string{}
	cmd.Stderr = os.Stderr
	if nginx, err = child.Start(cmd, syscall.SIGTERM, syscall.SIGKILL); err != nil {
		return at, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	err = nginx.Await(ctx, func() bool {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp4", at.TLS)
		return err == nil && conn.Close() == nil
	})
	if err != nil {
		nginx.Abort()
		return at, nil, err
	}
	return at, nginx, nil
}
