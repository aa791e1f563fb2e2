package devservers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/devservers/child"
)

const (
	superuser      = "postgres"
	initTimeout    = 2 * time.Minute
	readyTimeout   = time.Minute // includes the recovery after a crash
	maxLog         = 10 << 20    // bytes
	maxConnections = 200
)

// PostgresOptions configure a Postgres server.
type PostgresOptions struct {
	// Dir holds the data, the superuser's password and the log. It is created if it does not exist.
	Dir string
	// Durable makes commits survive a crash of the machine. Without it, for tests, such a crash may lose all data.
	Durable bool
	// MaxConnections is 200 by default.
	MaxConnections int

	bins []string // where to look for the server, in place of the usual folders
}

// Postgres is a running server. The caller of StartPostgres must Stop it.
type Postgres struct {
	dir      string
	lock     *folderLock
	child    *child.Child
	port     int
	password string
}

// StartPostgres starts the Postgres of a folder, and returns when it is ready. It prepares a new folder. It fails with
// ErrNoPostgres if this machine has no Postgres, and with ErrInUse if another process uses the folder. ctx limits only the
// start.
func StartPostgres(ctx context.Context, o PostgresOptions) (*Postgres, error) {
	if o.Dir == "" {
		return nil, errors.New("start Postgres: the folder is not set")
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("start Postgres: %w", err)
	}
	p := &Postgres{dir: dir}
	if err := p.start(ctx, o); err != nil {
		return nil, fmt.Errorf("start Postgres in %s: %w", dir, err)
	}
	return p, nil
}

// CheckPostgres fails if this machine has no Postgres for the data in a folder. It changes nothing.
func CheckPostgres(ctx context.Context, dir string) error {
	major, err := dataVersion(filepath.Join(dir, "data"))
	if err != nil {
		return err
	}
	_, err = findPostgres(ctx, usualBins(ctx), major)
	return err
}

// URL returns the superuser's URL of a database, with the password. Its require_auth prevents clients from sending the
// password to another process that listens on the port after this Postgres has ended. libpq knows require_auth from version
// 16 on.
func (p *Postgres) URL(database string) string {
	u := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword(superuser, p.password),
		Host:     net.JoinHostPort("127.0.0.1", strconv.Itoa(p.port)),
		Path:     "/" + database,
		RawQuery: "require_auth=scram-sha-256&sslmode=disable",
	}
	return u.String()
}

// Done is closed when the server has ended, stopped or by itself.
func (p *Postgres) Done() <-chan struct{} { return p.child.Done() }

// Err returns why the server ended by itself. It is nil while the server runs, and after Stop.
func (p *Postgres) Err() error {
	if err := p.child.Err(); err != nil {
		return fmt.Errorf("%w (its log is %s)", err, p.logFile())
	}
	return nil
}

// Stop ends the server and its sessions, and frees the folder. It waits until ctx is done, at most a minute, before it uses
// force. Force loses no committed data, but is an error. Call Stop even if the server has ended by itself.
func (p *Postgres) Stop(ctx context.Context) error {
	defer p.lock.release()
	return p.child.Stop(ctx)
}

func (p *Postgres) dataFolder() string { return filepath.Join(p.dir, "data") }
func (p *Postgres) logFile() string    { return filepath.Join(p.dir, "postgres.log") }

func (p *Postgres) start(ctx context.Context, o PostgresOptions) (err error) {
	// Passable, as the user that Postgres of a root process runs as comes in by path where there is no /proc. What
	// matters in it is closed by itself.
	if err := os.MkdirAll(p.dir, 0o711); err != nil {
		return err
	}
	if p.lock, err = lockFolder(p.dir, "postgres"); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			p.lock.release()
		}
	}()
	major, err := dataVersion(p.dataFolder())
	if err != nil {
		return err
	}
	if o.bins == nil {
		o.bins = usualBins(ctx)
	}
	found, err := findPostgres(ctx, o.bins, major)
	if err != nil {
		return err
	}
	if p.password, err = superuserPassword(filepath.Join(p.dir, "password"), major == ""); err != nil {
		return err
	}
	if major == "" {
		if err := p.createData(ctx, found, o.Durable); err != nil {
			return err
		}
	}
	return onFreePort(func(port int) error { return p.serve(ctx, found, port, o) })
}

var errNoLocale = errors.New("the locale is unknown")

// serve starts the server on a port, and waits until it is ready.
func (p *Postgres) serve(ctx context.Context, found installation, port int, o PostgresOptions) error {
	lock, earlier, err := p.lock.lockServer(ctx)
	if err != nil {
		return err
	}
	defer lock.Close() // the server has it now
	// The lock says that the earlier server is gone. A Postgres that somebody started by hand has no lock, but
	// another pid.
	if pid, _ := p.readPIDFile(); pid != 0 && pid == earlier {
		if err := os.Remove(p.pidFile()); err != nil {
			return err
		}
	}
	data, err := os.Open(p.dataFolder())
	if err != nil {
		return err
	}
	defer data.Close()
	log, start, err := openLog(p.logFile())
	if err != nil {
		return err
	}
	defer log.Close()

	cmd := exec.Command(filepath.Join(found.bin, "postgres"))
	cmd.Dir, cmd.Env = "/", childEnv
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if cmd.SysProcAttr.Credential, err = ownerOf(data); err != nil {
		return err
	}
	cmd.ExtraFiles = []*os.File{lock}
	if o.MaxConnections == 0 {
		o.MaxConnections = maxConnections
	}
	cmd.Args = append(cmd.Args, "-D", passFile(cmd, data), "-p", strconv.Itoa(port),
		"-c", "listen_addresses=127.0.0.1",
		"-c", "unix_socket_directories=",
		"-c", "max_connections="+strconv.Itoa(o.MaxConnections),
		"-c", "lc_messages=C",
		"-c", "timezone=UTC",
		"-c", "log_timezone=UTC")
	if !o.Durable {
		cmd.Args = append(cmd.Args, "-c", "fsync=off", "-c", "synchronous_commit=off", "-c", "full_page_writes=off",
			"-c", "max_wal_size=128MB") // its folder may be one in memory
	}
	c, err := child.Start(cmd, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGKILL)
	if err != nil {
		return err
	}
	p.child, p.port = c, port
	if err := writePID(lock, c.PID()); err != nil {
		c.Abort()
		return err
	}
	if err := p.awaitReady(ctx); err != nil {
		c.Abort()
		if c.Err() == nil {
			return err
		}
		tail := logSince(p.logFile(), start)
		if strings.Contains(tail, addressInUse) {
			return errPortInUse
		}
		return fmt.Errorf("%w; %s ends with: %s", c.Err(), p.logFile(), tail)
	}
	return nil
}

// awaitReady reads the server's pid file before it connects. Another process may have taken the port first, and must not get
// the password.
func (p *Postgres) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, fmt.Errorf("not ready after %v", readyTimeout))
	defer cancel()
	err := p.child.Await(ctx, func() bool {
		pid, status := p.readPIDFile()
		return pid == p.child.PID() && status == "ready"
	})
	if err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, p.URL("postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	return requireExtensions(ctx, conn, "pg_trgm", "btree_gist")
}

// requireExtensions fails if the server lacks an extension.
func requireExtensions(ctx context.Context, conn *pgx.Conn, names ...string) error {
	rows, err := conn.Query(ctx, "SELECT n FROM unnest($1::text[]) n EXCEPT SELECT name FROM pg_available_extensions", names)
	if err != nil {
		return fmt.Errorf("look for extensions: %w", err)
	}
	missing, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("look for extensions: %w", err)
	}
	if len(missing) > 0 {
		return fmt.Errorf("this Postgres lacks the extension %s: install its contrib package"+
			" (Fedora: `dnf install postgresql-contrib`; Debian: in `postgresql`)", strings.Join(missing, " and "))
	}
	return nil
}

func (p *Postgres) pidFile() string { return filepath.Join(p.dataFolder(), "postmaster.pid") }

// readPIDFile returns the pid and the status that the server writes in lines 1 and 8 of its pid file, or 0.
func (p *Postgres) readPIDFile() (pid int, status string) {
	text, err := os.ReadFile(p.pidFile())
	if err != nil {
		return 0, ""
	}
	lines := strings.Split(string(text), "\n")
	pid, err = strconv.Atoi(lines[0])
	if err != nil {
		return 0, ""
	}
	if len(lines) > 7 {
		status = strings.TrimSpace(lines[7])
	}
	return pid, status
}

// openLog opens the log for appending, and returns its size. It empties a log that is too large.
func openLog(path string) (*os.File, int64, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	if info.Size() <= maxLog {
		return f, info.Size(), nil
	}
	if err := f.Truncate(0); err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, 0, nil
}

// logSince returns the end of the log, from a position on.
func logSince(path string, start int64) string {
	f, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	if _, err := f.Seek(start, io.SeekStart); err != nil {
		return err.Error()
	}
	var tail child.Tail
	if _, err := io.Copy(&tail, f); err != nil {
		return err.Error()
	}
	return strings.TrimSpace(tail.String())
}
