package migrate

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/pressly/goose/v3"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
)

const (
	// lockTimeout bounds how long other sessions wait behind an attempt to replace a view that is in use. It is shorter than
	// PostgreSQL's deadlock_timeout: if the attempt and a request wait for each other, the attempt gives up.
	lockTimeout = 500 * time.Millisecond
	// defineTimeout is how long attempts are repeated, and maxRetryInterval the longest pause between two.
	defineTimeout    = 5 * time.Minute
	maxRetryInterval = 2 * time.Second
)

// definition is a file in the folder schema/functions or schema/views. It creates a view, or a function with its triggers.
// It can be applied any number of times.
type definition struct {
	name     string // views/ip_entity_view.sql
	text     string
	sum      []byte
	objects  []string        // view ip_entity_view
	mentions map[string]bool // all words of the text, to find the views that it reads
}

var (
	createStatement = regexp.MustCompile(`(?m)^\s*CREATE (?:OR REPLACE )?(VIEW|FUNCTION|TRIGGER) (\w+)`)
	comment         = regexp.MustCompile(`--.*`)
	word            = regexp.MustCompile(`\w+`)
	star            = regexp.MustCompile(`(?i)\bSELECT \*|\w\.\*`)
)

// newDefinition parses a definition's file. It fails if the file does not begin with the object that it is named for.
func newDefinition(name string, text []byte) (definition, error) {
	sum := sha256.Sum256(text)
	d := definition{name: name, text: string(text), sum: sum[:], mentions: map[string]bool{}}
	for _, found := range createStatement.FindAllStringSubmatch(d.text, -1) {
		d.objects = append(d.objects, strings.ToLower(found[1])+" "+found[2])
	}
	for _, w := range word.FindAllString(comment.ReplaceAllString(d.text, ""), -1) {
		d.mentions[w] = true
	}
	want := strings.TrimSuffix(path.Dir(name), "s") + " " + d.objectName()
	if len(d.objects) == 0 || d.objects[0] != want {
		return d, fmt.Errorf("schema/%s creates %v: it must begin with the %s", name, d.objects, want)
	}
	if path.Dir(name) == "views" && star.MatchString(d.text) {
		return d, fmt.Errorf("schema/%s selects *, which does not follow later changes of the table: name the columns", name)
	}
	return d, nil
}

// objectName returns the name of the view or function that the file defines.
func (d definition) objectName() string { return strings.TrimSuffix(path.Base(d.name), ".sql") }

// definitions returns all definitions of the set: functions first, then each view behind the views that it reads.
func (m MigrationSet) definitions() (all []definition, err error) {
	views := map[string]definition{}
	var names []string
	for _, files := range m.Files {
		found, err := fs.Glob(files, "schema/*/*.sql")
		if err != nil {
			return nil, err
		}
		for _, file := range found {
			text, err := fs.ReadFile(files, file)
			if err != nil {
				return nil, err
			}
			d, err := newDefinition(strings.TrimPrefix(file, "schema/"), text)
			if err != nil {
				return nil, err
			}
			if path.Dir(d.name) == "views" {
				views[d.objectName()] = d
				names = append(names, d.objectName())
			} else {
				all = append(all, d)
			}
		}
	}
	slices.Sort(names)
	reading := map[string]bool{} // by view: whether its dependencies are still being added
	var add func(name string) error
	add = func(name string) error {
		if under, seen := reading[name]; under {
			return fmt.Errorf("the view %s reads itself through other views", name)
		} else if seen {
			return nil
		}
		reading[name] = true
		for _, other := range names {
			if other != name && views[name].mentions[other] {
				if err := add(other); err != nil {
					return err
				}
			}
		}
		reading[name] = false
		all = append(all, views[name])
		return nil
	}
	for _, name := range names {
		if err := add(name); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// checksumGroup returns the group of a set's definitions in migration_checksum. It differs from that of the migrations, so
// an older program does not mistake definitions for migrations.
func (m MigrationSet) checksumGroup() string { return m.Table + "_definition" }

// findDue returns the definitions that the schema lacks or has with an earlier text. If the schema has newer migrations than
// m, it returns none: those definitions belong to a newer program.
func (m MigrationSet) findDue(ctx context.Context, q pg.Querier, all []definition) (due []definition, err error) {
	files, err := folders(m.Files).Glob("*.sql")
	if err != nil || len(all) == 0 || len(files) == 0 {
		return nil, err
	}
	newest, err := goose.NumericComponent(files[len(files)-1])
	if err != nil {
		return nil, err
	}
	var newer, noted bool
	err = q.QueryRow(ctx, `
		SELECT coalesce(max(version_id), 0) > $1, to_regclass('migration_checksum') IS NOT NULL
		FROM `+m.Table+" WHERE is_applied", newest).Scan(&newer, &noted)
	if err != nil || newer {
		return nil, err
	}
	if !noted {
		return all, nil
	}
	rows, err := q.Query(ctx, `
		SELECT 'view ' || relname, ''::bytea FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind = 'v'
		UNION ALL SELECT 'function ' || proname, '' FROM pg_proc WHERE pronamespace = current_schema()::regnamespace
		UNION ALL SELECT 'trigger ' || tgname, '' FROM pg_trigger JOIN pg_class c ON c.oid = tgrelid
			WHERE relnamespace = current_schema()::regnamespace AND NOT tgisinternal
		UNION ALL SELECT name, checksum FROM migration_checksum WHERE migrations = $1`, m.checksumGroup())
	if err != nil {
		return nil, err
	}
	existing := map[string][]byte{}
	var name string
	var sum []byte
	if _, err := pgx.ForEachRow(rows, []any{&name, &sum}, func() error {
		existing[name] = bytes.Clone(sum)
		return nil
	}); err != nil {
		return nil, fmt.Errorf("read the schema's views and functions: %w", err)
	}
	for _, d := range all {
		missing := func(object string) bool { _, is := existing[object]; return !is }
		if !bytes.Equal(existing[d.name], d.sum) || slices.ContainsFunc(d.objects, missing) {
			due = append(due, d)
		}
	}
	return due, nil
}

// dueFiles returns the names of the files that are due.
func (m MigrationSet) dueFiles(ctx context.Context, q pg.Querier) (files []string, err error) {
	all, err := m.definitions()
	if err != nil {
		return nil, err
	}
	due, err := m.findDue(ctx, q, all)
	for _, d := range due {
		files = append(files, "schema/"+d.name)
	}
	return files, err
}

// applyDefinitions applies the definitions that are due in one transaction. If another session uses a view, or writes to a table with a
// trigger, it gives way after lockTimeout and retries until defineTimeout.
func (m MigrationSet) applyDefinitions(ctx context.Context, config *pgx.ConnConfig, log *slog.Logger) error {
	all, err := m.definitions()
	if err != nil || len(all) == 0 {
		return err
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	deadline := time.Now().Add(defineTimeout)
	for interval := lockTimeout / 4; ; interval = min(2*interval, maxRetryInterval) {
		applied, err := m.applyDue(ctx, conn, all)
		if err == nil {
			if len(applied) > 0 {
				log.Info("views and functions updated", "migrations", m.Table, "files", applied)
			}
			return nil
		}
		refused, is := errors.AsType[*pgconn.PgError](err)
		if !is || refused.Code != lockNotAvailable && refused.Code != deadlockDetected {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("replace views and functions: another session, such as a backup, uses them: %w", err)
		}
		log.Warn("view or table in use", "error", err, "retry_in", interval)
		select {
		case <-time.After(interval):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// SQLSTATEs.
const (
	lockNotAvailable       = "55P03"
	deadlockDetected       = "40P01"
	invalidTableDefinition = "42P16" // CREATE OR REPLACE VIEW would remove, rename or retype a column
)

// applyDue applies the due definitions of all in one transaction, and returns the names of their files.
func (m MigrationSet) applyDue(ctx context.Context, conn *pgx.Conn, all []definition) (applied []string, err error) {
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		applied = nil
		if _, err := tx.Exec(ctx, fmt.Sprintf("SET LOCAL lock_timeout = %d", lockTimeout.Milliseconds())); err != nil {
			return err
		}
		due, err := m.findDue(ctx, tx, all)
		if err != nil {
			return err
		}
		if err := lockViews(ctx, tx, due); err != nil {
			return err
		}
		dropped := map[string]bool{}
		for _, d := range all {
			is := func(o definition) bool { return o.name == d.name }
			if !dropped[d.objectName()] && !slices.ContainsFunc(due, is) {
				continue
			}
			if err := d.replace(ctx, tx, dropped); err != nil {
				return fmt.Errorf("apply schema/%s: %w", d.name, err)
			}
			delete(dropped, d.objectName())
			if _, err := tx.Exec(ctx, `INSERT INTO migration_checksum VALUES ($1, $2, $3)
				ON CONFLICT (migrations, name) DO UPDATE SET checksum = EXCLUDED.checksum`, m.checksumGroup(), d.name, d.sum); err != nil {
				return fmt.Errorf("store the checksum of schema/%s: %w", d.name, err)
			}
			applied = append(applied, d.name)
		}
		for view := range dropped {
			return fmt.Errorf("the view %s has no file, and reads a view that must be dropped and created again: drop %[1]s in a migration", view)
		}
		return nil
	})
	return applied, err
}

// lockViews locks the views that are about to be replaced, and the views that read them. It starts with the outermost views,
// as readers do, so there is no deadlock. LOCK TABLE would also lock the tables behind a view. Setting the owner locks only
// the view.
func lockViews(ctx context.Context, tx pgx.Tx, due []definition) error {
	var names []string
	for _, d := range due {
		names = append(names, d.objectName())
	}
	views, err := withReaders(ctx, tx, names...)
	if err != nil {
		return err
	}
	for _, view := range views {
		if _, err := tx.Exec(ctx, "ALTER VIEW "+view+" OWNER TO CURRENT_USER"); err != nil {
			return fmt.Errorf("lock the view %s: %w", view, err)
		}
	}
	return nil
}

// withReaders returns the existing views of these names and the views that read them. A view comes before the views that it
// reads.
func withReaders(ctx context.Context, tx pgx.Tx, names ...string) ([]string, error) {
	rows, err := tx.Query(ctx, `
		WITH RECURSIVE reader AS (
			SELECT oid AS view, 0 AS depth FROM pg_class
			WHERE relnamespace = current_schema()::regnamespace AND relkind = 'v' AND relname = ANY ($1)
			UNION SELECT ev_class, depth + 1 FROM reader
			JOIN pg_depend ON refclassid = 'pg_class'::regclass AND refobjid = view AND classid = 'pg_rewrite'::regclass
			JOIN pg_rewrite r ON r.oid = objid AND ev_class <> view)
		SELECT relname::text FROM reader JOIN pg_class ON oid = view GROUP BY relname ORDER BY max(depth) DESC, relname`, names)
	if err != nil {
		return nil, err
	}
	views, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("find the readers of views: %w", err)
	}
	return views, nil
}

// replace applies one file. If CREATE OR REPLACE cannot change a view's columns, it drops the view with its readers, and
// adds their names to dropped.
func (d definition) replace(ctx context.Context, tx pgx.Tx, dropped map[string]bool) error {
	err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, d.text)
		return err
	})
	if refused, is := errors.AsType[*pgconn.PgError](err); !is || refused.Code != invalidTableDefinition {
		return err
	}
	views, err := withReaders(ctx, tx, d.objectName())
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, "DROP VIEW "+strings.Join(views, ", ")); err != nil {
		return err
	}
	for _, view := range views {
		dropped[view] = true
	}
	_, err = tx.Exec(ctx, d.text)
	return err
}
