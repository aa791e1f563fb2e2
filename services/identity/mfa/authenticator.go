// Package mfa is second factors: authenticator apps, codes by mail, security keys and recovery codes. An account asks for a code of
// one of its authenticators and confirms it, to sign in or to make a change that takes a fresh confirmation.
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
	Challenges *throttle.Queue // answers to challenges that do not exist wait here
	Settings   *settings.Follower
	Rules      *access.Rules
	People     *person.Directory
	Sessions   *session.Service
	Mails      *events.Outbox
	Passkeys   *passkey.Party // nil: they are not used here
}

// Routes returns the operations on authenticators, codes and recovery codes.
func (s *Service) Routes() []rest.Route {
	return slices.Concat(s.methodRoutes(), s.authenticatorRoutes(), s.codeRoutes(), s.recoveryRoutes())
}

// The methods, by the ids of their rows.
const (
	byTOTP    = 1
	byEmail   = 2
	byPasskey = 3
)

// maxAuthenticators bounds the authenticators of an account.
const maxAuthenticators = 50

// Authenticator is a second factor: an app that makes codes, an address that codes are mailed to, or a security key.
type Authenticator struct {
	rest.Versioned
	ID            int64         `json:"id" db:"id"`
	Name          string        `json:"-" db:"title"`
	Called        *string       `json:"name,omitempty" db:"name" ext:"true" doc:"what its owner calls it"`
	Method        rest.Ref      `json:"method" db:"method_"`
	Value         *string       `json:"value,omitempty" db:"value" doc:"of email, the address; in the answer that makes it, and never again, of totp the otpauth:// URI that an app reads, and of passkey what PublicKeyCredential.parseCreationOptionsFromJSON() takes, as a text"`
	Verified      bool          `json:"verified" db:"verified" doc:"whether it is used: a code of it was confirmed"`
	Owner         keys.KeyOwner `json:"owner" db:"owner_" ext:"true"`
	RecoveryCodes []string      `json:"recovery_codes,omitempty" ext:"true" doc:"in the answer that verifies an account's first one, and never again: each is good once in place of a code"`
}

// Account returns the authenticator's owner.
func (a *Authenticator) Account() principal.Owner {
	return principal.Owner{Type: a.Owner.Type, ID: a.Owner.ID}
}

type authenticatorBody struct {
	Name       *string            `json:"name" db:"name" max:"64" ext:"true" example:"my phone" doc:"what its owner calls it"`
	Method     rest.RefID         `json:"method" db:"method_id" required:"create" example:"2" doc:"one of /auth/verify/method; it stays"`
	Value      *string            `json:"value" db:"value" max:"254" example:"ben@example.org" doc:"of email: the address; none: the account's"`
	Verified   bool               `json:"verified" db:"verified" example:"false" doc:"true, once a code of it was confirmed: it is used from then on"`
	Credential passkey.Credential `json:"credential" ext:"true" doc:"of passkey, with verified: what the browser answered to the options, as PublicKeyCredential.toJSON() has it"`

	OwnerType principal.OwnerType `db:"owner_type"`
	OwnerID   int64               `db:"owner_id"`
	Secret    secret.String       `db:"secret"`

	person   person.Person // the caller, where another service knows its address, or from when on its password is that
	reveals  string        // the value that is shown once
	made     *newPasskey   // of Credential
	recovery []string      // codes that were made
}

func (b *authenticatorBody) account() principal.Owner {
	return principal.Owner{Type: b.OwnerType, ID: b.OwnerID}
}

// AuthenticatorView reads authenticators.
var AuthenticatorView = pg.NewView[Authenticator]("authenticator_view")

var codeView = pg.NewView[VerifyCode]("verify_code_view")

func (s *Service) authenticatorRoutes() []rest.Route {
	of := table.New[authenticatorBody]("authenticator", "authenticator_view", s.Box)
	return rest.Resource[Authenticator, authenticatorBody]{
		Path:   "/auth/verify/auth",
		ID:     "auth_id",
		Noun:   "authenticator",
		Guard:  guard.AnyKey,
		Scope:  access.ReadableOwners,
		Again:  rest.AgainAnother,
		Table:  "authenticator",
		View:   "authenticator_view",
		Box:    s.Box,
		Edited: `{"value": "benjamin@example.org"}`,
		By: rest.By{
			Filters: map[string]string{"owner": "owner_url", "owner_type": "owner_type", "owner_id": "owner_id", "verified": "verified"},
		},
		Prepare: s.prepareAuthenticator,
		Allow: func(ctx context.Context, tx *pg.Tx, _ []int64, _ *authenticatorBody) error {
			return access.Allow(ctx, tx)
		},
		Check: func(ctx context.Context, tx *pg.Tx, id int64, before, b *authenticatorBody) error {
			c, err := access.Of(ctx, tx)
			if err != nil {
				return err
			}
			if before == nil {
				return s.checkNew(ctx, tx, c, b)
			}
			return s.checkEdited(ctx, tx, c, id, before, b)
		},
		Insert: func(ctx context.Context, tx *pg.Tx, b *authenticatorBody) (int64, error) {
			id, err := of.Insert(ctx, tx, b)
			if err == nil && b.Method == byPasskey {
				b.reveals, err = s.askForPasskey(ctx, tx, id, b.person)
			}
			return id, err
		},
		Delete: s.deleteAuthenticator,
		Reveal: func(a *Authenticator, b *authenticatorBody) {
			if a.RecoveryCodes = b.recovery; b.reveals != "" {
				a.Value = &b.reveals
			}
		},
		About: func(a *Authenticator) []pg.Target { return []pg.Target{person.Target(a.Account(), a.Owner.Name)} },
	}.Routes()
}

func (s *Service) deleteAuthenticator(ctx context.Context, tx *pg.Tx, a *Authenticator) error {
	c, err := access.Of(ctx, tx)
	if err != nil {
		return err
	}
	if err := s.mayWrite(ctx, tx, c, a.Account()); err != nil {
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

// countAuthenticators counts an account's authenticators except for one, and how many of them are verified.
func countAuthenticators(ctx context.Context, q pg.Querier, owner principal.Owner, but int64) (all, verified int, err error) {
	err = q.QueryRow(ctx, "SELECT count(*), count(*) FILTER (WHERE verified) FROM authenticator "+
		"WHERE owner_type = $1 AND owner_id = $2 AND id <> $3", owner.Type, owner.ID, but).
		Scan(&all, &verified)
	if err != nil {
		return 0, 0, fmt.Errorf("count the authenticators of %s: %w", owner.URL(), err)
	}
	return all, verified, nil
}

// mayWrite refuses a caller that may not write to the authenticators of an account. To its own it may write with a key that holds
// everything that the account holds, because authenticators carry no bound.
func (s *Service) mayWrite(ctx context.Context, tx *pg.Tx, c access.Caller, account principal.Owner) error {
	if c.Owner != account {
		return s.Rules.MayWrite(ctx, tx, c, account)
	}
	if c.Bound == nil || account.Type != principal.Admin {
		return nil
	}
	its, err := access.AdminGrants(ctx, tx, account.ID)
	if err != nil {
		return err
	}
	return guard.MayGive(c.Grants, its, "The account holds")
}
