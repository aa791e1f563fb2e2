// Package reference finds the rows that refer to an item. It describes them when they prevent a deletion, and clears
// them once another service has deleted the item.
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

// InstallUnfinished is the SQL condition that a row of install has not ended. Only such an install prevents the deletion
// of what it refers to.
const InstallUnfinished = "status IN ('waiting', 'booting', 'installing')"

// DescribeProfileUse describes the profiles that meet an SQL condition, such as "is used by profile 3 (Debian 13) and 2
// more". It returns "" if no profile does.
func DescribeProfileUse(ctx context.Context, q pg.Querier, condition string, args ...any) (string, error) {
	found, more, err := findFirst(ctx, q, "SELECT id, name, count(*) OVER () - 1 FROM profile WHERE "+condition, args...)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("find profiles that use the item: %w", err)
	case more == 0:
		return fmt.Sprintf("is used by profile %d (%s)", found.ID, found.Name), nil
	default:
		return fmt.Sprintf("is used by profile %d (%s) and %d more", found.ID, found.Name, more), nil
	}
}

// ProfileUseDescriber returns a function that calls DescribeProfileUse with an id as $1 of the condition.
func ProfileUseDescriber(condition string) func(context.Context, pg.Querier, int64) (string, error) {
	return func(ctx context.Context, q pg.Querier, id int64) (string, error) {
		return DescribeProfileUse(ctx, q, condition, id)
	}
}

// InstallUseDescriber returns a function that describes the unfinished installs that refer to an id by this column. The
// function returns "" if there is none.
func InstallUseDescriber(column string) func(context.Context, pg.Querier, int64) (string, error) {
	sql := "SELECT id, host_hostname, count(*) OVER () - 1 FROM install WHERE " + pgx.Identifier{
		column,
	}.Sanitize() + " = $1 AND " + InstallUnfinished
	return func(ctx context.Context, q pg.Querier, id int64) (string, error) {
		found, more, err := findFirst(ctx, q, sql, id)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return "", nil
		case err != nil:
			return "", fmt.Errorf("find installs that use the item: %w", err)
		case more == 0:
			return fmt.Sprintf("is used by install %d (%s) that has not ended", found.ID, found.Name), nil
		default:
			return fmt.Sprintf("is used by install %d (%s) and %d more that have not ended", found.ID, found.Name, more), nil
		}
	}
}

// findFirst reads the row with the lowest id, and how many more rows there are.
func findFirst(ctx context.Context, q pg.Querier, sql string, args ...any) (found rest.Ref, more int64, err error) {
	err = q.QueryRow(ctx, sql+" ORDER BY id LIMIT 1", args...).Scan(&found.ID, &found.Name, &more)
	return found, more, err
}

// deleteUnused deletes a row, or refuses with usage as the reason. Foreign keys and locks keep new references out until
// the commit.
func deleteUnused(ctx context.Context, tx *pg.Tx, table, noun string, id int64, usage string, err error) error {
	if err != nil {
		return err
	}
	if usage != "" {
		return problem.New(problem.Conflict, "%s %d %s.", noun, id, usage)
	}
	_, err = tx.Exec(ctx, "DELETE FROM "+pgx.Identifier{table}.Sanitize()+" WHERE id = $1", id)
	return err
}

// DeleteUnlessInstalls deletes a row, unless an unfinished install refers to it by this column. The caller must have
// locked the row.
func DeleteUnlessInstalls(ctx context.Context, tx *pg.Tx, table, noun, column string, id int64) error {
	usage, err := InstallUseDescriber(column)(ctx, tx, id)
	return deleteUnused(ctx, tx, table, noun, id, usage, err)
}

// DeleteUnlessProfiles deletes a row, unless a profile meets the SQL condition. The row's id is $1 in the condition.
func DeleteUnlessProfiles(ctx context.Context, tx *pg.Tx, table, noun, condition string, id int64) error {
	usage, err := DescribeProfileUse(ctx, tx, condition, id)
	return deleteUnused(ctx, tx, table, noun, id, usage, err)
}

// ClearReferences sets a column to NULL in the rows that refer to a deleted item of another service, and records an edit
// of each row. before holds the members that the rows showed of the item.
func ClearReferences(ctx context.Context, tx *pg.Tx, table, column string, id int64, of pg.Target, before any) error {
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
