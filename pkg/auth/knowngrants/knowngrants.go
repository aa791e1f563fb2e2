// Package knowngrants finds the permissions that a new version of the program brings. A service that stores sets of
// permissions has a table known_grant, which lists the grants of the newest version that has run on its schema. A set that
// held all of those is extended by the new ones when the new version starts. A set that lacked one gains nothing.
package knowngrants

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
)

// Extension is what a version of the program adds to stored sets. Added is zero where the schema knows all grants already.
type Extension struct {
	Earlier principal.Grants // all that the schema knew
	Added   principal.Grants // all that this version knows besides
}

// Find compares this version's grants with those that the schema knows. It changes nothing. An older instance beside a newer
// one finds nothing to add.
func Find(ctx context.Context, q pg.Querier) (Extension, error) {
	rows, err := q.Query(ctx, "SELECT name FROM known_grant")
	if err != nil {
		return Extension{}, fmt.Errorf("read the known permissions: %w", err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return Extension{}, fmt.Errorf("read the known permissions: %w", err)
	}
	earlier := principal.ParseGrants(names)
	return Extension{Earlier: earlier, Added: principal.All &^ earlier}, nil
}

// Learn returns what Find returns, and adds it to the schema's list. The caller extends its sets in the same unit of work.
// Instances that start at the same time wait for each other: one of them extends the sets.
func Learn(ctx context.Context, tx *pg.Tx) (Extension, error) {
	if err := tx.Lock(ctx, "known grants", 0); err != nil {
		return Extension{}, err
	}
	e, err := Find(ctx, tx)
	if err != nil || e.Added == 0 {
		return e, err
	}
	if _, err := tx.Exec(ctx, "INSERT INTO known_grant SELECT unnest($1::text[])", e.Added.Names()); err != nil {
		return Extension{}, fmt.Errorf("add to the known permissions: %w", err)
	}
	return e, nil
}

// Apply returns a stored set of permissions as the extension leaves it. A set that held all earlier grants gets the
// added ones, too.
func (e Extension) Apply(set principal.Grants) principal.Grants {
	if set.Holds(e.Earlier) {
		return set | e.Added
	}
	return set
}

// Extend adds the new grants to the column permissions of each row of a table that held all earlier ones. The column
// name holds the rows' label. Each changed row is recorded as an edit of the part permission of an item of this kind,
// with this target.
func (e Extension) Extend(ctx context.Context, tx *pg.Tx, table, name, kind string, target pg.Target) error {
	rows, err := tx.Query(ctx, `
		UPDATE `+table+` SET version = version + 1, permissions = permissions || $2::text[]
		WHERE permissions @> $1 AND NOT permissions && $2 RETURNING id, version, `+name, e.Earlier.Names(), e.Added.Names())
	if err != nil {
		return fmt.Errorf("extend the permissions in %s: %w", table, err)
	}
	_, err = pgx.ForEachRow(rows, []any{&target.ID, &target.Version, &target.Name}, func() error {
		tx.Record(pg.Record{
			Kind:    kind,
			Part:    "permission",
			Action:  pg.Edited,
			Targets: []pg.Target{target},
			Before:  principal.SetOf(e.Earlier),
			After:   principal.SetOf(e.Earlier | e.Added),
		})
		return nil
	})
	if err != nil {
		return fmt.Errorf("extend the permissions in %s: %w", table, err)
	}
	return nil
}
