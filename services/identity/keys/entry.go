package keys

import (
	"context"
	"encoding/hex"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/keycache"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/services/identity/access"
)

// keyHash is the SHA-256 of a key, in hexadecimal.
type keyHash struct {
	Hash string `path:"hash"`
}

// InternalRoutes returns the operations by which gateways look up keys. Each result is also stored in Redis, where gateways look
// first.
func (s *Service) InternalRoutes() []rest.Route {
	gateway := guard.Peers(principal.Gateway)
	return []rest.Route{
		rest.Read[keyHash, keycache.Key]{Path: "/internal/key/{hash}", Guard: gateway,
			Do: func(ctx context.Context, req keyHash) (keycache.Key, error) {
				return keycache.Fill(ctx, s.Entries, keycache.KeyName(req.Hash), func(ctx context.Context) (keycache.Key, error) {
					return s.readEntry(ctx, req.Hash)
				})
			}},
		rest.Read[rest.None, keycache.Imports]{Path: "/internal/imports", Guard: gateway,
			Do: func(ctx context.Context, _ rest.None) (keycache.Imports, error) {
				return keycache.Fill(ctx, s.Entries, keycache.ImportsName, func(ctx context.Context) (i keycache.Imports, err error) {
					err = s.DB.QueryRow(ctx, "SELECT EXISTS (SELECT FROM api_key WHERE imported)").Scan(&i.Any)
					return i, err
				})
			}},
		s.usageRoute(),
	}
}

// readEntry reads what gateways need to know of a key. It returns the zero Key if no key has this hash.
func (s *Service) readEntry(ctx context.Context, hash string) (keycache.Key, error) {
	raw, err := hex.DecodeString(hash)
	if err != nil {
		return keycache.Key{}, pgx.ErrNoRows
	}
	var key keycache.Key
	var boundNames *[]string
	var networks []string
	var actorType *principal.OwnerType
	var signedIn *time.Time
	err = s.DB.QueryRow(ctx, `
		SELECT k.id, owner_type, owner_id, least(expires_at, until), bound, actor_type, coalesce(actor_id, 0), CASE kind WHEN 'login' THEN created_at END, coalesce(credentials, 0),
			(SELECT allowed_cidrs FROM api_key_view v WHERE v.id = k.id), coalesce(maker_id, 0)
		FROM (SELECT id, NULL::timestamptz AS until FROM api_key WHERE hash = $1 UNION ALL SELECT key_id, until FROM session_value WHERE hash = $1) value JOIN api_key k USING (id)`, raw).
		Scan(
			&key.ID, &key.Owner.Type, &key.Owner.ID, &key.Expires, &boundNames,
			&actorType, &key.Actor.ID, &signedIn, &key.Credentials, &networks, &key.Maker,
		)
	if errors.Is(err, pgx.ErrNoRows) {
		return keycache.Key{}, nil
	}
	key.Bound, key.Networks = access.ParseBound(boundNames), parseNetworks(networks)
	if actorType != nil {
		key.Actor.Type = *actorType
	}
	if signedIn != nil {
		key.SignedIn = *signedIn
	}
	return key, err
}

// Revoke removes entries from Redis after tx has committed. A unit of work calls it once, because each call waits if Redis is
// unavailable.
func Revoke(tx *pg.Tx, entries *keycache.Store, names ...string) {
	tx.Wake(keycache.Revoked)
	tx.AfterCommit(func(ctx context.Context) error { return entries.Remove(ctx, names...) })
}

// EntryName returns the name of the Redis entry for the key with this hash.
func EntryName(hash []byte) string { return keycache.KeyName(hex.EncodeToString(hash)) }
