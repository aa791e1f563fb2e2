package host

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/secret"
)

// checkKey fails where what is sealed in a schema was sealed with another installation's key: it could not be opened, and
// what would be sealed from now on could not be opened with the right one. It is sealed anew with the newest key.
func checkKey(ctx context.Context, db *pg.DB, box *seal.Box) error {
	return db.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("nothing is changed")
		if err := checkSealed(ctx, tx, box); err != nil {
			return err
		}
		_, err := tx.Exec(
			ctx,
			"INSERT INTO key_check (sealed) VALUES ($1) ON CONFLICT (one) DO UPDATE SET sealed = EXCLUDED.sealed",
			box.Seal(keyCheckCell, secret.New("key check")),
		)
		return err
	})
}

var keyCheckCell = seal.Location{Table: "key_check", Column: "sealed", ID: 1}

// checkSealed fails where the box does not open what was sealed to find that out.
func checkSealed(ctx context.Context, q pg.Querier, box *seal.Box) error {
	var sealed []byte
	err := q.QueryRow(ctx, "SELECT sealed FROM key_check").Scan(&sealed)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil // nothing is sealed yet
	}
	if err != nil {
		return fmt.Errorf("read what the key is compared with: %w", err)
	}
	if _, err := box.Open(keyCheckCell, sealed); err != nil {
		return fmt.Errorf(
			"the key is not the one that this installation's secrets are sealed with: set the master key back, or put it behind the new one with "+
				"a comma: %w",
			err,
		)
	}
	return nil
}
