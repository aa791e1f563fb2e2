package pg

import (
	"context"
	"fmt"
	"slices"
)

// Lock waits until no other transaction holds these numbers of this name, and holds them until the transaction ends. It
// locks in ascending order, to avoid deadlocks. Each number that was ever locked keeps a row. Advisory locks would be open
// to every role of the database.
func (tx *Tx) Lock(ctx context.Context, name string, numbers ...int64) error {
	slices.Sort(numbers)
	numbers = slices.Compact(numbers)
	const lock = "SELECT FROM lock WHERE name = $1 AND number = ANY ($2) ORDER BY number FOR UPDATE"
	locked, err := tx.Exec(ctx, lock, name, numbers)
	if err == nil && locked.RowsAffected() < int64(len(numbers)) { // concurrent first locks of a number wait at the primary key
		_, err = tx.Exec(ctx, "INSERT INTO lock SELECT $1, unnest($2::bigint[]) ON CONFLICT DO NOTHING", name, numbers)
		if err == nil {
			_, err = tx.Exec(ctx, lock, name, numbers)
		}
	}
	if err != nil {
		return fmt.Errorf("lock %s %v: %w", name, numbers, err)
	}
	return nil
}
