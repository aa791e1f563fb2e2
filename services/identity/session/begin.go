package session

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/apikey"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/settings"
	"github.com/ironplane/ironplane/services/identity/access"
	"github.com/ironplane/ironplane/services/identity/keys"
)

const (
	sessionName = "Session"
	// actingTTL is how long an acting session can be renewed.
	actingTTL = 12 * time.Hour
	// oldValueTTL is how long a session's value stays valid after it was replaced. A session keeps at most maxOldValues of them.
	oldValueTTL  = time.Minute
	maxOldValues = 10
	// maxSessions bounds an account's sessions of a kind. A further session ends the one that expires first.
	maxSessions = 50
)

// Options describe a new session.
type Options struct {
	Kind        string
	Owner       principal.Owner
	Bound       access.Bound
	ParentKey   *int64           // the session ends when this key is deleted; nil: none
	Actor       *principal.Owner // nil: the owner itself
	Credentials int64            // the version of a client's credentials
	Network     netip.Prefix     // the network that the session may be used from; the zero Prefix: as ParentKey's sessions
	Latest      *time.Time       // the latest end of the session; nil: by the settings
}

// begin begins a session, and returns its key with the value.
func (s *Service) begin(ctx context.Context, tx *pg.Tx, o Options) (key keys.APIKey, err error) {
	if err := s.endOldest(ctx, tx, o); err != nil {
		return key, err
	}
	value := apikey.New()
	hash := apikey.Hash(value.Reveal())
	var actorType *principal.OwnerType
	var actorID, credentials *int64
	if o.Actor != nil {
		actorType, actorID = &o.Actor.Type, &o.Actor.ID
	}
	if o.Credentials != 0 {
		credentials = &o.Credentials
	}
	networks := []string{}
	if o.Network.IsValid() {
		networks = append(networks, o.Network.String())
	}
	var id int64
	err = tx.QueryRow(
		ctx,
		`
		INSERT INTO api_key (name, owner_type, owner_id, hash, kind, bound, made_with, actor_type, actor_id, ip, agent, credentials, allowed_cidrs, maker_id, expires_at)
		VALUES (@name, @owner_type, @owner_id, @hash, @kind, @bound, @made_with, @actor_type, @actor_id, @ip, @agent, @credentials, @allowed_cidrs,
			(SELECT maker_id FROM api_key WHERE id = @made_with),
			least(now() + @ttl, @latest::timestamptz))
		RETURNING id`,
		pgx.StrictNamedArgs{
			"name": sessionName, "owner_type": o.Owner.Type, "owner_id": o.Owner.ID, "hash": hash[:],
			"kind": o.Kind, "bound": access.BoundNames(o.Bound), "made_with": o.ParentKey,
			"actor_type": actorType, "actor_id": actorID, "ip": access.Address(ctx), "agent": userAgent(ctx), "credentials": credentials,
			"allowed_cidrs": networks,
			"ttl":           s.sessionTTL(), "latest": o.Latest,
		},
	).Scan(&id)
	if err != nil {
		return key, fmt.Errorf("begin a session: %w", err)
	}
	if key, err = keys.View.Get(ctx, tx, id); err != nil {
		return key, fmt.Errorf("read a session's key: %w", err)
	}
	key.Key = value.Reveal()
	return key, nil
}

// maxAgent bounds the stored part of a User-Agent header, in bytes.
const maxAgent = 500

// userAgent returns the caller's User-Agent header.
func userAgent(ctx context.Context) string {
	name := principal.FromContext(ctx).Agent
	return strings.ToValidUTF8(name[:min(len(name), maxAgent)], "")
}

// sessionTTL returns how long a session lasts without a renewal.
func (s *Service) sessionTTL() time.Duration {
	return time.Duration(settings.SessionDuration.In(s.Settings.Values())) * time.Minute
}

// endOldest ends the session that expires first if the account has maxSessions of this kind. It refuses the new session if it would
// end the session that the new one was made with.
func (s *Service) endOldest(ctx context.Context, tx *pg.Tx, o Options) error {
	ended, err := keys.End(
		ctx,
		tx,
		`id IN (SELECT id FROM api_key WHERE owner_type = $1 AND owner_id = $2 AND kind = $3 ORDER BY expires_at DESC, id DESC OFFSET $4)`,
		o.Owner.Type,
		o.Owner.ID,
		o.Kind,
		maxSessions-1,
	)
	if err != nil || len(ended) == 0 {
		return err
	}
	keys.Revoke(tx, s.Entries, ended...)
	if o.ParentKey == nil {
		return nil
	}
	var hasParent bool
	err = tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM api_key WHERE id = $1)", *o.ParentKey).Scan(&hasParent)
	if err == nil && !hasParent {
		err = problem.New(
			problem.Conflict,
			"The account has %d acting sessions, and the session that made the code ends first. Begin another one, and make a new code.",
			maxSessions,
		)
	}
	return err
}
