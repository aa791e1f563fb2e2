package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/ironplane/ironplane/services/network"
)

// pgbench runs the program pgbench with the same statements as the service. It shows how fast PostgreSQL alone is.
type pgbench struct {
	program, script   string
	database          *database
	folder            string // for temporary files
	connections, rows int
}

// readScript has the same statement as the service.
const readScript = `\set id random(1, :rows)
SELECT version, id, name, billing_id, speed FROM port_speed WHERE id = :id;
`

// sampled is the share of reads whose latency pgbench logs. Logging slows it down a little.
const sampled = "0.1"

// connectTime is added to the duration of a round, since pgbench's clock includes connecting. If pgbench reads nothing because
// the machine is busy, the round is repeated with twice that time, up to maxConnectTime.
const (
	connectTime    = time.Second
	maxConnectTime = 16 * time.Second
)

// read runs pgbench for a duration, and again with more time if it read nothing.
func (p pgbench) read(ctx context.Context, duration time.Duration) (round, error) {
	for connecting := connectTime; ; connecting *= 2 {
		r, err := p.run(ctx, duration+connecting)
		if !errors.Is(err, errNoReads) || connecting == maxConnectTime {
			return r, err
		}
	}
}

// run runs pgbench once, and reads its summary and logs.
func (p pgbench) run(ctx context.Context, duration time.Duration) (r round, err error) {
	folder, err := os.MkdirTemp(p.folder, "pgbench-")
	if err != nil {
		return r, fmt.Errorf("create the folder of pgbench: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	script := filepath.Join(folder, "script.sql")
	if err := os.WriteFile(script, []byte(p.script), 0o600); err != nil {
		return r, fmt.Errorf("write the script of pgbench: %w", err)
	}
	environment, err := libpq(p.database.urls[network.Name])
	if err != nil {
		return r, err
	}
	ctx, cancel := context.WithTimeout(ctx, duration+time.Minute)
	defer cancel()
	threads := min(p.connections, runtime.NumCPU())
	cmd := exec.CommandContext(ctx, p.program, "--no-vacuum", "--protocol=prepared", "--file="+script,
		"--define=rows="+strconv.Itoa(p.rows), "--client="+strconv.Itoa(p.connections), "--jobs="+strconv.Itoa(threads),
		"--time="+strconv.Itoa(int(duration.Seconds())), "--log", "--log-prefix="+filepath.Join(folder, "log"), "--sampling-rate="+sampled)
	cmd.Env, cmd.Dir = environment, folder
	var output, complained bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &complained
	if err := cmd.Run(); ctx.Err() != nil {
		return r, fmt.Errorf("pgbench: %w", ctx.Err())
	} else if err != nil {
		return r, fmt.Errorf("pgbench: %w: %s", err, strings.TrimSpace(complained.String()))
	}
	if r.reads, r.rate, err = parseSummary(output.String()); err != nil {
		return r, err
	}
	r.latency, err = readLatencies(filepath.Join(folder, "log.*"))
	return r, err
}

// libpq returns the environment variables with which pgbench connects. Arguments would show the password to other users, and
// the URL has require_auth, which libpq before version 16 does not support.
func libpq(serviceURL string) ([]string, error) {
	u, err := url.Parse(serviceURL)
	if err != nil {
		return nil, errors.New("the service's URL is not a URL") // err would show the password
	}
	password, _ := u.User.Password()
	return []string{"LC_ALL=C", "PATH=" + os.Getenv("PATH"),
		"PGHOST=" + u.Hostname(), "PGPORT=" + u.Port(), "PGDATABASE=" + strings.TrimPrefix(u.Path, "/"), "PGSSLMODE=disable",
		"PGUSER=" + u.User.Username(), "PGPASSWORD=" + password}, nil
}

var (
	processed = regexp.MustCompile(`transactions actually processed: ([0-9]+)`)
	// PostgreSQL 13 and earlier use another text, and print another rate before it.
	tps = regexp.MustCompile(`tps = ([0-9.]+) \((?:without initial connection time|excluding connections establishing)\)`)
)

var errNoReads = errors.New("pgbench read nothing")

// parseSummary parses pgbench's output. It returns errNoReads if pgbench had no time to read.
func parseSummary(output string) (reads int64, rate float64, err error) {
	count, perSecond := processed.FindStringSubmatch(output), tps.FindStringSubmatch(output)
	if count != nil && count[1] == "0" {
		return 0, 0, errNoReads
	}
	if count == nil || perSecond == nil {
		return 0, 0, fmt.Errorf("pgbench printed no result: %s", output)
	}
	if reads, err = strconv.ParseInt(count[1], 10, 64); err != nil {
		return 0, 0, fmt.Errorf("parse pgbench's result: %w", err)
	}
	if rate, err = strconv.ParseFloat(perSecond[1], 64); err != nil {
		return 0, 0, fmt.Errorf("parse pgbench's result: %w", err)
	}
	return reads, rate, nil
}

// readLatencies reads the logs of pgbench's threads. The third column of a line is a transaction's duration in microseconds.
func readLatencies(pattern string) (*hdrhistogram.Histogram, error) {
	paths, err := filepath.Glob(pattern)
	if err != nil {
		return nil, err
	}
	all := newLatency()
	for _, path := range paths {
		if err := addLatencies(all, path); err != nil {
			return nil, fmt.Errorf("read the log of pgbench: %w", err)
		}
	}
	if all.TotalCount() == 0 {
		return nil, errors.New("pgbench logged nothing")
	}
	return all, nil
}

func addLatencies(all *hdrhistogram.Histogram, path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		columns := strings.Fields(lines.Text())
		if len(columns) < 3 {
			return fmt.Errorf("cannot parse the line %q", lines.Text())
		}
		elapsed, err := strconv.ParseInt(columns[2], 10, 64)
		if err != nil {
			return err
		}
		if err := all.RecordValue(elapsed); err != nil {
			return err
		}
	}
	return lines.Err()
}
