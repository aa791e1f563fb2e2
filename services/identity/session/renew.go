package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/apikey"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/settings"
	"github.com/ironplane/ironplane/services/identity/keys"
)

// Renew gives the calling session a new value and more time, and returns its key.
func (s *Service) Renew(ctx context.Context, tx *pg.Tx) (key keys.APIKey, err error) {
	id := principal.FromContext(ctx).Principal.KeyID
	var kind string
	var old []byte
	var began time.Time
	var parentExpires *time.Time
	err = tx.QueryRow(ctx, `
		SELECT k.kind, k.hash, k.created_at, m.expires_at FROM api_key k LEFT JOIN api_key m ON m.id = k.made_with
		WHERE k.id = $1 AND (k.expires_at IS NULL OR k.expires_at > clock_timestamp()) FOR UPDATE OF k`, id).Scan(&kind, &old, &began, &parentExpires)
	if errors.Is(err, pgx.ErrNoRows) {
		return key, apikey.Invalid()
	}
	if err != nil {
		return key, fmt.Errorf("read the calling session: %w", err)
	}
	latest := parentExpires
	switch maxDuration := time.Duration(settings.MaxSessionDuration.In(s.Settings.Values())) * time.Minute; {
	case kind == keys.Lasting:
		return key, problem.Member("/name", "required", "is required: only a session can be renewed, and the calling key is not a session")
	case kind == keys.Acting:
		latest = earlier(latest, began.Add(actingTTL))
	case maxDuration > 0:
		latest = earlier(latest, began.Add(maxDuration))
	}
	value := apikey.New()
	hash := apikey.Hash(value.Reveal())
	for _, step := range []struct {
		sql  string
		args []any
	}{
		{
			"INSERT INTO session_value (hash, key_id, until) SELECT hash, id, least(clock_timestamp() + $2, expires_at) FROM api_key WHERE id = $1",
			[]any{id, oldValueTTL},
		},
		{
			"UPDATE api_key SET version = version + 1, hash = $2, expires_at = least(now() + $3, $4::timestamptz) WHERE id = $1",
			[]any{id, hash[:], s.sessionTTL(), latest},
		},
	} {
		if _, err := tx.Exec(ctx, step.sql, step.args...); err != nil {
			return key, fmt.Errorf("renew a session: %w", err)
		}
	}
	rows, err := tx.Query(ctx, `
		DELETE FROM session_value WHERE key_id = $1 AND hash IN (SELECT hash FROM session_value WHERE key_id = $1 ORDER BY until DESC OFFSET $2) RETURNING hash`, id, maxOldValues)
	if err != nil {
		return key, fmt.Errorf("end a session's old values: %w", err)
	}
	ended, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
	if err != nil {
		return key, fmt.Errorf("end a session's old values: %w", err)
	}
	names := []string{}
	for _, hash := range append(ended, old) {
		names = append(names, keys.EntryName(hash))
	}
	keys.Revoke(tx, s.Entries, names...)
	if key, err = keys.View.Get(ctx, tx, id); err != nil {
		return key, fmt.Errorf("read the session's key: %w", err)
	}
	key.Key = value.Reveal()
	tx.Unrecorded("the session continues")
	return key, nil
}

func earlier(a *time.Time, b time.Time) *time.Time {
	if a != nil && a.Before(b) {
		return a
	}
	return &b
}
