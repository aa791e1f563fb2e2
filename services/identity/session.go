package identity

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/apikey"
	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/settings"
)

// What keys there are.
const (
	lasting = "lasting"
	login   = "login"  // a session that began with a login
	acting  = "acting" // a session of who acts for an account, or came by it with a link
)

const (
	sessionName = "Session"
	// actingTime is how long an acting session can be renewed.
	actingTime = 12 * time.Hour
	// oldValueTime is how long a session's value is good that was replaced, and mostOldValues how many of them there are.
	oldValueTime  = time.Minute
	mostOldValues = 10
	// mostSessions is how many sessions of a kind an account has; the idle ones go first.
	mostSessions = 50
)

// Session is a key that ends by itself, and that its holder renews.
type Session struct {
	rest.Versioned
	ID        int64           `json:"id" db:"id" doc:"its key's"`
	Name      string          `json:"name" db:"name"`
	CreatedAt rest.Timestamp  `json:"created_at" db:"created_at" doc:"when it began"`
	ExpiresAt rest.Timestamp  `json:"expires_at" db:"expires_at" doc:"when it ends, unless it is renewed"`
	IP        string          `json:"ip" db:"ip" doc:"the address that it began from"`
	Agent     string          `json:"agent,omitempty" db:"agent" doc:"the program that it began with, as that names itself: its User-Agent"`
	LastUsed  *rest.Timestamp `json:"last_used_at,omitempty" db:"last_used_at" recorded:"false" doc:"right within a few minutes"`
	Acting    bool            `json:"acting" db:"acting" doc:"whether somebody else uses the account by it, or who followed a link; such a one writes no keys, passwords and the like"`
	Actor     *KeyOwner       `json:"actor,omitempty" db:"actor_" doc:"of an acting one, who made it"`
}

// newSession is what a session begins with.
type newSession struct {
	kind        string
	owner       principal.Owner
	bound       bound
	madeWith    *int64
	actor       *principal.Owner
	credentials int64
	latest      *time.Time // when it ends at the latest; nil: when the settings say
}

// begin begins a session, and answers its key.
func (s *Service) begin(ctx context.Context, tx *pg.Tx, n newSession) (key APIKey, err error) {
	if err := s.makeRoom(ctx, tx, n); err != nil {
		return key, err
	}
	value := apikey.New()
	hash := apikey.Hash(value.Reveal())
	var actorType *principal.OwnerType
	var actorID, credentials *int64
	if n.actor != nil {
		actorType, actorID = &n.actor.Type, &n.actor.ID
	}
	if n.credentials != 0 {
		credentials = &n.credentials
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
			"name": sessionName, "owner_type": n.owner.Type, "owner_id": n.owner.ID, "hash": hash[:],
			"kind": n.kind, "bound": boundNames(n.bound), "made_with": n.madeWith,
			"actor_type": actorType, "actor_id": actorID, "ip": address(ctx), "agent": agent(ctx), "credentials": credentials,
			"ttl": s.sessionTime(), "latest": n.latest,
		},
	).Scan(&id)
	if err != nil {
		return key, fmt.Errorf("begin a session: %w", err)
	}
	if key, err = keyView.Get(ctx, tx, id); err != nil {
		return key, fmt.Errorf("read a session's key: %w", err)
	}
	key.Key = value.Reveal()
	return key, nil
}

// address is the caller's.
func address(ctx context.Context) netip.Addr {
	if ip := principal.From(ctx).IP; ip.IsValid() {
		return ip
	}
	return netip.IPv6Unspecified()
}

// longestAgent is how much is kept of what a program calls itself, in bytes.
const longestAgent = 500

// agent is what the caller's program calls itself.
func agent(ctx context.Context) string {
	name := principal.From(ctx).Agent
	return strings.ToValidUTF8(name[:min(len(name), longestAgent)], "")
}

func (s *Service) sessionTime() time.Duration {
	return time.Duration(settings.SessionDuration.In(s.settings.Values())) * time.Minute
}

// makeRoom ends sessions where the account has as many as it may.
func (s *Service) makeRoom(ctx context.Context, tx *pg.Tx, n newSession) error {
	ended, err := endKeys(
		ctx,
		tx,
		`id IN (SELECT id FROM api_key WHERE owner_type = $1 AND owner_id = $2 AND kind = $3 ORDER BY expires_at DESC, id DESC OFFSET $4)`,
		n.owner.Type,
		n.owner.ID,
		n.kind,
		mostSessions-1,
	)
	if len(ended) > 0 {
		s.revoke(tx, ended...)
	}
	return err
}

// endKeys deletes keys, with what ends with them, and answers the names of their entries.
func endKeys(ctx context.Context, tx *pg.Tx, which string, args ...any) (names []string, err error) {
	rows, err := tx.Query(ctx, `
		WITH named AS (SELECT id FROM api_key WHERE `+which+`),
			ended AS (SELECT id FROM named UNION SELECT k.id FROM api_key k JOIN named n ON k.made_with = n.id)
		SELECT hash FROM api_key JOIN ended USING (id) UNION ALL SELECT hash FROM session_value v JOIN ended e ON v.key_id = e.id`, args...)
	if err != nil {
		return nil, fmt.Errorf("look for keys that end: %w", err)
	}
	hashes, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
	if err != nil || len(hashes) == 0 {
		return nil, err
	}
	for _, hash := range hashes {
		names = append(names, keyName(hash))
	}
	if _, err = tx.Exec(ctx, "DELETE FROM api_key WHERE "+which, args...); err != nil {
		return nil, fmt.Errorf("end keys: %w", err)
	}
	return names, nil
}

// renew gives the calling session another value, and more time.
func (s *Service) renew(ctx context.Context, tx *pg.Tx) (key APIKey, err error) {
	id := principal.From(ctx).Principal.KeyID
	var kind string
	var old []byte
	var began time.Time
	var madeWithEnds *time.Time
	err = tx.QueryRow(ctx, `
		SELECT k.kind, k.hash, k.created_at, m.expires_at FROM api_key k LEFT JOIN api_key m ON m.id = k.made_with
		WHERE k.id = $1 AND (k.expires_at IS NULL OR k.expires_at > clock_timestamp()) FOR UPDATE OF k`, id).Scan(&kind, &old, &began, &madeWithEnds)
	if errors.Is(err, pgx.ErrNoRows) {
		return key, apikey.Invalid()
	}
	if err != nil {
		return key, fmt.Errorf("read the calling session: %w", err)
	}
	latest := madeWithEnds
	switch most := time.Duration(settings.SessionMost.In(s.settings.Values())) * time.Minute; {
	case kind == lasting:
		return key, problem.Member("/name", "required", "is required: the calling key is no session, which alone can be renewed")
	case kind == acting:
		latest = earlier(latest, began.Add(actingTime))
	case most > 0:
		latest = earlier(latest, began.Add(most))
	}
	value := apikey.New()
	hash := apikey.Hash(value.Reveal())
	for _, step := range []struct {
		sql  string
		args []any
	}{
		{"INSERT INTO session_value (hash, key_id, until) SELECT hash, id, least(clock_timestamp() + $2, expires_at) FROM api_key WHERE id = $1", []any{id, oldValueTime}},
		{"UPDATE api_key SET version = version + 1, hash = $2, expires_at = least(now() + $3, $4::timestamptz) WHERE id = $1", []any{id, hash[:], s.sessionTime(), latest}},
	} {
		if _, err := tx.Exec(ctx, step.sql, step.args...); err != nil {
			return key, fmt.Errorf("renew a session: %w", err)
		}
	}
	rows, err := tx.Query(ctx, `
		DELETE FROM session_value WHERE key_id = $1 AND hash IN (SELECT hash FROM session_value WHERE key_id = $1 ORDER BY until DESC OFFSET $2) RETURNING hash`, id, mostOldValues)
	if err != nil {
		return key, fmt.Errorf("end a session's old values: %w", err)
	}
	ended, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
	if err != nil {
		return key, fmt.Errorf("end a session's old values: %w", err)
	}
	names := []string{}
	for _, hash := range append(ended, old) {
		names = append(names, keyName(hash))
	}
	s.revoke(tx, names...)
	if key, err = keyView.Get(ctx, tx, id); err != nil {
		return key, fmt.Errorf("read the session's key: %w", err)
	}
	key.Key = value.Reveal()
	tx.Unrecorded("the session goes on")
	return key, nil
}

func earlier(a *time.Time, b time.Time) *time.Time {
	if a != nil && a.Before(b) {
		return a
	}
	return &b
}

func (s *Service) sessions() []rest.Route {
	own := rest.Resource[Session, sessionBody]{
		DB:        s.db,
		Path:      "/auth/session",
		ID:        "session_id",
		Noun:      "session",
		Guard:     guard.AnyKey,
		Additions: rest.Listing | rest.Viewing | rest.Deleting,
		Without:   rest.Creating | rest.Editing,
		Table:     "api_key",
		View:      "session_view",
		Scope:     ownSessions,
		By:        rest.By{Sorts: map[string]string{"expires_at": "expires_at"}},
		Lock:      func(ctx context.Context, tx *pg.Tx, _ ...*sessionBody) error { return mayEndSessions(ctx, tx) },
		Delete: func(ctx context.Context, tx *pg.Tx, session *Session) error {
			ended, err := endKeys(ctx, tx, "id = $1", session.ID)
			s.revoke(tx, ended...)
			return err
		},
	}.Routes()
	return append(
		own,
		rest.Mutation[rest.None, rest.Message]{
			Method:    http.MethodDelete,
			Path:      "/auth/session",
			Guard:     guard.AnyKey,
			Name:      "endOtherSessions",
			Summary:   "End all own sessions but this one",
			Extension: true,
			Effect:    rest.Effect{Logs: rest.LogsSummary, Again: rest.AgainAnother},
			Do:        s.endOthers,
		},
		rest.Mutation[rest.None, rest.Message]{
			Method:    http.MethodDelete,
			Path:      "/auth/key/current",
			Guard:     guard.AnyKey,
			Name:      "deleteCurrentAPIKey",
			Summary:   "Log out: delete the key of this request",
			Extension: true,
			Effect:    rest.Effect{Logs: rest.LogsItem, Again: rest.AgainRefused},
			Do:        s.logOut,
		},
	)
}

type sessionBody struct {
	Name string `json:"name" db:"name"`
}

// ownSessions are the caller's.
func ownSessions(ctx context.Context) []pg.Condition {
	owner := principal.From(ctx).Principal.Owner
	return []pg.Condition{{SQL: "owner_type = $1 AND owner_id = $2", Args: []any{owner.Type, owner.ID}}}
}

// mayEndSessions refuses acting sessions, which end none but themselves.
func mayEndSessions(ctx context.Context, tx *pg.Tx) error {
	if principal.From(ctx).Principal.Acting {
		return errActing()
	}
	_, err := callerOf(ctx, tx)
	return err
}

func errActing() error {
	return problem.New(
		problem.Forbidden,
		"A session of somebody who acts for the account, or followed a link, writes no keys, sessions, passwords and the like.",
	)
}

func (s *Service) endOthers(ctx context.Context, tx *pg.Tx, _ rest.None) (rest.Message, error) {
	if err := mayEndSessions(ctx, tx); err != nil {
		return rest.Message{}, err
	}
	caller := principal.From(ctx).Principal
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

// endSessions ends the sessions of an account, but for that of one key.
func (s *Service) endSessions(ctx context.Context, tx *pg.Tx, of principal.Owner, but int64) (n int, err error) {
	const which = "owner_type = $1 AND owner_id = $2 AND kind <> 'lasting' AND id <> $3"
	if err := tx.QueryRow(ctx, "SELECT count(*) FROM api_key WHERE expires_at > now() AND "+which, of.Type, of.ID, but).Scan(&n); err != nil {
		return 0, fmt.Errorf("count the sessions of %s: %w", of.URL(), err)
	}
	ended, err := endKeys(ctx, tx, which, of.Type, of.ID, but)
	if len(ended) > 0 {
		s.revoke(tx, ended...)
	}
	return n, err
}

func (s *Service) logOut(ctx context.Context, tx *pg.Tx, _ rest.None) (rest.Message, error) {
	if _, err := callerOf(ctx, tx); err != nil {
		return rest.Message{}, err
	}
	key, err := keyView.Get(ctx, tx, principal.From(ctx).Principal.KeyID)
	if err != nil {
		return rest.Message{}, fmt.Errorf("read the calling key: %w", err)
	}
	ended, err := endKeys(ctx, tx, "id = $1", key.ID)
	s.revoke(tx, ended...)
	tx.Record(pg.Record{Kind: "auth.key", Action: pg.Deleted, Targets: []pg.Target{keyTarget(&key)}, Before: key})
	return rest.Message{Message: fmt.Sprintf("API key %d deleted.", key.ID)}, err
}

const (
	// sweepPause is how often what has ended is deleted, attemptPause how often what was tried is logged, and countPause how often it is
	// looked
	// whether a minute is over of which attempts are counted.
	sweepPause   = time.Minute
	attemptPause = time.Second
	countPause   = 5 * time.Second
)

// sweep deletes what has ended, a batch of each at a time.
func (s *Service) sweep(ctx context.Context) error {
	for _, sql := range ended {
		err := s.db.InTx(ctx, func(tx *pg.Tx) error {
			tx.Unrecorded("it has ended")
			_, err := tx.Exec(ctx, sql)
			return err
		})
		if err != nil {
			return fmt.Errorf("delete what has ended: %w", err)
		}
	}
	return nil
}

// ended is what need not be kept any more.
var ended = []string{
	"DELETE FROM api_key WHERE id IN (SELECT id FROM api_key WHERE kind <> 'lasting' AND expires_at < now() - interval '1 hour' ORDER BY expires_at LIMIT 10000)",
	"DELETE FROM session_value WHERE until < now() - interval '1 hour'",
	"DELETE FROM signed_in_from WHERE last_at < now() - interval '30 days'",
	"DELETE FROM acting_logged WHERE at < now() - interval '1 hour'",
	"DELETE FROM password_reset WHERE expires_at < now()",
	"DELETE FROM sso_code WHERE expires_at < now()",
	"DELETE FROM account_mail WHERE at < now() - interval '1 hour'",
	"DELETE FROM verify_code WHERE expires_at < now() - interval '1 hour'",
	"DELETE FROM openid_login WHERE expires_at < now()",
}
