package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/devservers"
	"github.com/ironplane/ironplane/pkg/devservers/child"
	"github.com/ironplane/ironplane/pkg/runtime/mtls"
)

// stopTime is how long all servers together may take to end.
const stopTime = time.Minute

// The contestants, as the table names them.
const (
	pgbenchName = "pgbench"
	serviceName = "service alone"
	nginxName   = "nginx + service"
	gatewayName = "gateway"
	splitName   = "gateway + service, mTLS"

	nginxTLSName, gatewayTLSName     = "nginx + service, TLS", "gateway, TLS"
	nginxHTTP2Name, gatewayHTTP2Name = "nginx + service, HTTP/2", "gateway, HTTP/2"
)

// lineup is who takes part, and the servers that were started for it.
type lineup struct {
	options  options
	folder   string
	database *database
	screen   io.Writer

	contestants []*contestant // who reads
	pgbench     string        // the program; empty: there is none
	reached     map[string]ready
	servers     []*child.Child
	redis       *devservers.Redis // of those that are several processes
}

// start says what the machine is, and starts the contestants that it has the programs for.
func (l *lineup) start(ctx context.Context) error {
	fmt.Fprintf(
		l.screen,
		"%d cores, %s/%s, %s, Postgres %s\n",
		runtime.NumCPU(),
		runtime.GOOS,
		runtime.GOARCH,
		runtime.Version(),
		l.database.version,
	)
	if program, err := l.database.findPgbench(); err != nil {
		fmt.Fprintf(l.screen, "%s is skipped: %v\n", pgbenchName, err)
	} else {
		l.pgbench = program
		p := pgbench{
			program:     program,
			script:      readScript,
			database:    l.database,
			folder:      l.folder,
			connections: l.options.connections,
			rows:        l.options.rows,
		}
		l.contestants = append(l.contestants, &contestant{name: pgbenchName, read: p.read})
	}
	authority, err := mtls.NewAuthority(time.Hour)
	if err != nil {
		return err
	}
	files, err := l.identify(authority, principal.Gateway)
	if err != nil {
		return err
	}
	service, err := l.serve(ctx, serviceName, "service", mtls.Files{})
	if err != nil {
		return err
	}
	if program, version, err := findNginx(ctx); err != nil {
		fmt.Fprintf(l.screen, "%s is skipped: %v\n", nginxName, err)
	} else {
		fmt.Fprintln(l.screen, version)
		at, nginx, err := startNginx(ctx, program, filepath.Join(l.folder, "nginx"), service.Address, files)
		if err != nil {
			return fmt.Errorf("start nginx: %w", err)
		}
		l.servers = append(l.servers, nginx)
		l.add(nginxName, at)
		l.addTLS(nginxTLSName, nginxHTTP2Name, at)
	}
	gateway, err := l.serve(ctx, gatewayName, "gateway", files)
	if err != nil {
		return err
	}
	l.addTLS(gatewayTLSName, gatewayHTTP2Name, gateway)
	return l.serveSplit(ctx)
}

// serve has a server of ours take part, which shows this certificate where it speaks TLS.
func (l *lineup) serve(ctx context.Context, name, kind string, files mtls.Files) (r ready, err error) {
	r, server, err := startServer(ctx, kind, order{Databases: l.database.urls, Profile: l.profile(kind), Member: member{Files: files}})
	if err != nil {
		return r, fmt.Errorf("start the server of the %s: %w", kind, err)
	}
	l.servers = append(l.servers, server)
	l.add(name, r)
	return r, nil
}

func (l *lineup) add(name string, r ready) {
	l.reached[name] = r
	l.addBy(plainHTTP, name, "", r)
}

// addTLS has what was added take part by TLS, too, with HTTP/1.1 and with HTTP/2.
func (l *lineup) addTLS(tls, http2 string, r ready) {
	l.addBy(overTLS, tls, nginxTLSName, r)
	l.addBy(overHTTP2, http2, nginxHTTP2Name, r)
}

func (l *lineup) addBy(by protocol, name, beside string, r ready) {
	callers := callers{r, l.options.connections, readPortSpeed(l.options.rows), by}
	l.contestants = append(l.contestants, &contestant{name: name, beside: beside, read: callers.read})
}

func (l *lineup) profile(kind string) string {
	if l.options.profiles == "" {
		return ""
	}
	return filepath.Join(l.options.profiles, kind+".prof")
}

// stop ends the servers, the last first, and says which ended before.
func (l *lineup) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer cancel()
	var failed error
	for _, server := range slices.Backward(l.servers) {
		failed = errors.Join(failed, server.Err(), server.Stop(ctx))
	}
	if l.redis != nil {
		failed = errors.Join(failed, l.redis.Stop(ctx))
	}
	return failed
}
