// Package session manages sessions: keys that expire unless they are renewed. A session begins with a login, with a link, or when a
// caller acts for an account.
package session

import (
	"context"
	"fmt"
	"net/http"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/keycache"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/settings"
	"github.com/ironplane/ironplane/services/identity/access"
	"github.com/ironplane/ironplane/services/identity/keys"
	"github.com/ironplane/ironplane/services/identity/person"
)

// Service begins, renews and ends sessions.
type Service struct {
	DB       *pg.DB
	Box      *seal.Box
	Entries  *keycache.Store
	Settings *settings.Follower
	Rules    *access.Rules
	People   *person.Directory
}

// Session is a key that expires unless it is renewed.
type Session struct {
	rest.Versioned
	ID        int64           `json:"id" db:"id" doc:"The id of the session's key."`
	Name      string          `json:"name" db:"name"`
	CreatedAt rest.Timestamp  `json:"created_at" db:"created_at" doc:"When the session began."`
	ExpiresAt rest.Timestamp  `json:"expires_at" db:"expires_at" doc:"When the session ends, unless it is renewed."`
	IP        string          `json:"ip" db:"ip" doc:"The address that the session began from."`
	Agent     string          `json:"agent,omitempty" db:"agent" doc:"The program that began the session, by its User-Agent header."`
	LastUsed  *rest.Timestamp `json:"last_used_at,omitempty" db:"last_used_at" recorded:"false" doc:"When the session was last used, accurate to a few minutes."`
	Acting    bool            `json:"acting" db:"acting" doc:"Whether the session began by a link, or by somebody else who acts for the account. Acting sessions change no keys, passwords or second factors."`
	Actor     *keys.KeyOwner  `json:"actor,omitempty" db:"actor_" doc:"The account that began an acting session."`
}

// Routes returns the operations on the caller's own sessions.
func (s *Service) Routes() []rest.Route {
	own := rest.Resource[Session, sessionBody]{
		Path:       "/auth/session",
		ID:         "session_id",
		Noun:       "session",
		Guard:      guard.ForCredentials(guard.AnyKey),
		Extensions: rest.Listing | rest.Viewing | rest.Deleting,
		Without:    rest.Creating | rest.Editing,
		Table:      "api_key",
		View:       "session_view",
		Scope:      ownSessions,
		List:       rest.ListOptions{Sorts: map[string]string{"expires_at": "expires_at"}},
		Lock: func(ctx context.Context, tx *pg.Tx, _ rest.Verbs, _ ...*sessionBody) error {
			_, err := access.ReadCaller(ctx, tx)
			return err
		},
		Delete: func(ctx context.Context, tx *pg.Tx, session *Session) error {
			ended, err := keys.End(ctx, tx, "id = $1", session.ID)
			keys.Revoke(tx, s.Entries, ended...)
			return err
		},
	}.Routes()
	return append(
		own,
		rest.Mutation[rest.None, rest.Message]{
			Method:    http.MethodDelete,
			Path:      "/auth/session",
			Guard:     guard.ForCredentials(guard.AnyKey),
			Name:      "endOtherSessions",
			Summary:   "End the caller's other sessions",
			Extension: true,
			Effect:    rest.Effect{Logs: rest.LogsSummary, Retry: rest.RetryRepeats},
			Do:        s.endOthers,
		},
		rest.Mutation[rest.None, rest.Message]{
			Method:    http.MethodDelete,
			Path:      "/auth/key/current",
			Guard:     guard.AnyKey,
			Name:      "deleteCurrentAPIKey",
			Summary:   "Log out: delete the key of this request",
			Extension: true,
			Effect:    rest.Effect{Logs: rest.LogsItem, Retry: rest.RetryRefused},
			Do:        s.logOut,
		},
	)
}

type sessionBody struct {
	Name string `json:"name" db:"name"`
}

// ownSessions returns the condition for the caller's sessions.
func ownSessions(ctx context.Context) []pg.Condition {
	owner := principal.FromContext(ctx).Principal.Owner
	return []pg.Condition{{SQL: "owner_type = $1 AND owner_id = $2", Args: []any{owner.Type, owner.ID}}}
}

// endOthers ends the caller's sessions except for the calling one.
func (s *Service) endOthers(ctx context.Context, tx *pg.Tx, _ rest.None) (rest.Message, error) {
	if _, err := access.ReadCaller(ctx, tx); err != nil {
		return rest.Message{}, err
	}
	caller := principal.FromContext(ctx).Principal
	n, err := s.endSessions(ctx, tx, caller.Owner, caller.KeyID)
	if err != nil {
		return rest.Message{}, err
	}
	tx.Unrecorded("there was no other session")
	if n > 0 {
		tx.Record(
			pg.Record{
				Kind:    "auth.session",
				Action:  "ended",
				Targets: []pg.Target{{Type: string(caller.Owner.Type), Noun: string(caller.Owner.Type), ID: caller.Owner.ID, Name: caller.Name}},
				Before:  map[string]int{"sessions": n},
				After:   struct{}{},
			},
		)
	}
	return rest.Message{Message: fmt.Sprintf("Other sessions ended: %d.", n)}, nil
}

// endSessions ends the sessions of an account except for one, and returns how many it ended.
func (s *Service) endSessions(ctx context.Context, tx *pg.Tx, owner principal.Owner, except int64) (n int, err error) {
	const condition = "owner_type = $1 AND owner_id = $2 AND kind <> 'lasting' AND id <> $3"
	if err := tx.QueryRow(ctx, "SELECT count(*) FROM api_key WHERE expires_at > now() AND "+condition, owner.Type, owner.ID, except).
		Scan(&n); err != nil {
		return 0, fmt.Errorf("count the sessions of %s: %w", owner.URL(), err)
	}
	ended, err := keys.End(ctx, tx, condition, owner.Type, owner.ID, except)
	if len(ended) > 0 {
		keys.Revoke(tx, s.Entries, ended...)
	}
	return n, err
}

// logOut deletes the calling key.
func (s *Service) logOut(ctx context.Context, tx *pg.Tx, _ rest.None) (rest.Message, error) {
	if _, err := access.ReadCaller(ctx, tx); err != nil {
		return rest.Message{}, err
	}
	key, err := keys.View.Get(ctx, tx, principal.FromContext(ctx).Principal.KeyID)
	if err != nil {
		return rest.Message{}, fmt.Errorf("read the calling key: %w", err)
	}
	ended, err := keys.End(ctx, tx, "id = $1", key.ID)
	keys.Revoke(tx, s.Entries, ended...)
	tx.Record(pg.Record{Kind: "auth.key", Action: pg.Deleted, Targets: []pg.Target{keys.Target(&key)}, Before: key})
	return rest.Message{Message: fmt.Sprintf("API key %d deleted.", key.ID)}, err
}
