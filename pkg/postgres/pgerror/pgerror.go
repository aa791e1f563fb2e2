// Package pgerror says what the errors of Postgres mean: to a caller, and to who asks it again.
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

// Explain turns what Postgres refused into the fault that the caller gets.
//
// A constraint that a caller can run into is named <table>__<member>, and <table>__<member>__<member> for a nested
// one, so its name says which member of the body is at fault. Any other violation is a mistake of ours and stays an
// Internal fault.
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
	if _, unreachable := errors.AsType[*pgconn.ConnectError](err); unreachable { // also where it refused the password
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
	if refused.Code == "25006" { // it is a standby, or was made read-only
		return Unavailable("The database takes no changes right now.", err)
	}
	return err
}

// violations are integrity errors by SQLSTATE.
var violations = map[string]struct{ code, message string }{
	"23503": {"not_found", "does not exist"},
	"23505": {"taken", "is taken"},
	"23514": {"invalid", "is not allowed"},
	"23P01": {"overlaps", "overlaps with what is there already"},
}

// Unavailable is the fault of a database that cannot be used now.
func Unavailable(detail string, cause error) error {
	f := problem.New(problem.Unavailable, "%s", detail).Because(cause)
	f.RetryAfter = time.Second
	return f
}

// IsDisconnected tells whether err is the end of a connection that stood, as when the database is started again.
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

// memberPointer is the JSON pointer that a constraint is named for, or nothing.
func memberPointer(constraint string) string {
	_, path, ok := strings.Cut(constraint, "__")
	if !ok {
		return ""
	}
	return "/" + strings.ReplaceAll(path, "__", "/")
}

// ReferencingTable tells whether err is the refusal to delete something that a row of another table refers to, and which
// table that is.
func ReferencingTable(err error) (table string, ok bool) {
	refused, is := errors.AsType[*pgconn.PgError](err)
	if !is || refused.Code != "23503" && refused.Code != "23001" {
		return "", false
	}
	return refused.TableName, true
}

// IsAborted tells whether err is the end of a transaction for the sake of others: a deadlock, a serialization, or it stood still for too
// long.
func IsAborted(err error) bool {
	failed, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (failed.Code == "40001" || failed.Code == "40P01" || failed.Code == "25P03")
}
