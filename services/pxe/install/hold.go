package install

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/wake"
)

// maxAsked is how many clients one question to the clients service names.
const maxAsked = 500

// HoldSuspended holds the waiting installs of suspended clients, and lets those of the others go on. A held install gives its machine
// no boot script, and does not lapse.
func (s *Installs) HoldSuspended(ctx context.Context) error {
	for after := int64(0); ; {
		rows, err := s.DB.Query(ctx, `SELECT DISTINCT client_id FROM install WHERE status = 'waiting' AND client_id > $1 ORDER BY 1 LIMIT $2`,
			after, maxAsked)
		if err != nil {
			return fmt.Errorf("find the clients of waiting installs: %w", err)
		}
		clients, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil {
			return fmt.Errorf("find the clients of waiting installs: %w", err)
		}
		if len(clients) == 0 {
			return nil
		}
		if err := s.hold(ctx, clients); err != nil {
			return err
		}
		after = clients[len(clients)-1]
	}
}

// hold asks which of the clients are suspended, and holds the waiting installs of these. Only one transaction at a time asks: an older
// answer must not replace a newer one.
func (s *Installs) hold(ctx context.Context, clients []int64) error {
	ids, err := json.Marshal(clients)
	if err != nil {
		return err
	}
	return s.DB.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("the suspension is recorded by clients")
		if err := tx.Lock(ctx, "holds of installs", 0); err != nil {
			return err
		}
		suspended := []int64{}
		if s.ask(ctx, "clients", "clients", "/internal/suspended?clients="+url.QueryEscape(string(ids)), &suspended) != nil {
			return nil // the service is away, or of an earlier version: the next call asks again
		}
		done, err := tx.Exec(ctx, `
			UPDATE install SET held = NOT held, revision = nextval('install_revision'), stage_at = now() WHERE id IN (
				SELECT id FROM install WHERE status = 'waiting' AND client_id = ANY ($1) AND held <> (client_id = ANY ($2)) ORDER BY id FOR UPDATE)`,
			clients, suspended)
		if err != nil {
			return fmt.Errorf("hold the installs of suspended clients: %w", err)
		}
		if done.RowsAffected() > 0 {
			tx.Wake(wake.Changes) // so that agents learn of it
		}
		return nil
	})
}
