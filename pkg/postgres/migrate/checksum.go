package migrate

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"fmt"
	"io/fs"
	"regexp"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/pressly/goose/v3"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
)

// replacesComment matches a line of a migration that names the checksum of an earlier text of it: -- replaces 890c13….
var replacesComment = regexp.MustCompile(`(?m)^-- replaces ([0-9a-f]{64})\b`)

// checksums returns the checksums of each migration file, by its name.
func (m MigrationSet) checksums() (map[string][][]byte, error) {
	files := folders(m.Files)
	names, err := files.Glob("*.sql")
	sums := map[string][][]byte{}
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		sums[name] = Checksums(text)
	}
	return sums, err
}

// Checksums returns the SHA-256 checksums that identify a migration: its own, then those of earlier texts that it replaces.
// An earlier text must have left the same schema.
func Checksums(migration []byte) [][]byte {
	own := sha256.Sum256(migration)
	all := [][]byte{own[:]}
	if !bytes.Contains(migration, []byte("-- replaces ")) { // most files: this is much faster than the expression
		return all
	}
	for _, found := range replacesComment.FindAllSubmatch(migration, -1) {
		sum, _ := hex.DecodeString(string(found[1])) // cannot fail: the expression matches hexadecimal digits only
		all = append(all, sum)
	}
	return all
}

// recordChecksums stores the checksums of all migrations, for verifyChecksums.
func (m MigrationSet) recordChecksums(ctx context.Context, db *sql.DB) error {
	sums, err := m.checksums()
	if err != nil {
		return err
	}
	_, err = db.ExecContext(
		ctx,
		"CREATE TABLE IF NOT EXISTS migration_checksum (migrations text, name text, checksum bytea NOT NULL, PRIMARY KEY (migrations, name))",
	)
	for name, known := range sums {
		if err == nil {
			_, err = db.ExecContext(ctx, "INSERT INTO migration_checksum VALUES ($1, $2, $3) ON CONFLICT DO NOTHING", m.Table, name, known[0])
		}
	}
	if err != nil {
		return fmt.Errorf("store the checksums of migrations: %w", err)
	}
	return nil
}

// verifyChecksums fails if a migration was edited after it was applied, or added before one that is applied. It reports
// whether the checksums of all migrations are recorded.
func (m MigrationSet) verifyChecksums(ctx context.Context, db pg.Querier) (recorded bool, err error) {
	sums, err := m.checksums()
	if err != nil {
		return false, err
	}
	var exists bool
	if err := db.QueryRow(ctx, "SELECT to_regclass('migration_checksum') IS NOT NULL").Scan(&exists); err != nil || !exists {
		return false, err
	}
	rows, err := db.Query(ctx, "SELECT name, checksum FROM migration_checksum WHERE migrations = $1", m.Table)
	if err != nil {
		return false, err
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
		return false, fmt.Errorf("read the checksums of migrations: %w", err)
	}
	recorded = true
	for name, known := range sums {
		number, err := goose.NumericComponent(name)
		if err != nil {
			return false, err
		}
		before, is := done[name]
		switch {
		case is && !slices.ContainsFunc(known, func(sum []byte) bool { return bytes.Equal(before, sum) }):
			return false, fmt.Errorf(
				"the migration %s was edited after it was applied to this database: restore its text, and add another migration",
				name,
			)
		case !is && number <= last:
			return false, fmt.Errorf(
				"the migration %s was added before number %d, which is applied already: give it the next free number",
				name,
				last,
			)
		}
		recorded = recorded && is
	}
	return recorded, nil
}
