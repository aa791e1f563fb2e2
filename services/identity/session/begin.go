package session

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/apikey"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/settings"
	"github.com/ironplane/ironplane/services/identity/access"
	"github.com/ironplane/ironplane/services/identity/keys"
)

const (
	sessionName = "Session"
	// actingTTL is how long an acting session can be renewed.
	actingTTL = 12 * time.Hour
	// oldValueTTL is how long a session's value stays good after it was replaced. A session has at most maxOldValues of them.
	oldValueTTL  = time.Minute
	maxOldValues = 10
	// maxSessions bounds an account's sessions of a kind. Another one ends those that expire first.
	maxSessions = 50
)

// Options are what a session begins with.
type Options struct {
	Kind        string
	Owner       principal.Owner
	Bound       access.Bound
	MadeWith    *int64           // the key with which the session ends; nil: none
	Actor       *principal.Owner // nil: the owner
	Credentials int64            // the version of the owner's credentials, of a client
	Latest      *time.Time       // when the session ends at the latest; nil: when the settings say
}

// begin begins a session, and returns its key with the value.
func (s *Service) begin(ctx context.Context, tx *pg.Tx, n Options) (key keys.APIKey, err error) {
	if err := s.makeRoom(ctx, tx, n); err != nil {
		return key, err
	}
	value := apikey.New()
	hash := apikey.Hash(value.Reveal())
	var actorType *principal.OwnerType
	var actorID, credentials *int64
	if n.Actor != nil {
		actorType, actorID = &n.Actor.Type, &n.Actor.ID
	}
	if n.Credentials != 0 {
		credentials = &n.Credentials
	}
	var id int64
	err = tx.QueryRow(
		ctx,
		`
		INSERT INTO api_key (name, owner_type, owner_id, hash, kind, bound, made_with, actor_type, actor_id, ip, agent, credentials, expires_at)
		VALUES (@name, @owner_type, @owner_id, @hash, @kind, @bound, @made_with, @actor_type, @actor_id, @ip, @agent, @credentials,
			least(now() + @ttl, @latest::timestamptz))
		RETURNING id`,
		pgx.StrictNamedArgs{
			"name": sessionName, "owner_type": n.Owner.Type, "owner_id": n.Owner.ID, "hash": hash[:],
			"kind": n.Kind, "bound": access.BoundNames(n.Bound), "made_with": n.MadeWith,
			"actor_type": actorType, "actor_id": actorID, "ip": access.Address(ctx), "agent": agent(ctx), "credentials": credentials,
			"ttl": s.sessionTTL(), "latest": n.Latest,
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

// maxAgent bounds what is kept of a User-Agent, in bytes.
const maxAgent = 500

// agent returns the caller's User-Agent.
func agent(ctx context.Context) string {
	name := principal.From(ctx).Agent
	return strings.ToValidUTF8(name[:min(len(name), maxAgent)], "")
}

func (s *Service) sessionTTL() time.Duration {
	return time.Duration(settings.SessionDuration.In(s.Settings.Values())) * time.Minute
}

// makeRoom ends the session that expires first, where the account has maxSessions of the kind.
func (s *Service) makeRoom(ctx context.Context, tx *pg.Tx, n Options) error {
	ended, err := keys.End(
		ctx,
		tx,
		`id IN (SELECT id FROM api_key WHERE owner_type = $1 AND owner_id = $2 AND kind = $3 ORDER BY expires_at DESC, id DESC OFFSET $4)`,
		n.Owner.Type,
		n.Owner.ID,
		n.Kind,
		maxSessions-1,
	)
	if len(ended) > 0 {
		keys.Revoke(tx, s.Entries, ended...)
	}
	return err
}
