package pg

import (
	"context"
	"fmt"
	"slices"
)

// Lock waits until no other transaction holds these numbers of this name, and holds them until the transaction ends. To avoid
// deadlocks, it adds missing rows before it locks any, and does both in ascending order. Each number that was ever locked keeps a
// row. Advisory locks would be open to every role of the database.
func (tx *Tx) Lock(ctx context.Context, name string, numbers ...int64) error {
	slices.Sort(numbers)
	numbers = slices.Compact(numbers)
	tx.ahead = append(tx.ahead, command{`
		INSERT INTO lock SELECT $1, n FROM unnest($2::bigint[]) n
		WHERE NOT EXISTS (SELECT FROM lock WHERE name = $1 AND number = n) ORDER BY n ON CONFLICT DO NOTHING`, []any{name, numbers}})
	_, err := tx.Exec(ctx, "SELECT FROM lock WHERE name = $1 AND number = ANY ($2) ORDER BY number FOR UPDATE", name, numbers)
	if err != nil {
		return fmt.Errorf("lock %s %v: %w", name, numbers, err)
	}
	return nil
}
