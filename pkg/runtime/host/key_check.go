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

// checkKey fails if the schema was sealed with another installation's key. Such values cannot be opened, and values sealed
// from now on could not be opened with the right key. On success it seals the test value again with the newest key.
func checkKey(ctx context.Context, db *pg.DB, box *seal.Box) error {
	return db.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("only the test value is sealed again")
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

// keyCheckCell is the location of the test value.
var keyCheckCell = seal.Location{Table: "key_check", Column: "sealed", ID: 1}

// checkSealed fails if the box does not open the test value.
func checkSealed(ctx context.Context, q pg.Querier, box *seal.Box) error {
	var sealed []byte
	err := q.QueryRow(ctx, "SELECT sealed FROM key_check").Scan(&sealed)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil // nothing is sealed yet
	}
	if err != nil {
		return fmt.Errorf("read the test value of the key: %w", err)
	}
	if _, err := box.Open(keyCheckCell, sealed); err != nil {
		return fmt.Errorf(
			"the key does not match this installation's sealed secrets: restore the master key, or append it to the new one after "+
				"a comma: %w",
			err,
		)
	}
	return nil
}
