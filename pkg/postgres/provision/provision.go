// Package provision prepares a database for the services, as its administrator: the extensions, and a role and a schema for
// each service.
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
	"github.com/ironplane/ironplane/pkg/postgres/pgerror"
	"github.com/ironplane/ironplane/pkg/postgres/pool"
	"github.com/ironplane/ironplane/pkg/secret"
)

// Statements returns the SQL that creates a database and the role that administers it, both with this name. It contains no
// plain password.
func Statements(name string, password secret.String) string {
	quoted := pgx.Identifier{name}.Sanitize()
	return fmt.Sprintf(
		"CREATE ROLE %[1]s LOGIN CREATEROLE PASSWORD '%[2]s';\nCREATE DATABASE %[1]s OWNER %[1]s;\n",
		quoted,
		scramVerifier(password),
	)
}

// extensionSchema is the schema of the extensions, which every service may use.
const extensionSchema = "ext"

var extensions = []string{"pg_trgm", "btree_gist"}

// Role is how a service logs in.
type Role struct {
	Password secret.String
	// Settings are the parameters of Postgres for its sessions, as pool.RoleSettings returns them. A role keeps a setting
	// that it has.
	Settings map[string]string
	// Connections is how many connections all processes with the role may have at once; 0: the role's limit stays.
	Connections int
}

// Database creates what the services need and the database lacks: the extensions, and for each service a role
// <rolePrefix><service>. That role owns the schema <service> and may use no other. Database can be run again at any time.
// If the administrator may not create something, the error lists the statements to run.
func Database(ctx context.Context, adminURL, rolePrefix string, roles map[string]Role) error {
	conn, err := pool.Connect(ctx, adminURL)
	if err != nil {
		return fmt.Errorf("connect as the database's administrator: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	tx, err := lockDatabase(ctx, conn, "bootstrap", "")
	if err != nil {
		return fmt.Errorf("bootstrap: %w", err)
	}
	if err := bootstrap(ctx, tx, adminURL, rolePrefix, roles); err != nil {
		return fmt.Errorf("bootstrap: %w", err)
	}
	if err := tx.Commit(ctx); err != nil {
		return fmt.Errorf("bootstrap: %w", err)
	}
	for _, service := range slices.Sorted(maps.Keys(roles)) {
		if err := ensureSettings(ctx, conn, adminURL, rolePrefix, service, roles[service]); err != nil {
			return fmt.Errorf("bootstrap: the settings of %s's role: %w", service, err)
		}
	}
	return nil
}

// ensureSettings gives a service's role the settings that it lacks. The role does that itself: it may always, and the
// administrator of the database may be none of its roles.
func ensureSettings(ctx context.Context, admin *pgx.Conn, adminURL, rolePrefix, service string, role Role) error {
	var missing []string
	err := admin.QueryRow(ctx, `
		SELECT coalesce(array_agg(name), '{}') FROM unnest($2::text[]) name WHERE NOT EXISTS (
			SELECT FROM pg_roles, unnest(rolconfig) has WHERE rolname = $1 AND starts_with(has, name || '='))`,
		rolePrefix+service, slices.Sorted(maps.Keys(role.Settings))).Scan(&missing)
	if err != nil || len(missing) == 0 {
		return err
	}
	at, err := ServiceURL(adminURL, rolePrefix, service, role.Password)
	if err != nil {
		return err
	}
	conn, err := pool.Connect(ctx, at.Reveal())
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for _, name := range missing {
		if err := pool.SetOwn(ctx, conn, name, role.Settings[name]); err != nil {
			return err
		}
	}
	return nil
}

// Check fails if Database would fail, with the same error. It changes nothing.
func Check(ctx context.Context, adminURL, rolePrefix string, roles map[string]Role) error {
	conn, err := pool.Connect(ctx, adminURL)
	if err != nil {
		return fmt.Errorf("connect as the database's administrator: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	tx, err := conn.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(context.WithoutCancel(ctx)) // undo everything
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
	return bootstrap(ctx, tx, adminURL, rolePrefix, roles)
}

func schemaStep(conn *pgx.Conn) step {
	return step{statement: "CREATE SCHEMA " + extensionSchema + " AUTHORIZATION " + pgx.Identifier{conn.Config().User}.Sanitize()}
}

// step is a statement that creates something, to run if missingQuery returns true.
type step struct {
	missingQuery string
	args         []any
	statement    string
	redacted     string // shown instead of a statement that contains a secret
}

// bootstrap creates what is missing. If the administrator may not create something, the error lists the remaining
// statements.
func bootstrap(ctx context.Context, tx pgx.Tx, adminURL, rolePrefix string, roles map[string]Role) error {
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
	for _, service := range slices.Sorted(maps.Keys(roles)) {
		works, err := canLogIn(ctx, adminURL, rolePrefix, service, roles[service].Password)
		if err != nil {
			return err
		}
		steps = append(steps, serviceSteps(tx.Conn().Config().Database, rolePrefix+service, service, roles[service], works)...)
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

// serviceSteps returns the steps that create a service's role and schema. works says that the role logs in with its
// password already.
func serviceSteps(database, name, service string, login Role, works bool) []step {
	role := pgx.Identifier{name}.Sanitize()
	limit := fmt.Sprintf("ALTER ROLE %s CONNECTION LIMIT %d", role, login.Connections)
	return []step{
		{
			missingQuery: "SELECT NOT EXISTS (SELECT FROM pg_roles WHERE rolname = $1)",
			args:         []any{name},
			statement:    "CREATE ROLE " + role + " LOGIN",
		},
		{
			missingQuery: "SELECT NOT ($1::boolean AND EXISTS (SELECT FROM pg_roles WHERE rolname = $2))",
			args:         []any{works, name},
			statement:    "ALTER ROLE " + role + " PASSWORD '" + scramVerifier(login.Password) + "'",
			redacted:     "ALTER ROLE " + role + " PASSWORD '…'",
		},
		{
			missingQuery: "SELECT $2::bigint > 0 AND NOT EXISTS (SELECT FROM pg_roles WHERE rolname = $1 AND rolconnlimit = $2::bigint)",
			args:         []any{name, login.Connections},
			statement:    limit,
		},
		{
			missingQuery: "SELECT NOT EXISTS (SELECT FROM pg_roles " +
				"WHERE rolname = $1 AND has_database_privilege(oid, current_database(), 'CONNECT'))",
			args:      []any{name},
			statement: "GRANT CONNECT ON DATABASE " + pgx.Identifier{database}.Sanitize() + " TO " + role,
		},
		{ // CREATE SCHEMA … AUTHORIZATION needs it unless the administrator is a superuser
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

// missingError returns an error with the statements that a database administrator has to run.
func missingError(err error, missing []step) error {
	var statements strings.Builder
	for _, s := range missing {
		fmt.Fprintf(&statements, "\n  %s;", cmp.Or(s.redacted, s.statement))
	}
	return fmt.Errorf(
		"%w: the role of the database URL may not create what is missing. Run these statements as an administrator of the "+
			"database, then start again:%s",
		err,
		&statements,
	)
}

// canLogIn reports whether a service's role exists and has this password.
func canLogIn(ctx context.Context, adminURL, rolePrefix, service string, password secret.String) (bool, error) {
	at, err := ServiceURL(adminURL, rolePrefix, service, password)
	if err != nil {
		return false, err
	}
	conn, err := pool.Connect(ctx, at.Reveal())
	if pgerror.IsFull(err) { // of an existing role the password was right: its limit is checked afterwards
		return true, nil
	}
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

// checkExtensions fails if an extension is in another schema, where services do not find it.
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
		"the extension %s is in the schema %s. Move it: ALTER EXTENSION %s SET SCHEMA %s",
		name,
		elsewhere,
		name,
		extensionSchema,
	)
}

// scramVerifier returns the SCRAM-SHA-256 verifier that Postgres stores for a password. With it no statement contains the
// password, which the server might log with an error.
func scramVerifier(password secret.String) string {
	const iterations = 4096
	salt := make([]byte, 16)
	rand.Read(salt)
	salted, err := pbkdf2.Key(sha256.New, password.Reveal(), salt, iterations, sha256.Size)
	if err != nil {
		panic(err) // cannot happen for this key length
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

// ServiceURL returns the URL by which a service reaches its schema, derived from the administrator's URL. The search_path is
// a setting of the role.
func ServiceURL(adminURL, rolePrefix, service string, password secret.String) (secret.String, error) {
	u, err := url.Parse(adminURL)
	if err != nil {
		return secret.String{}, errors.New("the database URL is not a URL") // err would show the password
	}
	u.User = url.UserPassword(rolePrefix+service, password.Reveal())
	q := u.Query()
	for _, name := range []string{"user", "password"} { // they would override those of the URL
		q.Del(name)
	}
	u.RawQuery = q.Encode()
	return secret.New(u.String()), nil
}

// lockDatabase is migrate.LockTable for the administrator of a database.
func lockDatabase(ctx context.Context, conn *pgx.Conn, name, mode string) (pgx.Tx, error) {
	const lacks = "SELECT to_regnamespace($1) IS NULL"
	if err := migrate.Create(ctx, conn, lacks, extensionSchema, "SCHEMA "+extensionSchema); isDenied(err) {
		return nil, missingError(err, []step{schemaStep(conn)})
	} else if err != nil {
		return nil, err
	}
	return migrate.LockTable(ctx, conn, extensionSchema+"."+name, mode)
}

// TryLock locks a name until the administrator's connection ends. It returns false if another session has the lock.
func TryLock(ctx context.Context, conn *pgx.Conn, name string) (free bool, err error) {
	_, err = lockDatabase(ctx, conn, name, "NOWAIT")
	if failed, ok := errors.AsType[*pgconn.PgError](err); ok && failed.Code == "55P03" {
		return false, nil
	}
	return err == nil, err
}
