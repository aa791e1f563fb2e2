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

// stopTimeout is the limit for all servers together to stop.
const stopTimeout = time.Minute

// The names of the candidates in the table.
const (
	pgbenchName = "pgbench"
	serviceName = "service alone"
	nginxName   = "nginx + service"
	gatewayName = "gateway"
	splitName   = "gateway + service, mTLS"

	nginxTLSName, gatewayTLSName     = "nginx + service, TLS", "gateway, TLS"
	nginxHTTP2Name, gatewayHTTP2Name = "nginx + service, HTTP/2", "gateway, HTTP/2"
)

// suite has the candidates, and the servers that were started for them.
type suite struct {
	options  options
	folder   string
	database *database
	screen   io.Writer

	candidates []*candidate // of the measurement of reads
	pgbench    string       // the program's path; empty: not installed
	endpoints  map[string]endpoint
	servers    []*child.Child
	redis      *devservers.Redis // of the candidates with several processes
}

// start prints the machine's properties, and starts the candidates whose programs are installed.
func (l *suite) start(ctx context.Context) error {
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
		l.candidates = append(l.candidates, &candidate{name: pgbenchName, read: p.read})
	}
	authority, err := mtls.NewAuthority(time.Hour)
	if err != nil {
		return err
	}
	files, err := l.writeIdentity(authority, principal.Gateway)
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

// serve adds a server of the product. files are its certificate for TLS.
func (l *suite) serve(ctx context.Context, name, kind string, files mtls.Files) (r endpoint, err error) {
	r, server, err := startServer(
		ctx,
		kind,
		serverConfig{Databases: l.database.urls, Profile: l.profile(kind), Member: memberConfig{Files: files}},
	)
	if err != nil {
		return r, fmt.Errorf("start the server of the %s: %w", kind, err)
	}
	l.servers = append(l.servers, server)
	l.add(name, r)
	return r, nil
}

func (l *suite) add(name string, r endpoint) {
	l.endpoints[name] = r
	l.addBy(plainHTTP, name, "", r)
}

// addTLS adds a server's endpoint over TLS, with HTTP/1.1 and with HTTP/2.
func (l *suite) addTLS(tls, http2 string, r endpoint) {
	l.addBy(overTLS, tls, nginxTLSName, r)
	l.addBy(overHTTP2, http2, nginxHTTP2Name, r)
}

func (l *suite) addBy(by protocol, name, baseline string, r endpoint) {
	callers := callers{r, l.options.connections, newReadOperation(l.options.rows), by}
	l.candidates = append(l.candidates, &candidate{name: name, baseline: baseline, read: callers.read})
}

// profile returns the file for a server's CPU profile; empty: none.
func (l *suite) profile(kind string) string {
	if l.options.profiles == "" {
		return ""
	}
	return filepath.Join(l.options.profiles, kind+".prof")
}

// stop stops the servers, the last one first. It also returns the errors of servers that ended before.
func (l *suite) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
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
