package pg

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Locks are held on tables and rows of the service's own schema. Every role of a database can take any advisory lock of
// it; what is in a schema is out of reach for who may not use that.

// lockTable begins a transaction that holds a table, which it makes, until its end. With the mode NOWAIT it fails, where
// another one holds it, with lock_not_available.
func lockTable(ctx context.Context, conn *pgx.Conn, table, mode string) (pgx.Tx, error) {
	if err := create(ctx, conn, "TABLE IF NOT EXISTS "+table+" ()"); err != nil {
		return nil, err
	}
	tx, err := conn.Begin(ctx)
	if err != nil {
		return nil, err
	}
	for _, statement := range []string{"SET LOCAL idle_in_transaction_session_timeout = 0", "LOCK TABLE " + table + " IN EXCLUSIVE MODE " + mode} {
		if _, err := tx.Exec(ctx, statement); err != nil {
			rollback(ctx, tx)
			return nil, fmt.Errorf("lock the table %s: %w", table, err)
		}
	}
	return tx, nil
}

// create makes what may be there already. IF NOT EXISTS alone does not help where two do so at once.
func create(ctx context.Context, conn *pgx.Conn, what string) error {
	_, err := conn.Exec(ctx, "CREATE "+what)
	failed, refused := errors.AsType[*pgconn.PgError](err)
	if refused && slices.Contains([]string{"23505", "42P06", "42P07"}, failed.Code) { // unique_violation, duplicate_schema, duplicate_table
		return nil
	}
	if err != nil {
		return fmt.Errorf("create %s: %w", what, err)
	}
	return nil
}

// lockDatabase is lockTable for the administrator of a database.
func lockDatabase(ctx context.Context, conn *pgx.Conn, name, mode string) (pgx.Tx, error) {
	if err := create(ctx, conn, "SCHEMA IF NOT EXISTS "+extensionSchema); err != nil {
		return nil, err
	}
	return lockTable(ctx, conn, extensionSchema+"."+name, mode)
}

// TryLockDatabase locks a name for as long as the connection, which is the administrator's, stands, and tells whether
// nobody else has.
func TryLockDatabase(ctx context.Context, conn *pgx.Conn, name string) (free bool, err error) {
	_, err = lockDatabase(ctx, conn, name, "NOWAIT")
	if failed, ok := errors.AsType[*pgconn.PgError](err); ok && failed.Code == "55P03" {
		return false, nil
	}
	return err == nil, err
}
