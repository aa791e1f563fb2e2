// Idle measures an installation without any load: transactions and CPU time a second, and the statements. Then it measures how
// long a change takes to reach the log and a webhook, and how long a setting takes to have an effect.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/deploy/internal/ports"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	program := flag.String("program", "bin/standalone", "the path of standalone or split")
	settle := flag.Duration("settle", 40*time.Second, "how long to wait before measuring")
	period := flag.Duration("for", 30*time.Second, "how long to measure")
	rounds := flag.Int("rounds", 50, "the number of changes whose delay is measured; 0: none")
	flag.Parse()
	if err := measure(ctx, *program, *settle, *period, *rounds); err != nil {
		fmt.Fprintln(os.Stderr, "idle:", err)
		os.Exit(1)
	}
}

const startTimeout, stopTimeout = 3 * time.Minute, time.Minute

// installation is a process of the product with a data folder of its own.
type installation struct {
	command *exec.Cmd
	ended   chan error
	folder  string
	url     string
	key     string
}

// measure starts the program, and prints all measurements.
func measure(ctx context.Context, program string, settle, period time.Duration, rounds int) (err error) {
	folder, err := os.MkdirTemp("", "ironplane-idle-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	i, err := start(ctx, program, folder)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, i.stop()) }()
	if err := rest(ctx, settle); err != nil {
		return err
	}
	if err := i.measureIdle(ctx, period); err != nil {
		return err
	}
	if rounds == 0 {
		return nil
	}
	return i.measureDelivery(ctx, rounds)
}

// start starts the program, and waits until it serves.
func start(ctx context.Context, program, folder string) (*installation, error) {
	if err := os.Chmod(folder, 0o711); err != nil { // Postgres may run as another user
		return nil, err
	}
	free, err := ports.Free(1)
	if err != nil {
		return nil, err
	}
	keyFile := filepath.Join(folder, "admin-key")
	i := &installation{folder: folder, url: "http://" + free[0], ended: make(chan error, 1)}
	i.command = exec.Command(program)
	i.command.Env = append(os.Environ(), "IRONPLANE_DATA="+folder, "IRONPLANE_LISTEN="+free[0], "IRONPLANE_ADMIN_KEY_FILE="+keyFile,
		"IRONPLANE_ALLOWED_NETWORKS=127.0.0.0/8", "IRONPLANE_OWNER_RATE=100000", "IRONPLANE_OWNER_BURST=100000",
		"IRONPLANE_ADDRESS_RATE=100000", "IRONPLANE_ADDRESS_BURST=100000")
	i.command.Stderr = os.Stderr
	if err := i.command.Start(); err != nil {
		return nil, err
	}
	go func() { i.ended <- i.command.Wait() }()
	for deadline := time.Now().Add(startTimeout); ; {
		if key, err := os.ReadFile(keyFile); err == nil {
			i.key = strings.TrimSpace(string(key))
			if i.call(ctx, "GET", "/auth/key/current", nil, nil) == nil {
				return i, nil
			}
		}
		select {
		case err := <-i.ended:
			return nil, fmt.Errorf("%s ended: %w", program, err)
		case <-time.After(100 * time.Millisecond):
			if time.Now().After(deadline) {
				return nil, errors.Join(fmt.Errorf("%s is not ready after %v", program, startTimeout), i.stop())
			}
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), i.stop())
		}
	}
}

// stop stops the installation, and waits until it has ended.
func (i *installation) stop() error {
	if err := i.command.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case err := <-i.ended:
		return err
	case <-time.After(stopTimeout):
		return errors.Join(fmt.Errorf("the installation has not stopped in %v", stopTimeout), i.command.Process.Kill())
	}
}

// rest waits for a duration, or until ctx ends.
func rest(ctx context.Context, duration time.Duration) error {
	select {
	case <-time.After(duration):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// measureIdle prints the transactions and CPU time of one period, and the statements of a second one. The periods are separate
// because logging statements uses CPU time.
func (i *installation) measureIdle(ctx context.Context, period time.Duration) error {
	url, err := os.ReadFile(filepath.Join(i.folder, "database-url"))
	if err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, string(url))
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	first, err := i.takeSample(ctx, conn)
	if err != nil {
		return err
	}
	if err := rest(ctx, period); err != nil {
		return err
	}
	last, err := i.takeSample(ctx, conn)
	if err != nil {
		return err
	}
	elapsed := last.at.Sub(first.at)
	fmt.Printf(
		"idle for %v: %.1f transactions a second\n",
		elapsed.Round(time.Second),
		float64(last.transactions-first.transactions)/elapsed.Seconds(),
	)
	total := time.Duration(0)
	for name, used := range last.cpu {
		used -= first.cpu[name]
		total += used
		fmt.Printf("  %-12s %5.2f %% of a core\n", name, 100*used.Seconds()/elapsed.Seconds())
	}
	fmt.Printf("  %-12s %5.2f %% of a core\n", "together", 100*total.Seconds()/elapsed.Seconds())
	return i.listStatements(ctx, conn, period)
}

// sample has the counters at a point in time.
type sample struct {
	at           time.Time
	transactions int64
	cpu          map[string]time.Duration
}

// takeSample reads the counters of the database and of all processes.
func (i *installation) takeSample(ctx context.Context, conn *pgx.Conn) (s sample, err error) {
	// Sessions report their statistics with a delay, so the newest transactions may be missing.
	err = conn.QueryRow(ctx, "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()").
		Scan(&s.transactions)
	if err == nil {
		s.cpu, err = cpuTimes(i.command.Process.Pid)
	}
	s.at = time.Now()
	return s, err
}
