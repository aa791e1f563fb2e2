package pool

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ironplane/ironplane/pkg/pgerror"
)

// renewPause is how long sessions are kept that take no changes, so that a read-only database is not dialed all the time.
const renewPause = time.Second

// renew ends the pool's sessions, unless it did a moment ago: those that begin now may take changes, as after a
// failover.
func (p *Pool) renew() bool {
	last, now := p.renewed.Load(), time.Now().UnixNano()
	if now-last < int64(renewPause) || !p.renewed.CompareAndSwap(last, now) {
		return false
	}
	p.connections.Reset()
	return true
}

// conflicts are the refusals that are counted, by their SQLSTATE.
var conflicts = map[string]string{
	"40001": "serialization", "40P01": "deadlock", "55P03": "lock timeout", "57014": "statement timeout", "53100": "disk full", "25006": "read only",
}

// refused hears why units of work failed, and tells whether one may do better when it is run again.
func (p *Pool) refused(err error) (again bool) {
	refused, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return false
	}
	if reason := conflicts[refused.Code]; reason != "" {
		p.conflicts.WithLabelValues(reason).Inc()
	}
	switch refused.Code {
	case "53100": // disk_full
		p.full.Store(true)
	case "25006": // read_only_sql_transaction
		return p.renew()
	}
	return pgerror.Aborted(err)
}

// Writable fails where the database takes no changes: it is read-only, or its disk was full and is.
func (p *Pool) Writable(ctx context.Context) error {
	refuses, err := p.readOnly(ctx)
	if err == nil && refuses && p.renew() {
		refuses, err = p.readOnly(ctx)
	}
	switch {
	case err != nil:
		return err
	case refuses:
		return errors.New("the database is read-only")
	case !p.full.Load():
		return nil
	}
	if err := p.fill(ctx); err != nil {
		return fmt.Errorf("the database's disk is full: %w", err)
	}
	p.full.Store(false)
	return nil
}

func (p *Pool) readOnly(ctx context.Context) (is bool, err error) {
	err = p.QueryRow(ctx, "SELECT current_setting('transaction_read_only')::bool").Scan(&is)
	return is, err
}

// fill takes room on the disk, for a moment and without a trace in the write-ahead log, which may be on the same disk.
func (p *Pool) fill(ctx context.Context) error {
	return pgx.BeginFunc(ctx, p.connections, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "CREATE TEMPORARY TABLE fill ON COMMIT DROP AS SELECT md5(n::text) FROM generate_series(1, 20000) n")
		return err
	})
}
