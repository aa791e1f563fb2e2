// Package login signs people in: by password, and by a link from another system. It mails links to those who forgot their password,
// and throttles and records the attempts.
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

// Logins answers requests for keys, including logins by password.
type Logins struct {
	DB        *pg.DB
	Hasher    account.Hasher
	Lockouts  *lockout.Lockouts
	Passwords *throttle.Queue // of logins without a known device
	People    *person.Directory
	Keys      *keys.Service
	Sessions  *session.Service
	Factors   *mfa.Service
}

// keyRequest asks for a key. It is a login if it has a password, a lasting key if it has a name, and an acting session if it has
// an owner. Without members it renews the calling session. The first of these that applies decides.
type keyRequest struct {
	keys.Body
	Email    string        `json:"email" ext:"true" doc:"For a login: the account's email address."`
	Username string        `json:"username" ext:"true" doc:"For an admin's login: the username, instead of email. A login that sends both is refused."`
	Password secret.String `json:"password" max:"1024" ext:"true" transient:"true" doc:"Makes the request a login, which needs no key. Its type is admin or client."`
	Device   secret.String `json:"device" max:"1024" ext:"true" transient:"true" doc:"For a login: the device of an earlier login. While it is known, guesses of others do not lock the login out. Any other value is ignored."`
	Auth     *rest.RefID   `json:"auth" ext:"true" doc:"For a login: the authenticator to confirm it with, if the account has several." example:"1"`
	Wrapped  bool          `json:"isWrapped" ext:"true" doc:"Ignored."`

	sent        []string
	person      person.Person // has sent the right password
	isAbove     bool          // the caller is a client above the account to act for
	knownDevice bool          // the person has signed in from the device before
}

// Sent stores the names of the members that were sent.
func (b *keyRequest) Sent(names []string) { b.sent = names }

// purpose is the kind of key that is asked for.
type purpose int

const (
	purposeSignIn purpose = iota
	purposeCreate
	purposeAct
	purposeRenew
	purposeUnknown
)

// purpose returns the kind of key that the sent members ask for.
func (b *keyRequest) purpose() purpose {
	has := func(names ...string) bool {
		return slices.ContainsFunc(names, func(name string) bool { return slices.Contains(b.sent, name) })
	}
	switch {
	case has("password"):
		return purposeSignIn
	case has("name"):
		return purposeCreate
	case has("owner", "owner_id", "owner_type", "type"):
		return purposeAct
	case len(b.sent) == 0 || len(b.sent) == 1 && has("isWrapped"):
		return purposeRenew
	default:
		return purposeUnknown
	}
}

// Resolve checks what the tags cannot express.
func (b *keyRequest) Resolve(invalid *problem.Fields) {
	switch b.purpose() {
	case purposeSignIn:
		if t := b.accountType(); t != principal.Admin && t != principal.Client {
			invalid.Add("/type", "invalid", "must be admin or client")
		}
		if b.Email == "" && (b.Username == "" || b.accountType() == principal.Client) {
			invalid.Add("/email", "required", "is required")
		}
		if b.Email != "" && b.Username != "" {
			invalid.Add("/username", "conflict", "cannot be sent together with email. Send one of them")
		}
		return
	case purposeCreate:
		if b.Name == "" {
			invalid.Add("/name", "required", "is required and cannot be empty")
		}
	case purposeUnknown:
		invalid.Add("/name", "required", "is required")
	}
	b.Body.Resolve(invalid)
}

// accountType returns the type of the account that a login is for.
func (b *keyRequest) accountType() principal.OwnerType {
	if b.Type == nil {
		return ""
	}
	return principal.OwnerType(*b.Type)
}

// keyOrLogin is a guard that lets every caller through. A login needs no key, and prepareKey requires one of other requests.
type keyOrLogin struct{}

func (keyOrLogin) String() string { return "any key, or none with a password" }

func (keyOrLogin) Check(c *principal.Call, a permission.Access, id int64) error {
	return guard.Public.Check(c, a, id)
}

// GivenKey is the response to a request for a key: the key, or the second factor that a login needs.
type GivenKey struct {
	rest.Versioned
	ID              int64            `json:"id,omitempty" db:"id"`
	Name            string           `json:"name,omitempty" db:"name"`
	Key             string           `json:"key,omitempty" doc:"The key's value. Only this response has it."`
	Owner           keys.KeyOwner    `json:"owner,omitzero" db:"owner_"`
	ExpiresAt       *rest.Timestamp  `json:"expires_at,omitempty" db:"expires_at"`
	Networks        *[]string        `json:"allowed_cidrs,omitempty" db:"allowed_cidrs" ext:"true" doc:"The networks that the key may be used from. Empty: from anywhere."`
	SessionNetworks *[]string        `json:"session_cidrs,omitempty" db:"session_cidrs" ext:"true" doc:"The networks that sessions may be used from that the key begins for other accounts. Empty: the key's own networks. A session that begins by a link may be used only from the network that begins it."`
	Bound           *[]string        `json:"bound,omitempty" db:"bound" doc:"The permissions that the key has at most, whatever its owner holds. Left out if the key has all of its owner's."`
	Device          string           `json:"device,omitempty" ext:"true" doc:"For a login: a secret for the browser or program to keep, and to send with its later logins to the account. It is known for 30 days, or until the password changes."`
	Verify          *mfa.LoginVerify `json:"verify,omitempty" ext:"true" doc:"The second factor that the login needs. The response has no key then."`
}

// signIn begins a login's session, and returns its key with a new device.
func (s *Logins) signIn(ctx context.Context, tx *pg.Tx, p person.Person) (*GivenKey, error) {
	key, err := s.Sessions.SignIn(ctx, tx, p)
	if err != nil {
		return nil, err
	}
	response := newKeyResponse(&key)
	response.Device, err = s.Sessions.NewDevice(p)
	return response, err
}

// newKeyResponse returns the response with a session's key.
func newKeyResponse(k *keys.APIKey) *GivenKey {
	return &GivenKey{
		Versioned:       k.Versioned,
		ID:              k.ID,
		Name:            k.Name,
		Key:             k.Key,
		Owner:           k.Owner,
		ExpiresAt:       k.ExpiresAt,
		Networks:        &k.Networks,
		SessionNetworks: &k.SessionNetworks,
		Bound:           k.Bound,
	}
}

// Routes returns the operation that creates keys.
func (s *Logins) Routes() []rest.Route {
	return rest.Resource[GivenKey, keyRequest]{
		Path:    "/auth/key",
		ID:      "key_id",
		Noun:    "API key",
		Guard:   keyOrLogin{},
		Table:   "api_key",
		View:    "api_key_view",
		Without: rest.Listing | rest.Viewing | rest.Editing | rest.Deleting,
		Retry:   rest.RetryRepeats,
		Example: `{"name": "billing"}`,
		Prepare: s.prepareKey,
		Allow:   s.checkRequest,
		Lock: func(ctx context.Context, tx *pg.Tx, _ rest.Verbs, rows ...*keyRequest) error {
			if rows[0].purpose() == purposeCreate {
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
				return rest.RespondWith(session)
			}
			return s.Keys.Check(ctx, tx, 0, nil, &b.Body)
		},
		Reveal: func(key *GivenKey, b *keyRequest) { key.Key = b.Key.Reveal() },
	}.Routes()
}

// prepareKey compares the password of a login.
func (s *Logins) prepareKey(ctx context.Context, _ rest.Verbs, b *keyRequest) (err error) {
	if b.purpose() != purposeSignIn {
		err := guard.AnyKey.Check(principal.FromContext(ctx), permission.Write, 0)
		if err == nil && b.purpose() == purposeAct {
			body := b.Body
			body.Resolve(&problem.Fields{}) // which finds the account, and reports errors later
			b.isAbove, err = s.People.IsAbove(ctx, body.Account())
		}
		return err
	}
	var invalid problem.Fields
	if b.Resolve(&invalid); len(invalid) == 0 { // else Resolve reports the errors later
		b.person, err = s.checkPassword(ctx, b)
	}
	return err
}

// checkRequest refuses a caller that may not have such a key.
func (s *Logins) checkRequest(ctx context.Context, tx *pg.Tx, _ []int64, b *keyRequest) error {
	switch b.purpose() {
	case purposeSignIn:
		return nil
	case purposeCreate:
		return s.Keys.CheckCreate(ctx, tx, &b.Body)
	default:
		_, err := access.ReadCaller(ctx, tx)
		return err
	}
}

// sessionFor answers a request for a session. It returns nil if the request is for a lasting key.
func (s *Logins) sessionFor(ctx context.Context, tx *pg.Tx, b *keyRequest) (*GivenKey, error) {
	var key keys.APIKey
	var err error
	switch b.purpose() {
	case purposeSignIn:
		if !b.person.Exists() { // the body was invalid, and no password was compared
			return nil, session.ErrNotSignedIn()
		}
		if verify, err := s.Factors.AskForCode(ctx, tx, b.person, b.Auth, b.knownDevice); err != nil || verify != nil {
			return &GivenKey{Verify: verify}, err
		}
		return s.signIn(ctx, tx, b.person)
	case purposeAct:
		key, err = s.Sessions.Act(ctx, tx, b.Account(), b.isAbove)
	case purposeRenew:
		key, err = s.Sessions.Renew(ctx, tx)
	default:
		return nil, nil
	}
	return newKeyResponse(&key), err
}
