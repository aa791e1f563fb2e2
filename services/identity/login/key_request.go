// Package login signs people in: by password, by a link that is mailed when the password is forgotten, and by a link from another
// system. It also throttles and records the attempts.
package login

import (
	"context"
	"slices"

	"github.com/ironplane/ironplane/pkg/auth/account"
	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/lockout"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/auth/throttle"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/services/identity/access"
	"github.com/ironplane/ironplane/services/identity/keys"
	"github.com/ironplane/ironplane/services/identity/mfa"
	"github.com/ironplane/ironplane/services/identity/person"
	"github.com/ironplane/ironplane/services/identity/session"
)

// Logins answers requests for keys, and so logins by password.
type Logins struct {
	DB        *pg.DB
	Hasher    account.Hasher
	Lockouts  *lockout.Lockouts
	Passwords *throttle.Queue // logins from networks that the account was not signed in from wait here
	People    *person.Directory
	Keys      *keys.Service
	Sessions  *session.Service
	Factors   *mfa.Service
}

// keyRequest is what asks for a key: a login by a password, a lasting key by a name, an acting session by an owner, or more time for
// the calling session by nothing. The members that were sent decide, in this order.
type keyRequest struct {
	keys.Body
	Email    string        `json:"email" ext:"true" doc:"of a login: of the account"`
	Username string        `json:"username" ext:"true" doc:"of an admin's login, in place of email"`
	Password secret.String `json:"password" max:"1024" ext:"true" kept:"false" doc:"makes it a login, for which no key is needed: type is admin or client"`
	Auth     *rest.RefID   `json:"auth" ext:"true" doc:"of a login: by which of several authenticators it is confirmed" example:"1"`
	Wrapped  bool          `json:"isWrapped" ext:"true" doc:"means nothing"`

	sent   []string
	person person.Person // who has sent the right password
}

// Sent takes the names of the members that were sent.
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
func (b *keyRequest) Resolve(invalid *problem.Fields) {
	switch b.purpose() {
	case toSignIn:
		if t := b.account(); t != principal.Admin && t != principal.Client {
			invalid.Add("/type", "invalid", "must be admin or client")
		}
		if b.Email == "" && (b.Username == "" || b.account() == principal.Client) {
			invalid.Add("/email", "required", "is required")
		}
		return
	case toLast:
		if b.Name == "" {
			invalid.Add("/name", "required", "is required and cannot be empty")
		}
	case toNothing:
		invalid.Add("/name", "required", "is required")
	}
	b.Body.Resolve(invalid)
}

// account is the type of the one that a login is of.
func (b *keyRequest) account() principal.OwnerType {
	if b.Type == nil {
		return ""
	}
	return principal.OwnerType(*b.Type)
}

// keyOrLogin lets every caller through. A login needs no key; prepareKey asks others for one.
type keyOrLogin struct{}

func (keyOrLogin) String() string { return "any key, or none with a password" }

func (keyOrLogin) Check(c *principal.Call, a permission.Access, id int64) error {
	return guard.Public.Check(c, a, id)
}

// GivenKey is the answer to a request for a key: the key, or the second factor that a login takes.
type GivenKey struct {
	rest.Versioned
	ID        int64            `json:"id,omitempty" db:"id"`
	Name      string           `json:"name,omitempty" db:"name"`
	Key       string           `json:"key,omitempty" doc:"the key's value, in this answer and never again"`
	Owner     keys.KeyOwner    `json:"owner,omitzero" db:"owner_"`
	ExpiresAt *rest.Timestamp  `json:"expires_at,omitempty" db:"expires_at"`
	Networks  *[]string        `json:"allowed_cidrs,omitempty" db:"allowed_cidrs" ext:"true" doc:"the networks that it is good from; none: all"`
	Bound     *[]string        `json:"bound,omitempty" db:"bound" doc:"what it can do at most, whatever its owner holds: what its maker held; left out where it has no such bound"`
	Verify    *mfa.LoginVerify `json:"verify,omitempty" ext:"true" doc:"of a login that takes a second factor, and there is no key yet: the code that it takes"`
}

func given(k *keys.APIKey) *GivenKey {
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

// Routes returns the operation that makes keys.
func (s *Logins) Routes() []rest.Route {
	return rest.Resource[GivenKey, keyRequest]{
		Path:    "/auth/key",
		ID:      "key_id",
		Noun:    "API key",
		Guard:   keyOrLogin{},
		Table:   "api_key",
		View:    "api_key_view",
		Without: rest.Listing | rest.Viewing | rest.Editing | rest.Deleting,
		Again:   rest.AgainAnother,
		Example: `{"name": "billing"}`,
		Prepare: s.prepareKey,
		Allow:   s.mayAskForKey,
		Lock: func(ctx context.Context, tx *pg.Tx, rows ...*keyRequest) error {
			if rows[0].purpose() == toLast {
				return access.Allow(ctx, tx)
			}
			return nil
		},
		Check: func(ctx context.Context, tx *pg.Tx, _ int64, _, b *keyRequest) error {
			session, err := s.sessionFor(ctx, tx, b)
			if err != nil {
				return err
			}
			if session != nil {
				return rest.Instead(session)
			}
			return s.Keys.Check(ctx, tx, 0, nil, &b.Body)
		},
		Reveal: func(key *GivenKey, b *keyRequest) { key.Key = b.Key.Reveal() },
	}.Routes()
}

// prepareKey compares the password of a login.
func (s *Logins) prepareKey(ctx context.Context, _ rest.Verbs, b *keyRequest) (err error) {
	if b.purpose() != toSignIn {
		return guard.AnyKey.Check(principal.From(ctx), permission.Write, 0)
	}
	var invalid problem.Fields
	if b.Resolve(&invalid); len(invalid) == 0 { // else Resolve says so later
		b.person, err = s.checkPassword(ctx, b.account(), b.Email, b.Username, b.Password)
	}
	return err
}

// mayAskForKey refuses a caller that may not have such a key.
func (s *Logins) mayAskForKey(ctx context.Context, tx *pg.Tx, _ []int64, b *keyRequest) error {
	switch b.purpose() {
	case toSignIn:
		return nil
	case toLast:
		return s.Keys.MayCreate(ctx, tx, &b.Body)
	default:
		_, err := access.Of(ctx, tx)
		return err
	}
}

// sessionFor answers a request for a session; nil where it is for a lasting key.
func (s *Logins) sessionFor(ctx context.Context, tx *pg.Tx, b *keyRequest) (*GivenKey, error) {
	var key keys.APIKey
	var err error
	switch b.purpose() {
	case toSignIn:
		if !b.person.Exists() { // the body was wrong, and no password was compared
			return nil, session.ErrNotSignedIn()
		}
		if asked, err := s.Factors.AskForCode(ctx, tx, b.person, b.Auth); err != nil || asked != nil {
			return &GivenKey{Verify: asked}, err
		}
		key, err = s.Sessions.SignIn(ctx, tx, b.person)
	case toAct:
		key, err = s.Sessions.Act(ctx, tx, b.Account())
	case toRenew:
		key, err = s.Sessions.Renew(ctx, tx)
	default:
		return nil, nil
	}
	return given(&key), err
}
