package pool

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
)

// QueryMode is how statements are sent to Postgres.
type QueryMode string

const (
	// CacheStatement prepares each statement once in a session. A pooler must keep prepared statements, as PgBouncer does
	// from 1.21 on with max_prepared_statements.
	CacheStatement QueryMode = "cache_statement"
	// CacheDescribe remembers the types of each statement, and sends its text each time. It works with any pooler.
	CacheDescribe QueryMode = "cache_describe"
)

// UnmarshalText parses one of the modes.
func (m *QueryMode) UnmarshalText(text []byte) error {
	if *m = QueryMode(text); *m != CacheStatement && *m != CacheDescribe {
		return fmt.Errorf("it must be %s or %s", CacheStatement, CacheDescribe)
	}
	return nil
}

func (m QueryMode) mode() pgx.QueryExecMode {
	if m == CacheDescribe {
		return pgx.QueryExecModeCacheDescribe
	}
	return pgx.QueryExecModeCacheStatement
}

// serverTimeouts are enforced by the server, in case a deadline in this process fails to. In milliseconds.
var serverTimeouts = map[string]string{
	"statement_timeout": "60000",
	"lock_timeout":      "10000",
	// A session that waits for the locks of a stalled process gets them before its lock_timeout.
	"idle_in_transaction_session_timeout": "5000",
}

// searchPath is the parameter that says in which schemas names are looked up.
const searchPath = "search_path"

// RoleSettings returns the parameters of Postgres that the role of a schema needs, with those that its service adds. They
// belong to the role, because poolers refuse parameters at the start of a session.
func RoleSettings(schema string, added map[string]string) map[string]string {
	all := maps.Clone(serverTimeouts)
	maps.Copy(all, added)
	all[searchPath] = pgx.Identifier{schema}.Sanitize() + ", ext"
	return all
}

// SetStatement returns the statement that gives a role, quoted or CURRENT_USER, a setting.
func SetStatement(role, name, value string) string {
	if name != searchPath { // the elements of a search_path are quoted each
		value = "'" + strings.ReplaceAll(value, "'", "''") + "'"
	}
	return "ALTER ROLE " + role + " SET " + name + " = " + value
}

// CheckSession fails if the role's sessions lack a setting of RoleSettings. Another timeout passes, but not none. Without a
// schema any search_path passes.
func CheckSession(ctx context.Context, q pg.Querier, schema string, added map[string]string) error {
	wanted := RoleSettings(schema, added)
	var role, current string
	is := map[string]string{}
	err := q.QueryRow(ctx, `
		SELECT current_user, coalesce(current_schema(), ''), (SELECT jsonb_object_agg(name, setting) FROM pg_settings WHERE name = ANY($1))`,
		slices.Collect(maps.Keys(wanted))).Scan(&role, &current, &is)
	if err != nil {
		return fmt.Errorf("read the settings of the role: %w", err)
	}
	var lacks, statements []string
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		_, isTimeout := serverTimeouts[name]
		if name == searchPath && (schema == "" || current == schema) || isTimeout && is[name] != "0" || is[name] == wanted[name] {
			continue
		}
		lacks = append(lacks, fmt.Sprintf("%s is %q", name, is[name]))
		statements = append(statements, "\n  "+SetStatement(pgx.Identifier{role}.Sanitize(), name, wanted[name])+";")
	}
	if len(lacks) == 0 {
		return nil
	}
	return fmt.Errorf("sessions of the role %s lack settings that setup bootstrap gives it: %s. Run setup bootstrap, or these statements. "+
		"Then let a pooler in between reconnect:%s", role, strings.Join(lacks, ", "), strings.Join(statements, ""))
}

// EnsureSession gives the owner of a schema, which must be the role of the connection, the settings of RoleSettings that it
// lacks. A release that adds a setting needs no further step this way. It leaves other roles and the search_path alone: the
// connection has found the schema already.
func EnsureSession(ctx context.Context, conn *pgx.Conn, schema string, added map[string]string) error {
	var owns bool
	var has []string
	err := conn.QueryRow(ctx, `
		SELECT NOT rolsuper AND EXISTS (SELECT FROM pg_namespace WHERE nspname = $1 AND nspowner = r.oid),
			ARRAY(SELECT split_part(s, '=', 1) FROM unnest(rolconfig) s) FROM pg_roles r WHERE rolname = current_user`,
		schema).Scan(&owns, &has)
	if err != nil || !owns {
		return err
	}
	settings := RoleSettings(schema, added)
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		if name == searchPath || slices.Contains(has, name) {
			continue
		}
		if err := SetOwn(ctx, conn, name, settings[name]); err != nil {
			return err
		}
	}
	return nil
}

// maxAttempts bounds how often a setting is tried while other sessions change the role.
const maxAttempts = 20

// SetOwn gives the connection's role a setting for its later sessions. Several sessions may do that at once.
func SetOwn(ctx context.Context, conn *pgx.Conn, name, value string) error {
	for attempt := 1; ; attempt++ {
		_, err := conn.Exec(ctx, SetStatement("CURRENT_USER", name, value))
		if err == nil {
			return nil
		}
		refused, ok := errors.AsType[*pgconn.PgError](err)
		if isConflict := ok && (refused.Code == "XX000" || refused.Code == "23505"); !isConflict || attempt == maxAttempts {
			return fmt.Errorf("set %s for the role: %w", name, err)
		}
	}
}

// explainRefusedParameter adds what to do to the error of a pooler that refuses a parameter at the start of a session.
func explainRefusedParameter(err error, do string) error {
	refused, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || !strings.Contains(refused.Message, "unsupported startup parameter") {
		return err
	}
	return fmt.Errorf("%w: a pooler is in between, which refuses parameters: %s", err, do)
}
