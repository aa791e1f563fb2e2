package rows

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// dropIndexes drops a table's secondary indexes and its constraints between rows, and disables its triggers. It returns the
// statements that restore them. Building an index at once is much faster than adding row by row.
func (l *loader) dropIndexes(ctx context.Context, table string) (restore []string, err error) {
	rows, err := l.tx.Query(ctx, `
		SELECT format('ALTER TABLE %s DROP CONSTRAINT %I', conrelid::regclass, conname),
			format('ALTER TABLE %s ADD CONSTRAINT %I %s', conrelid::regclass, conname, pg_get_constraintdef(oid))
		FROM pg_constraint WHERE conrelid = $1::text::regclass AND contype IN ('f', 'u', 'x')
		UNION ALL
		SELECT format('DROP INDEX %s', indexrelid::regclass), pg_get_indexdef(indexrelid)
		FROM pg_index WHERE indrelid = $1::text::regclass AND NOT indisunique AND NOT indisexclusion
		ORDER BY 2`, table)
	if err != nil {
		return nil, fmt.Errorf("read the indexes of %s: %w", table, err)
	}
	type part struct{ Drop, Create string }
	parts, err := pgx.CollectRows(rows, pgx.RowToStructByPos[part])
	if err != nil {
		return nil, fmt.Errorf("read the indexes of %s: %w", table, err)
	}
	parts = append(parts, part{"ALTER TABLE " + table + " DISABLE TRIGGER USER", "ALTER TABLE " + table + " ENABLE TRIGGER USER"})
	for _, p := range parts {
		if _, err := l.tx.Exec(ctx, p.Drop); err != nil {
			return nil, fmt.Errorf("%s: %w", p.Drop, err)
		}
		restore = append(restore, p.Create)
	}
	return restore, nil
}

// run runs long statements, and prints how long each took.
func (l *loader) run(ctx context.Context, statements []string) error {
	if _, err := l.tx.Exec(ctx, "SET LOCAL maintenance_work_mem = '512MB'"); err != nil {
		return err
	}
	for _, statement := range statements {
		if err := l.logDuration(statement, func() error {
			_, err := l.tx.Exec(ctx, statement)
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}
