package rest

import (
	"context"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
)

// insertTogether checks rows and inserts them with InsertMany. It reports false if the resource has no InsertMany, or a row
// has an error: then each row has to be inserted by itself, to find those with errors.
func (r *Collection[V, B]) insertTogether(ctx context.Context, tx *pg.Tx, rows []*B) (ids []int64, ok bool) {
	if r.InsertMany == nil || len(rows) == 0 {
		return nil, false
	}
	err := tx.Savepoint(ctx, func() (err error) {
		for _, row := range rows {
			if err := r.Check(ctx, tx, 0, nil, row); err != nil {
				return err
			}
		}
		ids, err = r.InsertMany(ctx, tx, rows)
		return err
	})
	return ids, err == nil
}
