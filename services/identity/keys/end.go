package keys

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/keycache"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
)

// End deletes the keys that meet a condition, and the sessions that were created with them. It returns the names of their entries
// in Redis, for Revoke.
func End(ctx context.Context, tx *pg.Tx, condition string, args ...any) (names []string, err error) {
	if names, err = entryNames(ctx, tx, condition, args...); err != nil || len(names) == 0 {
		return nil, err
	}
	if _, err = tx.Exec(ctx, "DELETE FROM api_key WHERE "+condition, args...); err != nil {
		return nil, fmt.Errorf("end keys: %w", err)
	}
	return names, nil
}

// entryNames returns the names of the entries in Redis for the keys that meet a condition, and for the sessions that were created
// with them. Those may have created further ones, at any depth.
func entryNames(ctx context.Context, tx *pg.Tx, condition string, args ...any) (names []string, err error) {
	rows, err := tx.Query(ctx, `
		WITH RECURSIVE all_keys AS (SELECT id FROM api_key WHERE `+condition+` UNION SELECT k.id FROM api_key k JOIN all_keys a ON k.made_with = a.id)
		SELECT hash FROM api_key JOIN all_keys USING (id) UNION ALL SELECT hash FROM session_value v JOIN all_keys a ON v.key_id = a.id`, args...)
	if err != nil {
		return nil, fmt.Errorf("find the entries of keys: %w", err)
	}
	hashes, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
	for _, hash := range hashes {
		names = append(names, EntryName(hash))
	}
	return names, err
}

// EndLinks deletes an account's links, codes and pending sign-ins.
func EndLinks(ctx context.Context, tx *pg.Tx, owner principal.Owner) error {
	for _, table := range []string{"password_reset", "sso_code", "verify_code"} {
		if _, err := tx.Exec(ctx, "DELETE FROM "+table+" WHERE owner_type = $1 AND owner_id = $2", owner.Type, owner.ID); err != nil {
			return fmt.Errorf("end the links of %s: %w", owner.URL(), err)
		}
	}
	if owner.Type == principal.Admin {
		if _, err := tx.Exec(ctx, "DELETE FROM openid_login WHERE admin_id = $1", owner.ID); err != nil {
			return fmt.Errorf("end the sign-ins of %s: %w", owner.URL(), err)
		}
	}
	return nil
}

// EndSecondFactors deletes the second factors of an account, and returns the number of authenticators.
func EndSecondFactors(ctx context.Context, tx *pg.Tx, owner principal.Owner) (n int64, err error) {
	for _, table := range []string{"verify_code", "recovery_code", "authenticator"} {
		deleted, err := tx.Exec(
			ctx,
			"DELETE FROM "+pgx.Identifier{table}.Sanitize()+" WHERE owner_type = $1 AND owner_id = $2",
			owner.Type,
			owner.ID,
		)
		if err != nil {
			return 0, fmt.Errorf("delete the second factors of %s: %w", owner.URL(), err)
		}
		n = deleted.RowsAffected()
	}
	return n, nil
}

// EndAccount deletes everything that belongs to a deleted account. It returns the names of its keys' entries in Redis, for Revoke.
func EndAccount(ctx context.Context, tx *pg.Tx, owner principal.Owner) (names []string, err error) {
	if names, err = End(ctx, tx, "owner_type = $1 AND owner_id = $2", owner.Type, owner.ID); err != nil {
		return nil, err
	}
	if err = EndLinks(ctx, tx, owner); err != nil {
		return nil, err
	}
	if _, err = tx.Exec(ctx, "DELETE FROM signed_in_from WHERE owner_type = $1 AND owner_id = $2", owner.Type, owner.ID); err != nil {
		return nil, fmt.Errorf("delete the networks of %s: %w", owner.URL(), err)
	}
	if _, err = tx.Exec(ctx, "DELETE FROM failed_login WHERE owner_type = $1 AND owner_id = $2", owner.Type, owner.ID); err != nil {
		return nil, fmt.Errorf("delete the failed logins of %s: %w", owner.URL(), err)
	}
	_, err = EndSecondFactors(ctx, tx, owner)
	return names, err
}

// DeleteAccount is EndAccount for an account of another service. It records that its keys are deleted.
func DeleteAccount(ctx context.Context, tx *pg.Tx, entries *keycache.Store, owner principal.Owner) error {
	rows, err := tx.Query(
		ctx,
		"SELECT id, version, name FROM api_key WHERE owner_type = $1 AND owner_id = $2 AND kind <> 'acting'",
		owner.Type,
		owner.ID,
	)
	if err != nil {
		return fmt.Errorf("read the keys of %s: %w", owner.URL(), err)
	}
	deleted, err := pgx.CollectRows(rows, pgx.RowToStructByPos[struct {
		ID, Version int64
		Name        string
	}])
	if err != nil {
		return fmt.Errorf("read the keys of %s: %w", owner.URL(), err)
	}
	for _, key := range deleted {
		tx.Record(
			pg.Record{
				Kind:    "auth.key",
				Action:  pg.Deleted,
				Targets: []pg.Target{{Type: "auth/key", Noun: "API key", ID: key.ID, Name: key.Name, Version: key.Version}},
				Before:  APIKey{ID: key.ID, Name: key.Name, Owner: KeyOwner{ID: owner.ID, URL: owner.URL()}},
			},
		)
	}
	names, err := EndAccount(ctx, tx, owner)
	if len(names) > 0 {
		Revoke(tx, entries, names...)
	}
	return err
}
