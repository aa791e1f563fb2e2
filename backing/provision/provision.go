// Package provision makes, as the administrator of a database, what services need in it before they use it: the extensions,
// and a role and a schema for each.
package provision

import (
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

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ironplane/ironplane/pkg/pool"
	"github.com/ironplane/ironplane/pkg/schema"
	"github.com/ironplane/ironplane/pkg/secret"
)

// Extensions live in a schema of their own, which every service may use.
const extensionSchema = "ext"

var extensions = []string{"pg_trgm", "btree_gist"}

// Database makes what the services need in a database: the extensions, and for each service a role <rolePrefix><service> with its password, which owns the schema <service> and may use no other. It
// may be run again at any time.
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
	if err := bootstrap(ctx, tx, rolePrefix, passwords); err != nil {
		return fmt.Errorf("bootstrap: %w", err)
	}
	if err := tx.Commit(ctx); err != nil {
		return fmt.Errorf("bootstrap: %w", err)
	}
	return nil
}

func bootstrap(ctx context.Context, tx pgx.Tx, rolePrefix string, passwords map[string]secret.String) error {
	statements := []string{
		"GRANT USAGE ON SCHEMA " + extensionSchema + " TO PUBLIC",
	}
	for _, name := range extensions {
		statements = append(statements, "CREATE EXTENSION IF NOT EXISTS "+name+" SCHEMA "+extensionSchema)
	}
	for _, service := range slices.Sorted(maps.Keys(passwords)) {
		role, own := pgx.Identifier{rolePrefix + service}.Sanitize(), pgx.Identifier{service}.Sanitize()
		var exists bool
		if err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1)", rolePrefix+service).Scan(&exists); err != nil {
			return err
		}
		if !exists {
			statements = append(statements, "CREATE ROLE "+role+" LOGIN")
		}
		statements = append(statements,
			"ALTER ROLE "+role+" PASSWORD '"+verifier(passwords[service])+"'",
			"GRANT CONNECT ON DATABASE "+pgx.Identifier{tx.Conn().Config().Database}.Sanitize()+" TO "+role,
			"GRANT "+role+" TO CURRENT_USER", // which an administrator who is no superuser needs for the next one
			"CREATE SCHEMA IF NOT EXISTS "+own+" AUTHORIZATION "+role,
		)
	}
	for _, statement := range statements {
		if _, err := tx.Exec(ctx, statement); err != nil {
			return err
		}
	}
	return extensionsInPlace(ctx, tx)
}

// extensionsInPlace refuses extensions that somebody put elsewhere before, where no service finds them.
func extensionsInPlace(ctx context.Context, tx pgx.Tx) error {
	var name, elsewhere string
	err := tx.QueryRow(ctx, "SELECT extname, extnamespace::regnamespace::text FROM pg_extension WHERE extname = ANY($1) AND extnamespace <> $2::regnamespace LIMIT 1",
		extensions, extensionSchema).Scan(&name, &elsewhere)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	return fmt.Errorf("the extension %s is in the schema %s; move it: ALTER EXTENSION %s SET SCHEMA %s", name, elsewhere, name, extensionSchema)
}

// verifier is what Postgres stores of a password (SCRAM-SHA-256), so that the password itself is in no statement,
// which the server would log with an error.
func verifier(password secret.String) string {
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
	if err := schema.Create(ctx, conn, "SCHEMA IF NOT EXISTS "+extensionSchema); err != nil {
		return nil, err
	}
	return schema.LockTable(ctx, conn, extensionSchema+"."+name, mode)
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
