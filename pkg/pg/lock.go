package pg

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Locks are held on rows and tables of the service's own schema, which no other role may use. An advisory lock could be
// taken by every role of the database.

// Lock holds others off until the transaction ends who lock the same name and number: of several numbers, the lowest
// first. Each number that was ever locked keeps a row.
func (tx *Tx) Lock(ctx context.Context, name string, numbers ...int64) error {
	slices.Sort(numbers)
	numbers = slices.Compact(numbers)
	const lock = "SELECT FROM lock WHERE name = $1 AND number = ANY ($2) ORDER BY number FOR UPDATE"
	locked, err := tx.Exec(ctx, lock, name, numbers)
	if err == nil && locked.RowsAffected() < int64(len(numbers)) { // who is first waits, if for another one, at the primary key
		_, err = tx.Exec(ctx, "INSERT INTO lock SELECT $1, unnest($2::bigint[]) ON CONFLICT DO NOTHING", name, numbers)
		if err == nil {
			_, err = tx.Exec(ctx, lock, name, numbers)
		}
	}
	if err != nil {
		return fmt.Errorf("lock %s %v: %w", name, numbers, err)
	}
	return nil
}

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
