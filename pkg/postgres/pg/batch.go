package pg

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ironplane/ironplane/pkg/postgres/pgerror"
)

// command is a statement with its arguments.
type command struct {
	sql  string
	args []any
}

// The statements that control a transaction.
const (
	beginSQL         = "BEGIN"
	commitSQL        = "COMMIT"
	savepointSQL     = "SAVEPOINT attempt"
	endSavepointSQL  = "RELEASE SAVEPOINT attempt"
	undoSavepointSQL = "ROLLBACK TO SAVEPOINT attempt"
)

// sendAhead adds a statement that is sent together with the next one, which saves a round trip. If it fails, so does the next one.
func (tx *Tx) sendAhead(sql string) { tx.ahead = append(tx.ahead, command{sql: sql}) }

// Savepoint runs fn and returns its error. If fn fails, its changes are undone, and the transaction remains usable.
func (tx *Tx) Savepoint(ctx context.Context, fn func() error) error {
	tx.sendAhead(savepointSQL)
	failed := fn()
	if last := len(tx.ahead) - 1; last >= 0 && tx.ahead[last].sql == savepointSQL { // fn has sent nothing
		tx.ahead = tx.ahead[:last]
		return failed
	}
	if failed == nil {
		tx.sendAhead(endSavepointSQL)
		return nil
	}
	if _, err := tx.Exec(ctx, undoSavepointSQL); err != nil { // not ahead: nothing can be prepared in a transaction that has failed
		return fmt.Errorf("undo to the savepoint: %w", err)
	}
	tx.sendAhead(endSavepointSQL) // otherwise a savepoint around it would be undone only to this one
	return failed
}

// Exec runs a statement that changes something. There is no Exec outside of a unit of work.
func (tx *Tx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if len(tx.ahead) == 0 {
		return tx.conn.Exec(ctx, sql, args...)
	}
	results := tx.send(ctx, command{sql, args})
	tag, err := results.Exec()
	if closeErr := results.Close(); err == nil {
		err = closeErr
	}
	return tag, err
}

// Query runs a statement in the transaction.
func (tx *Tx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if len(tx.ahead) == 0 {
		return tx.conn.Query(ctx, sql, args...)
	}
	results := tx.send(ctx, command{sql, args})
	found, err := results.Query()
	if err != nil {
		_ = results.Close() // it returns the same error
	}
	return &rows{Rows: found, batch: results}, err
}

// QueryRow runs a statement of one row in the transaction.
func (tx *Tx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if len(tx.ahead) == 0 {
		return tx.conn.QueryRow(ctx, sql, args...)
	}
	found, _ := tx.Query(ctx, sql, args...) // found has the error
	return row{found}
}

// send sends a statement behind those that wait for it. The results are those of the statement. If the connection has ended before
// the transaction began, it drops all pooled connections, which are as old, and tries once more.
func (tx *Tx) send(ctx context.Context, last command) pgx.BatchResults {
	commands := append(tx.ahead, last)
	tx.ahead = nil
	results, err := tx.sendBatch(ctx, commands)
	if commands[0].sql != beginSQL || last.sql == commitSQL || !pgerror.IsDisconnected(err) {
		return results
	}
	tx.db.pool.Reset()
	conn, acquireErr := tx.db.connect(ctx)
	if acquireErr != nil {
		return results
	}
	_ = results.Close()
	tx.conn.Release()
	tx.conn = conn
	results, _ = tx.sendBatch(ctx, commands)
	return results
}

// sendBatch sends statements, and reads the results of all but the last one. An error is also that of the last one's result.
func (tx *Tx) sendBatch(ctx context.Context, commands []command) (results pgx.BatchResults, err error) {
	var batch pgx.Batch
	for _, c := range commands {
		batch.Queue(c.sql, c.args...)
	}
	results = tx.conn.SendBatch(ctx, &batch)
	for range len(commands) - 1 {
		if _, err = results.Exec(); err != nil {
			break
		}
	}
	return results, err
}

// rows are the rows of a batch's last statement. The batch ends with them.
type rows struct {
	pgx.Rows
	batch pgx.BatchResults
	err   error // of the batch
}

func (r *rows) Next() bool {
	if r.Rows.Next() {
		return true
	}
	r.Close()
	return false
}

func (r *rows) Close() {
	r.Rows.Close()
	r.err = r.batch.Close()
}

func (r *rows) Err() error {
	if err := r.Rows.Err(); err != nil {
		return err
	}
	return r.err
}
