package schema

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5"
	"github.com/pressly/goose/v3"

	"github.com/ironplane/ironplane/pkg/pg"
)

// checksums are the files by their names, with what they hold.
func (m MigrationSet) checksums() (map[string][]byte, error) {
	files := folders(m.Files)
	names, err := files.Glob("*.sql")
	sums := map[string][]byte{}
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(text)
		sums[name] = sum[:]
	}
	return sums, err
}

// record notes what was done, for intact.
func (m MigrationSet) record(ctx context.Context, db *sql.DB) error {
	sums, err := m.checksums()
	if err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS migration_checksum (migrations text, name text, checksum bytea NOT NULL, PRIMARY KEY (migrations, name))")
	for name, sum := range sums {
		if err == nil {
			_, err = db.ExecContext(ctx, "INSERT INTO migration_checksum VALUES ($1, $2, $3) ON CONFLICT DO NOTHING", m.Table, name, sum)
		}
	}
	if err != nil {
		return fmt.Errorf("note the checksums of migrations: %w", err)
	}
	return nil
}

// intact fails where a migration was edited after it was done, or put in before one that is.
func (m MigrationSet) intact(ctx context.Context, db pg.Querier) error {
	sums, err := m.checksums()
	if err != nil {
		return err
	}
	var there bool
	if err := db.QueryRow(ctx, "SELECT to_regclass('migration_checksum') IS NOT NULL").Scan(&there); err != nil || !there {
		return err
	}
	rows, err := db.Query(ctx, "SELECT name, checksum FROM migration_checksum WHERE migrations = $1", m.Table)
	if err != nil {
		return err
	}
	done := map[string][]byte{}
	var name string
	var sum []byte
	var last int64
	_, err = pgx.ForEachRow(rows, []any{&name, &sum}, func() error {
		done[name] = bytes.Clone(sum)
		number, err := goose.NumericComponent(name)
		last = max(last, number)
		return err
	})
	if err != nil {
		return fmt.Errorf("read the checksums of migrations: %w", err)
	}
	for name, sum := range sums {
		number, err := goose.NumericComponent(name)
		if err != nil {
			return err
		}
		before, is := done[name]
		switch {
		case is && !bytes.Equal(before, sum):
			return fmt.Errorf("the migration %s was edited after it was done here: put it back as it was, and add another one", name)
		case !is && number <= last:
			return fmt.Errorf("the migration %s was put in before number %d, which is done here: give it the next free number", name, last)
		}
	}
	return nil
}
