package session

import (
	"context"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/services/identity/access"
	"github.com/ironplane/ironplane/services/identity/keys"
)

// Act begins a session in which the caller acts for an account. isAbove says whether the caller is a client above that one.
func (s *Service) Act(ctx context.Context, tx *pg.Tx, owner principal.Owner, isAbove bool) (keys.APIKey, error) {
	c, err := access.LockCaller(ctx, tx)
	if err != nil {
		return keys.APIKey{}, err
	}
	if err := s.Rules.CheckActFor(ctx, tx, c, owner, isAbove); err != nil {
		return keys.APIKey{}, err
	}
	return s.BeginActing(
		ctx,
		tx,
		Options{Owner: owner, Bound: c.Bound, ParentKey: &c.KeyID, Actor: &c.Owner},
		principal.FromContext(ctx).Principal.Name,
		c.KeyExpires,
	)
}

// BeginActing begins a session of o.Actor for an account. It ends no later than latest, when the actor's key expires. The log has
// at most one such session an hour for each actor and account.
func (s *Service) BeginActing(ctx context.Context, tx *pg.Tx, o Options, actorName string, latest *rest.Timestamp) (keys.APIKey, error) {
	if o.Kind = keys.Acting; latest != nil {
		o.Latest = &latest.Time
	}
	key, err := s.begin(ctx, tx, o)
	if err != nil {
		return key, err
	}
	actor, owner := o.Actor, o.Owner
	logged, err := tx.Exec(ctx, `
		INSERT INTO acting_logged AS l (actor_type, actor_id, owner_type, owner_id) VALUES ($1, $2, $3, $4)
		ON CONFLICT (owner_type, owner_id, actor_type, actor_id) DO UPDATE SET at = now() WHERE l.at < now() - interval '1 hour'`, actor.Type, actor.ID, owner.Type, owner.ID)
	if err != nil {
		return key, err
	}
	tx.Unrecorded("such a session was recorded within the last hour")
	if logged.RowsAffected() > 0 {
		name := ""
		if key.Owner.Name != nil {
			name = *key.Owner.Name
		}
		tx.Record(
			pg.Record{
				Kind:   "auth.session",
				Action: "began",
				After:  map[string]any{"expires_at": key.ExpiresAt, "actor": actor.URL()},
				Targets: []pg.Target{
					{
						Type: string(owner.Type),
						Noun: string(owner.Type),
						ID:   owner.ID,
						Name: name,
					},
					{Type: string(actor.Type), Noun: string(actor.Type), ID: actor.ID, Name: actorName},
				},
			},
		)
	}
	return key, nil
}
