// Package provision makes, as the administrator of a database, what services need in it before they use it: the extensions,
// and a role and a schema for each.
package provision

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ironplane/ironplane/pkg/postgres/migrate"
	"github.com/ironplane/ironplane/pkg/postgres/pool"
	"github.com/ironplane/ironplane/pkg/secret"
)

// Statements make a database and the role that administers it, both of this name, for who may make them. They hold no password.
func Statements(name string, password secret.String) string {
	quoted := pgx.Identifier{name}.Sanitize()
	return fmt.Sprintf(
		"CREATE ROLE %[1]s LOGIN CREATEROLE PASSWORD '%[2]s';\nCREATE DATABASE %[1]s OWNER %[1]s;\n",
		quoted,
		scramVerifier(password),
	)
}

// Extensions live in a schema of their own, which every service may use.
const extensionSchema = "ext"

var extensions = []string{"pg_trgm", "btree_gist"}

// Database makes what the services need in a database and is not there: the extensions, and for
// each service a role <rolePrefix><service> with its password, which owns the schema <service> and may use no other. It
// may be run again at any time. Where the administrator may not make something, the error says what is missing.
func Database(ctx context.Context, adminURL, rolePrefix string, passwords map[string]secret.String) error {
	conn, err := pool.Connect(ctx, adminURL)
	if err != nil {
		return fmt.Errorf("connect as the database's administrator: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	tx, err := lockDatabase(ctx, conn, "bootstrap", "")
	if err != nil {
		return fmt.Errorf("bootstrap: %w", err)
	}
	if err := bootstrap(ctx, tx, adminURL, rolePrefix, passwords); err != nil {
		return fmt.Errorf("bootstrap: %w", err)
	}
	if err := tx.Commit(ctx); err != nil {
		return fmt.Errorf("bootstrap: %w", err)
	}
	return nil
}

// Check fails where Database would, and says what is missing. It changes nothing.
func Check(ctx context.Context, adminURL, rolePrefix string, passwords map[string]secret.String) error {
	conn, err := pool.Connect(ctx, adminURL)
	if err != nil {
		return fmt.Errorf("connect as the database's administrator: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	tx, err := conn.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(context.WithoutCancel(ctx)) // all of it
	var lacks bool
	if err := tx.QueryRow(ctx, "SELECT to_regnamespace($1) IS NULL", extensionSchema).Scan(&lacks); err != nil {
		return err
	}
	if lacks {
		if _, err := tx.Exec(ctx, "CREATE SCHEMA "+extensionSchema); isDenied(err) {
			return missingError(err, []step{schemaStep(conn)})
		} else if err != nil {
			return err
		}
	}
	return bootstrap(ctx, tx, adminURL, rolePrefix, passwords)
}

func schemaStep(conn *pgx.Conn) step {
	return step{statement: "CREATE SCHEMA " + extensionSchema + " AUTHORIZATION " + pgx.Identifier{conn.Config().User}.Sanitize()}
}

// step makes something, where a query tells that it is not there.
type step struct {
	missingQuery string
	args         []any
	statement    string
	redacted     string // in place of a statement that holds a secret
}

// bootstrap makes what is missing. Where the administrator may not make something, the error says what is left.
func bootstrap(ctx context.Context, tx pgx.Tx, adminURL, rolePrefix string, passwords map[string]secret.String) error {
	steps := []step{{
		missingQuery: "SELECT NOT has_schema_privilege('public', $1, 'USAGE')",
		args:         []any{extensionSchema},
		statement:    "GRANT USAGE ON SCHEMA " + extensionSchema + " TO PUBLIC",
	}}
	for _, name := range extensions {
		steps = append(steps, step{
			missingQuery: "SELECT NOT EXISTS (SELECT FROM pg_extension WHERE extname = $1)",
			args:         []any{name},
			statement:    "CREATE EXTENSION " + name + " SCHEMA " + extensionSchema,
		})
	}
	for _, service := range slices.Sorted(maps.Keys(passwords)) {
		works, err := canLogIn(ctx, adminURL, rolePrefix, service, passwords[service])
		if err != nil {
			return err
		}
		steps = append(steps, serviceSteps(tx.Conn().Config().Database, rolePrefix+service, service, passwords[service], works)...)
	}
	var missing []step
	for _, s := range steps {
		var lacks bool
		if err := tx.QueryRow(ctx, s.missingQuery, s.args...).Scan(&lacks); err != nil {
			return err
		}
		if lacks {
			missing = append(missing, s)
		}
	}
	for i, s := range missing {
		if _, err := tx.Exec(ctx, s.statement); isDenied(err) {
			return missingError(err, missing[i:])
		} else if err != nil {
			return err
		}
	}
	return checkExtensions(ctx, tx)
}

// serviceSteps make a service's role, which logs in by this password already or gets it, and its schema.
func serviceSteps(database, name, service string, password secret.String, works bool) []step {
	role := pgx.Identifier{name}.Sanitize()
	return []step{
		{
			missingQuery: "SELECT NOT EXISTS (SELECT FROM pg_roles WHERE rolname = $1)",
			args:         []any{name},
			statement:    "CREATE ROLE " + role + " LOGIN",
		},
		{
			missingQuery: "SELECT NOT $1::boolean",
			args:         []any{works},
			statement:    "ALTER ROLE " + role + " PASSWORD '" + scramVerifier(password) + "'",
			redacted:     "ALTER ROLE " + role + " PASSWORD '…'",
		},
		{
			missingQuery: "SELECT NOT EXISTS (SELECT FROM pg_roles " +
				"WHERE rolname = $1 AND has_database_privilege(oid, current_database(), 'CONNECT'))",
			args:      []any{name},
			statement: "GRANT CONNECT ON DATABASE " + pgx.Identifier{database}.Sanitize() + " TO " + role,
		},
		{ // an administrator who is no superuser needs it for the next one
			missingQuery: "SELECT NOT EXISTS (SELECT FROM pg_roles WHERE rolname = $1 AND pg_has_role(oid, 'MEMBER'))",
			args:         []any{name},
			statement:    "GRANT " + role + " TO CURRENT_USER",
		},
		{
			missingQuery: "SELECT to_regnamespace(quote_ident($1)) IS NULL",
			args:         []any{service},
			statement:    "CREATE SCHEMA " + pgx.Identifier{service}.Sanitize() + " AUTHORIZATION " + role,
		},
	}
}

func isDenied(err error) bool {
	failed, ok := errors.AsType[*pgconn.PgError](err)
	return ok && failed.Code == "42501" // insufficient_privilege
}

// missingError says what somebody has to do who may.
func missingError(err error, missing []step) error {
	var statements strings.Builder
	for _, s := range missing {
		fmt.Fprintf(&statements, "\n  %s;", cmp.Or(s.redacted, s.statement))
	}
	return fmt.Errorf(
		"%w: the role of the database URL may not make what is missing. Let an administrator of the database do that, and start again:%s",
		err,
		&statements,
	)
}

// canLogIn tells whether a service's role and its password are there.
func canLogIn(ctx context.Context, adminURL, rolePrefix, service string, password secret.String) (bool, error) {
	at, err := ServiceURL(adminURL, rolePrefix, service, password)
	if err != nil {
		return false, err
	}
	conn, err := pool.Connect(ctx, at.Reveal())
	if failed, ok := errors.AsType[*pgconn.PgError](
		err,
	); ok &&
		(failed.Code == "28P01" || failed.Code == "28000") { // invalid password; no such role
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("try the password of %s's role: %w", service, err)
	}
	return true, conn.Close(ctx)
}

// checkExtensions refuses extensions that somebody put elsewhere before, where no service finds them.
func checkExtensions(ctx context.Context, tx pgx.Tx) error {
	var name, elsewhere string
	err := tx.QueryRow(ctx, "SELECT extname, extnamespace::regnamespace::text FROM pg_extension "+
		"WHERE extname = ANY($1) AND extnamespace <> $2::regnamespace LIMIT 1",
		extensions, extensionSchema).
		Scan(&name, &elsewhere)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	return fmt.Errorf(
		"the extension %s is in the schema %s; move it: ALTER EXTENSION %s SET SCHEMA %s",
		name,
		elsewhere,
		name,
		extensionSchema,
	)
}

// scramVerifier is what Postgres stores of a password (SCRAM-SHA-256), so that the password itself is in no statement,
// which the server would log with an error.
func scramVerifier(password secret.String) string {
	const iterations = 4096
	salt := make([]byte, 16)
	rand.Read(salt)
	salted, err := pbkdf2.Key(sha256.New, password.Reveal(), salt, iterations, sha256.Size)
	if err != nil {
		panic(err) // only for lengths that are not these
	}
	sign := func(message string) []byte {
		mac := hmac.New(sha256.New, salted)
		mac.Write([]byte(message))
		return mac.Sum(nil)
	}
	stored := sha256.Sum256(sign("Client Key"))
	text := base64.StdEncoding.EncodeToString
	return fmt.Sprintf("SCRAM-SHA-256$%d:%s$%s:%s", iterations, text(salt), text(stored[:]), text(sign("Server Key")))
}

// ServiceURL is the address by which a service reaches its schema, given its administrator's.
func ServiceURL(adminURL, rolePrefix, service string, password secret.String) (secret.String, error) {
	u, err := url.Parse(adminURL)
	if err != nil {
		return secret.String{}, errors.New("the database URL is not a URL") // err would show the password
	}
	u.User = url.UserPassword(rolePrefix+service, password.Reveal())
	q := u.Query()
	for _, name := range []string{"user", "password"} { // which would win
		q.Del(name)
	}
	q.Set("search_path", service+","+extensionSchema)
	u.RawQuery = q.Encode()
	return secret.New(u.String()), nil
}

// lockDatabase is schema.LockTable for the administrator of a database.
func lockDatabase(ctx context.Context, conn *pgx.Conn, name, mode string) (pgx.Tx, error) {
	const lacks = "SELECT to_regnamespace($1) IS NULL"
	if err := migrate.Create(ctx, conn, lacks, extensionSchema, "SCHEMA "+extensionSchema); isDenied(err) {
		return nil, missingError(err, []step{schemaStep(conn)})
	} else if err != nil {
		return nil, err
	}
	return migrate.LockTable(ctx, conn, extensionSchema+"."+name, mode)
}

// TryLock locks a name for as long as the connection, which is the administrator's, stands, and tells whether
// nobody else has.
func TryLock(ctx context.Context, conn *pgx.Conn, name string) (free bool, err error) {
	_, err = lockDatabase(ctx, conn, name, "NOWAIT")
	if failed, ok := errors.AsType[*pgconn.PgError](err); ok && failed.Code == "55P03" {
		return false, nil
	}
	return err == nil, err
}
