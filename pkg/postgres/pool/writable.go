package pool

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ironplane/ironplane/pkg/postgres/pgerror"
)

// renewal lets one caller at a time test whether new sessions are writable. Its fields are guarded by turn.
type renewal struct {
	turn      chan struct{} // capacity 1: a token for the test
	began     time.Time
	succeeded bool
}

// renewIfWritable ends the pool's sessions if a new session is writable, as after a failover. It reports whether it did. A
// caller that waits for its turn shares the result of a test that began after the caller arrived.
func (p *Pool) renewIfWritable(ctx context.Context) bool {
	arrived := time.Now()
	select {
	case p.renewal.turn <- struct{}{}:
		defer func() { <-p.renewal.turn }()
	case <-ctx.Done():
		return false
	}
	if p.renewal.began.After(arrived) {
		return p.renewal.succeeded
	}
	p.renewal.began = time.Now()
	p.renewal.succeeded = p.probeWritable(ctx) == nil
	if p.renewal.succeeded {
		p.connections.Reset()
	}
	return p.renewal.succeeded
}

// probeWritable fails unless a new session is writable.
func (p *Pool) probeWritable(ctx context.Context) error {
	session, err := p.Connect(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = session.Close(ctx) }()
	return checkWritable(ctx, session)
}

// conflicts maps the counted SQLSTATEs to the values of the label reason.
var conflicts = map[string]string{
	"40001": "serialization",
	"40P01": "deadlock",
	"25P03": "standstill",
	"55P03": "lock-timeout",
	"57014": "statement-timeout",
	"53100": "disk-full",
	"25006": "read-only",
}

// noteFailure counts the failure of a unit of work, and reports whether a retry may succeed.
func (p *Pool) noteFailure(ctx context.Context, err error) (isRetryable bool) {
	refused, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return false
	}
	if reason := conflicts[refused.Code]; reason != "" {
		p.conflicts.WithLabelValues(reason).Inc()
	}
	switch refused.Code {
	case "53100": // disk_full
		p.isDiskFull.Store(true)
	case "25006": // read_only_sql_transaction
		return p.renewIfWritable(ctx)
	}
	return pgerror.IsAborted(err)
}

// ErrReadOnly and ErrDiskFull are the reasons for which a database that answers takes no changes.
var (
	ErrReadOnly = errors.New("the database is read-only")
	ErrDiskFull = errors.New("the database's disk is full")
)

// CheckWritable fails with ErrReadOnly if the database is read-only, and with ErrDiskFull if its disk was full and still is.
func (p *Pool) CheckWritable(ctx context.Context) error {
	err := checkWritable(ctx, p)
	if errors.Is(err, ErrReadOnly) && p.renewIfWritable(ctx) {
		err = nil
	}
	if err != nil || !p.isDiskFull.Load() {
		return err
	}
	if err := p.probeDisk(ctx); err != nil {
		return fmt.Errorf("%w: %w", ErrDiskFull, err)
	}
	p.isDiskFull.Store(false)
	return nil
}

// checkWritable fails with ErrReadOnly if the session is read-only.
func checkWritable(ctx context.Context, session interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}) error {
	var readOnly bool
	if err := session.QueryRow(ctx, "SELECT current_setting('transaction_read_only')::bool").Scan(&readOnly); err != nil {
		return fmt.Errorf("ask whether the database is writable: %w", err)
	}
	if readOnly {
		return ErrReadOnly
	}
	return nil
}

// probeDisk writes a temporary table of about a megabyte, and drops it. It leaves no trace in the write-ahead log, which may
// be on the same disk.
func (p *Pool) probeDisk(ctx context.Context) error {
	return pgx.BeginFunc(ctx, p.connections, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "CREATE TEMPORARY TABLE fill ON COMMIT DROP AS SELECT md5(n::text) FROM generate_series(1, 20000) n")
		return err
	})
}
