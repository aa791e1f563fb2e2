package host

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/pg"
	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/secret"
)

// checkKey fails where what is sealed in a schema was sealed with another installation's key: it could not be opened, and
// what would be sealed from now on could not be opened with the right one. It is sealed anew with the newest key.
func checkKey(ctx context.Context, db *pg.DB, box *seal.Box) error {
	return db.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("nothing is changed")
		place := seal.Place{Table: "key_check", Column: "sealed", ID: 1}
		var sealed []byte
		err := tx.QueryRow(ctx, "SELECT sealed FROM key_check FOR UPDATE").Scan(&sealed)
		if err == nil {
			if _, err := box.Open(place, sealed); err != nil {
				return fmt.Errorf("the key is not the one that this installation's secrets are sealed with: set the master key back, or put it behind the new one with a comma: %w", err)
			}
		} else if !errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("read what the key is compared with: %w", err)
		}
		_, err = tx.Exec(ctx, "INSERT INTO key_check (sealed) VALUES ($1) ON CONFLICT (one) DO UPDATE SET sealed = EXCLUDED.sealed", box.Seal(place, secret.New("key check")))
		return err
	})
}
