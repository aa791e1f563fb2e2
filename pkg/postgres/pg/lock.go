package pg

import (
	"context"
	"fmt"
	"slices"
)

// Lock holds others off until the transaction ends who lock the same name and number: of several numbers, the lowest
// first. Each number that was ever locked keeps a row. An advisory lock could be taken by every role of the database.
func (tx *Tx) Lock(ctx context.Context, name string, numbers ...int64) error {
	slices.Sort(numbers)
	numbers = slices.Compact(numbers)
	const lock = "SELECT FROM lock WHERE name = $1 AND number = ANY ($2) ORDER BY number FOR UPDATE"
	locked, err := tx.Exec(ctx, lock, name, numbers)
	if err == nil && locked.RowsAffected() < int64(len(numbers)) { // who is first waits, if for another one, at the primary key
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
