package identity

import (
	"context"
	"slices"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/secret"
)

// keyRequest is what asks for a key: by a password, by a name, for somebody else, or with nothing for a session more time. What
// is there decides, in this order.
type keyRequest struct {
	apiKeyBody
	Email    string        `json:"email" ext:"true" doc:"of a login: of the account"`
	Username string        `json:"username" ext:"true" doc:"of an admin's login, in place of email"`
	Password secret.String `json:"password" max:"1024" ext:"true" kept:"false" doc:"makes it a login, for which no key is needed: type is admin or client"`
	Auth     *rest.RefID   `json:"auth" ext:"true" doc:"of a login: by which of several authenticators it is confirmed" example:"1"`
	Wrapped  bool          `json:"isWrapped" ext:"true" doc:"means nothing"`

	sent   []string
	person person // who has proved to be the one that signs in
}

// Sent is told which members are there.
func (b *keyRequest) Sent(names []string) { b.sent = names }

// purpose is what a key is asked for.
type purpose int

const (
	toSignIn purpose = iota
	toLast
	toAct
	toRenew
	toNothing
)

func (b *keyRequest) purpose() purpose {
	has := func(names ...string) bool {
		return slices.ContainsFunc(names, func(name string) bool { return slices.Contains(b.sent, name) })
	}
	switch {
	case has("password"):
		return toSignIn
	case has("name"):
		return toLast
	case has("owner", "owner_id", "owner_type", "type"):
		return toAct
	case len(b.sent) == 0 || len(b.sent) == 1 && has("isWrapped"):
		return toRenew
	default:
		return toNothing
	}
}

// Resolve checks what the tags cannot say.
func (b *keyRequest) Resolve(wrong *problem.Fields) {
	switch b.purpose() {
	case toSignIn:
		if t := b.account(); t != principal.Admin && t != principal.Client {
			wrong.Add("/type", "invalid", "must be admin or client")
		}
		if b.Email == "" && (b.Username == "" || b.account() == principal.Client) {
			wrong.Add("/email", "required", "is required")
		}
		return
	case toLast:
		if b.Name == "" {
			wrong.Add("/name", "required", "is required and cannot be empty")
		}
	case toNothing:
		wrong.Add("/name", "required", "is required")
	}
	b.apiKeyBody.Resolve(wrong)
}

// account is the type of the one that a login is of.
func (b *keyRequest) account() principal.OwnerType {
	if b.Type == nil {
		return ""
	}
	return principal.OwnerType(*b.Type)
}

// keyOrLogin lets everybody through: who sends a password needs no key, and of others it is asked for where the body is known.
type keyOrLogin struct{}

func (keyOrLogin) String() string { return "any key, or none with a password" }

func (keyOrLogin) Check(c *principal.Call, a permission.Access, id int64) error {
	return guard.Public.Check(c, a, id)
}

// GivenKey is the answer to who asks for a key: the key, or how a login goes on.
type GivenKey struct {
	rest.Versioned
	ID        int64           `json:"id,omitempty" db:"id"`
	Name      string          `json:"name,omitempty" db:"name"`
	Key       string          `json:"key,omitempty" doc:"the key's value, in this answer and never again"`
	Owner     KeyOwner        `json:"owner,omitzero" db:"owner_"`
	ExpiresAt *rest.Timestamp `json:"expires_at,omitempty" db:"expires_at"`
	Networks  *[]string       `json:"allowed_cidrs,omitempty" db:"allowed_cidrs" ext:"true" doc:"the networks that it is good from; none: all"`
	Bound     *[]string       `json:"bound,omitempty" db:"bound" doc:"what it can do at most, whatever its owner holds: what its maker held; left out where it has no such bound"`
	Verify    *LoginVerify    `json:"verify,omitempty" ext:"true" doc:"of a login that takes a second factor, and there is no key yet: the code that it takes"`
}

func given(k *APIKey) *GivenKey {
	return &GivenKey{
		Versioned: k.Versioned,
		ID:        k.ID,
		Name:      k.Name,
		Key:       k.Key,
		Owner:     k.Owner,
		ExpiresAt: k.ExpiresAt,
		Networks:  &k.Networks,
		Bound:     k.Bound,
	}
}

func (s *Service) keyRequests() []rest.Route {
	return rest.Resource[GivenKey, keyRequest]{
		DB: s.db, Path: "/auth/key", ID: "key_id", Noun: "API key", Guard: keyOrLogin{}, Table: "api_key", View: "api_key_view",
		Without: rest.Listing | rest.Viewing | rest.Editing | rest.Deleting, Again: rest.AgainAnother, Example: `{"name": "billing"}`,
		Prepare: s.prepareKey, Allow: s.mayAskForKey, There: s.sessionFor,
		Lock: func(ctx context.Context, tx *pg.Tx, rows ...*keyRequest) error {
			if rows[0].purpose() == toLast {
				return allow(ctx, tx)
			}
			return nil
		},
		Check: func(ctx context.Context, tx *pg.Tx, _ int64, _, b *keyRequest) error {
			return s.checkKey(ctx, tx, 0, nil, &b.apiKeyBody)
		},
		Reveal: func(key *GivenKey, b *keyRequest) { key.Key = b.Key.Reveal() },
	}.Routes()
}

// prepareKey compares the password of who signs in.
func (s *Service) prepareKey(ctx context.Context, _ rest.Verbs, b *keyRequest) (err error) {
	if b.purpose() != toSignIn {
		return guard.AnyKey.Check(principal.From(ctx), permission.Write, 0)
	}
	var wrong problem.Fields
	if b.Resolve(&wrong); len(wrong) == 0 { // else it is said later
		b.person, err = s.knock(ctx, b.account(), b.Email, b.Username, b.Password)
	}
	return err
}

// mayAskForKey says whether the caller may have such a key.
func (s *Service) mayAskForKey(ctx context.Context, tx *pg.Tx, b *keyRequest) error {
	switch b.purpose() {
	case toSignIn:
		return nil
	case toLast:
		return s.mayCreateKey(ctx, tx, &b.apiKeyBody)
	default:
		_, err := callerOf(ctx, tx)
		return err
	}
}

// sessionFor answers who asks for a session; nil: it is a lasting key.
func (s *Service) sessionFor(ctx context.Context, tx *pg.Tx, b *keyRequest) (*GivenKey, error) {
	var key APIKey
	var err error
	switch b.purpose() {
	case toSignIn:
		if !b.person.exists() { // what is wrong with the body was not seen when it was prepared
			return nil, errNotSignedIn()
		}
		if asked, err := s.askForCode(ctx, tx, b.person, b.Auth); err != nil || asked != nil {
			return &GivenKey{Verify: asked}, err
		}
		key, err = s.signIn(ctx, tx, b.person)
	case toAct:
		key, err = s.act(ctx, tx, b.owner())
	case toRenew:
		key, err = s.renew(ctx, tx)
	default:
		return nil, nil
	}
	return given(&key), err
}

// act begins a session of the caller for an account.
func (s *Service) act(ctx context.Context, tx *pg.Tx, owner principal.Owner) (APIKey, error) {
	c, err := lockedCaller(ctx, tx)
	if err != nil {
		return APIKey{}, err
	}
	if err := s.mayActFor(ctx, tx, c, owner); err != nil {
		return APIKey{}, err
	}
	return s.beginActing(
		ctx,
		tx,
		newSession{owner: owner, bound: c.bound, madeWith: &c.key, actor: &c.owner},
		principal.From(ctx).Principal.Name,
		c.ends,
	)
}

// beginActing begins a session of n's actor for an account, which lasts no longer than ends, and logs one an hour.
func (s *Service) beginActing(ctx context.Context, tx *pg.Tx, n newSession, actorName string, ends *rest.Timestamp) (APIKey, error) {
	if n.kind = acting; ends != nil {
		n.latest = &ends.Time
	}
	key, err := s.begin(ctx, tx, n)
	if err != nil {
		return key, err
	}
	actor, owner := n.actor, n.owner
	isFirst, err := tx.Exec(ctx, `
		INSERT INTO acting_logged AS l (actor_type, actor_id, owner_type, owner_id) VALUES ($1, $2, $3, $4)
		ON CONFLICT (owner_type, owner_id, actor_type, actor_id) DO UPDATE SET at = now() WHERE l.at < now() - interval '1 hour'`, actor.Type, actor.ID, owner.Type, owner.ID)
	if err != nil {
		return key, err
	}
	tx.Unrecorded("there was such a session within the last hour")
	if isFirst.RowsAffected() > 0 {
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

// mayActFor tells whether the caller may use an account: its own, and who holds users.clients write a client's, of an integration
// those of its own.
func (s *Service) mayActFor(ctx context.Context, tx *pg.Tx, c caller, owner principal.Owner) error {
	if c.owner == owner {
		return nil
	}
	if owner.Type != principal.Client {
		return problem.New(problem.Forbidden, "Nobody acts for an admin or an integration.")
	}
	if !c.grants.Holds(principal.Grant(permission.UsersClients, permission.Write)) {
		return problem.New(problem.Forbidden, "The key lacks %s write.", permission.UsersClients)
	}
	if err := s.clients.Hold(ctx, tx, owner.ID, ownerPointer); err != nil {
		return err
	}
	return s.mayWriteClient(ctx, tx, c, owner.ID)
}
