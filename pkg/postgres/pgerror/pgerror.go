// Package pgerror translates errors of Postgres into errors for callers, and tells which errors may be retried.
package pgerror

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ironplane/ironplane/pkg/problem"
)

// Explain turns an error of Postgres into the error that the caller gets.
//
// A constraint that a caller can violate is named <table>__<member>, or <table>__<member>__<member> for a nested member. Its
// violation becomes an error of that member. Other violations are bugs, and stay internal errors.
func Explain(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*problem.Error](err); ok {
		return err
	}
	if errors.Is(err, pgx.ErrNoRows) {
		return problem.New(problem.NotFound, "There is no such item.").Because(err)
	}
	if errors.Is(err, ErrBusy) || IsFull(err) {
		return Unavailable("No connection to the database is free right now. Try again.", err)
	}
	if _, unreachable := errors.AsType[*pgconn.ConnectError](err); unreachable { // includes refused passwords
		return Unavailable("The database does not answer right now.", err)
	}
	refused, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		if IsDisconnected(err) || errors.Is(err, context.DeadlineExceeded) || pgconn.Timeout(err) {
			return Unavailable("The database does not answer right now.", err)
		}
		return err
	}
	if pointer := memberPointer(refused.ConstraintName); pointer != "" {
		if explain, ok := violations[refused.Code]; ok {
			var fields problem.Fields
			fields.Add(pointer, explain.code, "%s", explain.message)
			return fields.Err()
		}
	}
	if strings.HasPrefix(refused.Code, "08") || strings.HasPrefix(refused.Code, "53") ||
		strings.HasPrefix(refused.Code, "57") || refused.Code == "55P03" || IsAborted(err) {
		return Unavailable("The database does not answer right now.", err)
	}
	if refused.Code == "25006" { // read_only_sql_transaction: a standby, or set to read-only
		return Unavailable("The database is read-only right now. Try again later.", err)
	}
	return err
}

// ErrBusy is the error of work that waited too long for one of its pool's connections.
var ErrBusy = errors.New("no connection to the database became free in time")

// IsFull reports whether the server, the database or the role has no connection left (too_many_connections).
func IsFull(err error) bool {
	refused, ok := errors.AsType[*pgconn.PgError](err)
	return ok && refused.Code == "53300"
}

// violations maps SQLSTATEs of integrity errors to field errors.
var violations = map[string]struct{ code, message string }{
	"23503": {"not_found", "does not exist"},
	"23505": {"taken", "is taken"},
	"23514": {"invalid", "is not allowed"},
	"23P01": {"overlaps", "overlaps with an existing item"},
}

// Unavailable returns the 503 error for a database that cannot be used now. Callers may retry after a second.
func Unavailable(detail string, cause error) error {
	f := problem.New(problem.Unavailable, "%s", detail).Because(cause)
	f.RetryAfter = time.Second
	return f
}

// IsDisconnected reports whether an established connection ended, as it does when the database restarts.
func IsDisconnected(err error) bool {
	if _, never := errors.AsType[*pgconn.ConnectError](err); never {
		return false
	}
	if refused, ok := errors.AsType[*pgconn.PgError](err); ok {
		return strings.HasPrefix(refused.Code, "57P")
	}
	_, broken := errors.AsType[*net.OpError](err)
	return broken || errors.Is(err, pgconn.ErrConnClosed) || errors.Is(err, io.ErrUnexpectedEOF)
}

// memberPointer returns the JSON pointer that a constraint's name encodes, or "" if it encodes none.
func memberPointer(constraint string) string {
	_, path, ok := strings.Cut(constraint, "__")
	if !ok {
		return ""
	}
	return "/" + strings.ReplaceAll(path, "__", "/")
}

// ReferencingTable returns the table whose rows refer to a row that could not be deleted. ok is false for other errors.
func ReferencingTable(err error) (table string, ok bool) {
	refused, is := errors.AsType[*pgconn.PgError](err)
	if !is || refused.Code != "23503" && refused.Code != "23001" {
		return "", false
	}
	return refused.TableName, true
}

// IsAborted reports whether Postgres ended the transaction because of others: a deadlock, a serialization failure, or a
// session that was idle for too long.
func IsAborted(err error) bool {
	failed, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (failed.Code == "40001" || failed.Code == "40P01" || failed.Code == "25P03")
}
