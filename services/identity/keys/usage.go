package keys

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/keycache"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/services/identity/person"
)

// usedKeys are the ids of keys, separated by commas.
type usedKeys struct {
	Keys string `query:"keys" max:"20000"`
}

// usageRoute stores which keys a gateway has seen since its last report.
func (s *Service) usageRoute() rest.Route {
	return rest.Read[usedKeys, rest.None]{
		Path:   keycache.UsagePath,
		Guard:  guard.Peers(principal.Gateway),
		Writes: true,
		Do: func(ctx context.Context, req usedKeys) (none rest.None, err error) {
			var ids []int64
			for text := range strings.SplitSeq(req.Keys, ",") {
				id, err := strconv.ParseInt(text, 10, 64)
				if err != nil {
					return none, fmt.Errorf("parse the ids of used keys: %w", err)
				}
				ids = append(ids, id)
			}
			return none, s.DB.InTx(ctx, func(tx *pg.Tx) error {
				tx.Unrecorded("the requests that used the keys are recorded")
				_, err := tx.Exec(ctx, `UPDATE api_key SET last_used_at = now() WHERE id IN (
				SELECT id FROM api_key WHERE id = ANY ($1) AND (last_used_at IS NULL OR last_used_at < now() - interval '1 minute') ORDER BY id FOR NO KEY UPDATE SKIP LOCKED)`, ids)
				return err
			})
		},
	}
}

const (
	// WarnInterval is the shortest time between two runs of Warn.
	WarnInterval = 10 * time.Second
	warnBefore   = 7 * 24 * time.Hour // a key expires
	maxWarned    = 100                // keys in one run
)

// Warn mails the owners of keys that expire within a week. It skips keys that were created for a shorter time.
func (s *Service) Warn(ctx context.Context) error {
	err := s.DB.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("callers see no change")
		rows, err := tx.Query(ctx, `
			UPDATE api_key SET warned_for = expires_at WHERE id IN (
				SELECT id FROM api_key WHERE kind = 'lasting' AND expires_at BETWEEN now() AND now() + $1 AND expires_at - created_at > $1 AND warned_for IS DISTINCT FROM expires_at
				ORDER BY expires_at LIMIT $2 FOR UPDATE SKIP LOCKED)
			RETURNING owner_type, owner_id, name, expires_at`, warnBefore, maxWarned)
		if err != nil {
			return err
		}
		notices, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (k person.Notice, err error) {
			return k, row.Scan(&k.Owner.Type, &k.Owner.ID, &k.Key, &k.Expires)
		})
		if err != nil {
			return err
		}
		for _, key := range notices {
			key.Expires = key.Expires.UTC()
			if err := s.People.NotifyLater(ctx, tx, key); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("warn of keys that expire: %w", err)
	}
	return nil
}
