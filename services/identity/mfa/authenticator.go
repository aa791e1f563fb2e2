// Package mfa manages second factors: authenticator apps, codes by mail, security keys and recovery codes. An account confirms a
// code of one of its authenticators to sign in, or to make a change that needs a recent confirmation.
package mfa

import (
	"context"
	"fmt"
	"slices"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/lockout"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/auth/throttle"
	"github.com/ironplane/ironplane/pkg/events"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/postgres/table"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/settings"
	"github.com/ironplane/ironplane/services/identity/access"
	"github.com/ironplane/ironplane/services/identity/keys"
	"github.com/ironplane/ironplane/services/identity/passkey"
	"github.com/ironplane/ironplane/services/identity/person"
	"github.com/ironplane/ironplane/services/identity/session"
)

// Service answers requests about second factors.
type Service struct {
	DB         *pg.DB
	Box        *seal.Box
	Lockouts   *lockout.Lockouts
	Challenges *throttle.Queue // of answers to challenges that do not exist
	Settings   *settings.Follower
	Rules      *access.Rules
	People     *person.Directory
	Sessions   *session.Service
	Mails      *events.Outbox
	Passkeys   *passkey.Party // nil: passkeys are not configured
}

// Routes returns the operations on authenticators, codes and recovery codes.
func (s *Service) Routes() []rest.Route {
	return slices.Concat(s.methodRoutes(), s.authenticatorRoutes(), s.codeRoutes(), s.recoveryRoutes())
}

// The methods, by the ids of their rows.
const (
	methodTOTP    = 1
	methodEmail   = 2
	methodPasskey = 3
)

// maxAuthenticators bounds the authenticators of an account.
const maxAuthenticators = 50

// Authenticator is a second factor: an app that shows codes, an address that codes are mailed to, or a security key.
type Authenticator struct {
	rest.Versioned
	ID            int64         `json:"id" db:"id"`
	Name          string        `json:"-" db:"title"`
	CustomName    *string       `json:"name,omitempty" db:"name" ext:"true" doc:"The name that the owner has chosen."`
	Method        rest.Ref      `json:"method" db:"method_" doc:"The kind of second factor."`
	Value         *string       `json:"value,omitempty" db:"value" doc:"For email, the address. For totp and passkey, only in the response that creates the authenticator: the otpauth:// URI for an app, or the JSON for PublicKeyCredential.parseCreationOptionsFromJSON()."`
	Verified      bool          `json:"verified" db:"verified" doc:"Whether the authenticator is in use. A code of it was confirmed first."`
	Owner         keys.KeyOwner `json:"owner" db:"owner_" ext:"true"`
	RecoveryCodes []string      `json:"recovery_codes,omitempty" ext:"true" doc:"Codes that each replace one code of an authenticator, once. Only the response that verifies an account's first authenticator has them."`
}

// Account returns the authenticator's owner.
func (a *Authenticator) Account() principal.Owner {
	return principal.Owner{Type: a.Owner.Type, ID: a.Owner.ID}
}

// authenticatorBody is the body by which an authenticator is created or edited.
type authenticatorBody struct {
	Name       *string            `json:"name" db:"name" max:"64" ext:"true" example:"my phone" doc:"A name that the owner chooses."`
	Method     rest.RefID         `json:"method" db:"method_id" required:"create" example:"2" doc:"One of /auth/verify/method. It cannot be changed."`
	Value      *string            `json:"value" db:"value" max:"254" example:"ben@example.org" doc:"For email: the address. Left out: the account's address."`
	Verified   bool               `json:"verified" db:"verified" example:"false" doc:"True puts the authenticator into use, once a code of it was confirmed."`
	Credential passkey.Credential `json:"credential" ext:"true" open:"true" doc:"For passkey, together with verified: the new key, as PublicKeyCredential.toJSON() returns it."`

	OwnerType principal.OwnerType `db:"owner_type"`
	OwnerID   int64               `db:"owner_id"`
	Secret    secret.String       `db:"secret"`

	person    person.Person // the caller; set if its address or credentials version is needed
	shownOnce string        // the value in the response that creates the authenticator
	newKey    *newPasskey   // from Credential
	recovery  []string      // recovery codes that were created
}

func (b *authenticatorBody) account() principal.Owner {
	return principal.Owner{Type: b.OwnerType, ID: b.OwnerID}
}

// AuthenticatorView reads authenticators.
var AuthenticatorView = pg.NewView[Authenticator]("authenticator_view")

var codeView = pg.NewView[VerifyCode]("verify_code_view")

// authenticatorRoutes returns the operations on authenticators.
func (s *Service) authenticatorRoutes() []rest.Route {
	authenticators := table.New[authenticatorBody]("authenticator", "authenticator_view", s.Box)
	return rest.Resource[Authenticator, authenticatorBody]{
		Path:        "/auth/verify/auth",
		ID:          "auth_id",
		Noun:        "authenticator",
		Guard:       guard.ForCredentials(guard.AnyKey),
		CreateGuard: guard.ForCredentials(personal{}),
		Scope:       access.ReadableOwners,
		Retry:       rest.RetryRepeats,
		Table:       "authenticator",
		View:        "authenticator_view",
		Box:         s.Box,
		EditExample: `{"value": "benjamin@example.org"}`,
		List: rest.ListOptions{
			Filters: map[string]string{"owner": "owner_url", "owner_type": "owner_type", "owner_id": "owner_id", "verified": "verified"},
		},
		Prepare: s.prepareAuthenticator,
		Allow: func(ctx context.Context, tx *pg.Tx, _ []int64, _ *authenticatorBody) error {
			return access.Allow(ctx, tx)
		},
		Check: func(ctx context.Context, tx *pg.Tx, id int64, before, b *authenticatorBody) error {
			c, err := access.ReadCaller(ctx, tx)
			if err != nil {
				return err
			}
			if before == nil {
				return s.checkNew(ctx, tx, c, b)
			}
			return s.checkEdited(ctx, tx, c, id, before, b)
		},
		Insert: func(ctx context.Context, tx *pg.Tx, b *authenticatorBody) (int64, error) {
			id, err := authenticators.Insert(ctx, tx, b)
			if err == nil && b.Method == methodPasskey {
				b.shownOnce, err = s.beginPasskey(ctx, tx, id, b.person)
			}
			return id, err
		},
		Delete: s.deleteAuthenticator,
		Reveal: func(a *Authenticator, b *authenticatorBody) {
			if a.RecoveryCodes = b.recovery; b.shownOnce != "" {
				a.Value = &b.shownOnce
			}
		},
		Related: func(a *Authenticator) []pg.Target { return []pg.Target{person.Target(a.Account(), a.Owner.Name)} },
	}.Routes()
}

// deleteAuthenticator deletes an authenticator. An account's owner has to confirm a code before it deletes its last verified one.
func (s *Service) deleteAuthenticator(ctx context.Context, tx *pg.Tx, a *Authenticator) error {
	c, err := access.ReadCaller(ctx, tx)
	if err != nil {
		return err
	}
	if err := s.checkWrite(ctx, tx, c, a.Account()); err != nil {
		return err
	}
	if a.Verified {
		if err := s.unverify(ctx, tx, c, a.ID, a.Account()); err != nil {
			return err
		}
	}
	_, err = tx.Exec(ctx, "DELETE FROM authenticator WHERE id = $1", a.ID)
	return err
}

// countAuthenticators counts an account's authenticators except for one, and the verified ones among them.
func countAuthenticators(ctx context.Context, q pg.Querier, owner principal.Owner, except int64) (all, verified int, err error) {
	err = q.QueryRow(ctx, "SELECT count(*), count(*) FILTER (WHERE verified) FROM authenticator "+
		"WHERE owner_type = $1 AND owner_id = $2 AND id <> $3", owner.Type, owner.ID, except).
		Scan(&all, &verified)
	if err != nil {
		return 0, 0, fmt.Errorf("count the authenticators of %s: %w", owner.URL(), err)
	}
	return all, verified, nil
}

// checkWrite refuses a caller that may not write to the authenticators of an account. Authenticators have no bound, so a key may
// write to its own account's only if it holds all of the account's permissions.
func (s *Service) checkWrite(ctx context.Context, tx *pg.Tx, c access.Caller, account principal.Owner) error {
	if c.Owner != account {
		return s.Rules.CheckWrite(ctx, tx, c, account)
	}
	if c.Bound == nil || account.Type != principal.Admin {
		return nil
	}
	held, err := access.ReadAdminGrants(ctx, tx, account.ID)
	if err != nil {
		return err
	}
	return guard.CheckGrantable(c.Grants, held, "The account holds")
}
