package host

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/service"
)

// sealedColumn is a column with values that a box sealed, each for its row.
type sealedColumn struct {
	table, name, id string
	box             *seal.Box
	where           string // a condition on the rows that ends with AND; empty: all rows
}

// sealedColumns returns the sealed columns of a service's schema, including messages to other services that are not received
// yet.
func sealedColumns(d service.Definition, deps service.Deps) (all []sealedColumn) {
	if deps.Box != nil {
		all = append(all, sealedColumn{"key_check", "sealed", "1", deps.Box, ""})
	}
	for _, cell := range d.Sealed {
		table, name, _ := strings.Cut(cell, ".")
		all = append(all, sealedColumn{table, name, "id", deps.Box, ""})
	}
	for receiver, outbox := range deps.Outboxes {
		all = append(all, sealedColumn{"message", "sealed", "n", outbox.Box, "receiver = '" + receiver + "' AND "})
	}
	return all
}

// countOlderKeys returns how many values are sealed or signed with an older key than the newest.
func countOlderKeys(ctx context.Context, d service.Definition, deps service.Deps) (all int64, err error) {
	for _, c := range sealedColumns(d, deps) {
		var n int64
		if err := deps.DB.QueryRow(ctx, fmt.Sprintf("SELECT count(*) FROM %s WHERE %s", c.table, c.older()), c.box.KeyID()).Scan(&n); err != nil {
			return 0, fmt.Errorf("count what is sealed in %s: %w", c.table, err)
		}
		all += n
	}
	if d.Signed != nil {
		n, err := d.Signed(deps.Box).Older(ctx, deps.DB)
		return all + n, err
	}
	return all, nil
}

// Reseal seals and signs everything again that an older key was used for, and prints the counts before and after. It may run
// while the service serves.
func Reseal(ctx context.Context, d service.Definition, deps service.Deps, out io.Writer) error {
	before, err := countOlderKeys(ctx, d, deps)
	if err != nil {
		return err
	}
	for _, c := range sealedColumns(d, deps) {
		if err := c.reseal(ctx, deps.DB); err != nil {
			return err
		}
	}
	if d.Signed != nil {
		if err := d.Signed(deps.Box).Resign(ctx, deps.DB); err != nil {
			return err
		}
	}
	left, err := countOlderKeys(ctx, d, deps)
	if err == nil {
		_, err = fmt.Fprintf(out, "%s: older keys were needed for %d values, and are still needed for %d.\n", d.Name, before, left)
	}
	return err
}

// older returns the condition for rows that were sealed with another key than $1.
func (c sealedColumn) older() string {
	return fmt.Sprintf("%ssubstring(%s FROM 1 FOR length($1::bytea)) <> $1", c.where, c.name)
}

// resealBatch is how many rows are read at a time.
const resealBatch = 500

func (c sealedColumn) reseal(ctx context.Context, db *pg.DB) error {
	type row struct {
		id     int64
		sealed []byte
	}
	for last := int64(0); ; {
		found, err := db.Query(
			ctx,
			fmt.Sprintf("SELECT %[1]s, %[2]s FROM %[3]s WHERE %[4]s AND %[1]s > $2 ORDER BY 1 LIMIT $3", c.id, c.name, c.table, c.older()),
			c.box.KeyID(),
			last,
			resealBatch,
		)
		if err != nil {
			return fmt.Errorf("read what is sealed in %s: %w", c.table, err)
		}
		rows, err := pgx.CollectRows(found, func(r pgx.CollectableRow) (v row, err error) { return v, r.Scan(&v.id, &v.sealed) })
		if err != nil || len(rows) == 0 {
			return err
		}
		if err := db.InTx(ctx, func(tx *pg.Tx) error {
			tx.Unrecorded("the sealed values stay the same")
			for _, r := range rows {
				cell := seal.Location{Table: c.table, Column: c.name, ID: r.id}
				value, err := c.box.Open(cell, r.sealed)
				if err != nil {
					return err
				}
				// Optimistic locking: a value that was written since is sealed with the newest key already.
				if _, err := tx.Exec(
					ctx,
					fmt.Sprintf("UPDATE %[1]s SET %[2]s = $1 WHERE %[3]s = $2 AND %[2]s = $3", c.table, c.name, c.id),
					c.box.Seal(cell, value),
					r.id,
					r.sealed,
				); err != nil {
					return fmt.Errorf("reseal %s of row %d of %s: %w", c.name, r.id, c.table, err)
				}
			}
			return nil
		}); err != nil {
			return err
		}
		last = rows[len(rows)-1].id
	}
}
