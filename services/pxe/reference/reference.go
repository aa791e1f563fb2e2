// Package reference knows which rows refer to an item. It names them where the item cannot be deleted because of them, and
// clears them once another service has deleted the item.
package reference

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
)

// InstallUnderWay is the condition that a row of install has not ended. Only such an install keeps what it refers to.
const InstallUnderWay = "status IN ('waiting', 'booting', 'installing')"

// ByProfile says which profile fulfils a condition, such as "is used by profile 3 (Debian 13) and 2 more", or returns "" where none does.
func ByProfile(ctx context.Context, q pg.Querier, condition string, args ...any) (string, error) {
	found, more, err := first(ctx, q, "SELECT id, name, count(*) OVER () - 1 FROM profile WHERE "+condition, args...)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("look for profiles: %w", err)
	case more == 0:
		return fmt.Sprintf("is used by profile %d (%s)", found.ID, found.Name), nil
	default:
		return fmt.Sprintf("is used by profile %d (%s) and %d more", found.ID, found.Name, more), nil
	}
}

// ProfilesWhere returns a function that does the same for the item of an id, which is $1 in the condition.
func ProfilesWhere(condition string) func(context.Context, pg.Querier, int64) (string, error) {
	return func(ctx context.Context, q pg.Querier, id int64) (string, error) {
		return ByProfile(ctx, q, condition, id)
	}
}

// ByInstall returns a function that says which install that is under way refers to an item by this column, or returns "".
func ByInstall(column string) func(context.Context, pg.Querier, int64) (string, error) {
	sql := "SELECT id, host_hostname, count(*) OVER () - 1 FROM install WHERE " + pgx.Identifier{
		column,
	}.Sanitize() + " = $1 AND " + InstallUnderWay
	return func(ctx context.Context, q pg.Querier, id int64) (string, error) {
		found, more, err := first(ctx, q, sql, id)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return "", nil
		case err != nil:
			return "", fmt.Errorf("look for installs: %w", err)
		case more == 0:
			return fmt.Sprintf("is used by install %d (%s), which has not ended", found.ID, found.Name), nil
		default:
			return fmt.Sprintf("is used by install %d (%s) and %d more, which have not ended", found.ID, found.Name, more), nil
		}
	}
}

// first reads the row with the lowest id, and how many more there are.
func first(ctx context.Context, q pg.Querier, sql string, args ...any) (found rest.Ref, more int64, err error) {
	err = q.QueryRow(ctx, sql+" ORDER BY id LIMIT 1", args...).Scan(&found.ID, &found.Name, &more)
	return found, more, err
}

// deleteUnused deletes a row, unless uses says what refers to it. Foreign keys and locks keep new references out until the commit.
func deleteUnused(ctx context.Context, tx *pg.Tx, table, noun string, id int64, uses string, err error) error {
	if err != nil {
		return err
	}
	if uses != "" {
		return problem.New(problem.Conflict, "%s %d %s.", noun, id, uses)
	}
	_, err = tx.Exec(ctx, "DELETE FROM "+pgx.Identifier{table}.Sanitize()+" WHERE id = $1", id)
	return err
}

// DeleteUnlessInstalls deletes a row that the caller has locked, unless an install that is under way refers to it by this column.
func DeleteUnlessInstalls(ctx context.Context, tx *pg.Tx, table, noun, column string, id int64) error {
	uses, err := ByInstall(column)(ctx, tx, id)
	return deleteUnused(ctx, tx, table, noun, id, uses, err)
}

// DeleteUnlessProfiles deletes a row, unless a profile fulfils the condition, in which $1 is the row's id.
func DeleteUnlessProfiles(ctx context.Context, tx *pg.Tx, table, noun, condition string, id int64) error {
	uses, err := ByProfile(ctx, tx, condition, id)
	return deleteUnused(ctx, tx, table, noun, id, uses, err)
}

// Clear sets a column to NULL in the rows that refer to an item which its service has deleted, and records the edit of each.
// before is what the rows showed of the item.
func Clear(ctx context.Context, tx *pg.Tx, table, column string, id int64, of pg.Target, before any) error {
	rows, err := tx.Query(
		ctx,
		fmt.Sprintf(
			"UPDATE %s SET %s = NULL, version = version + 1 WHERE %[2]s = $1 RETURNING $2::text AS type, $3::text AS noun, id, name, version",
			pgx.Identifier{table}.Sanitize(),
			pgx.Identifier{column}.Sanitize(),
		),
		id,
		of.Type,
		of.Noun,
	)
	if err != nil {
		return fmt.Errorf("clear %s %d: %w", column, id, err)
	}
	items, err := pgx.CollectRows(rows, pgx.RowToStructByPos[pg.Target])
	if err != nil {
		return fmt.Errorf("clear %s %d: %w", column, id, err)
	}
	for _, item := range items {
		tx.Record(pg.Record{
			Kind:    strings.ReplaceAll(of.Type, "/", "."),
			Action:  pg.Edited,
			Targets: []pg.Target{item},
			Before:  before,
			After:   struct{}{},
		})
	}
	return nil
}
