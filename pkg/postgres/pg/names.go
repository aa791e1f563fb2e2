package pg

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
)

// FindNames returns the ids of the items with these names, by name.
type FindNames func(ctx context.Context, q Querier, names []string) (map[string][]int64, error)

// NamesIn finds items of a table or view with the columns id and name.
func NamesIn(table string) FindNames {
	sql := "SELECT name, array_agg(id ORDER BY id) FROM " + pgx.Identifier{table}.Sanitize() + " WHERE name = ANY ($1) GROUP BY name"
	return func(ctx context.Context, q Querier, names []string) (map[string][]int64, error) {
		rows, err := q.Query(ctx, sql, names)
		if err != nil {
			return nil, fmt.Errorf("find %s by name: %w", table, err)
		}
		found := map[string][]int64{}
		var name string
		var ids []int64
		_, err = pgx.ForEachRow(rows, []any{&name, &ids}, func() error {
			found[name] = slices.Clone(ids)
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("find %s by name: %w", table, err)
		}
		return found, nil
	}
}
