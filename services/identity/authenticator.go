package identity

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/pquerna/otp/totp"

	"github.com/ironplane/ironplane/pkg/auth/account"
	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/postgres/table"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/settings"
	"github.com/ironplane/ironplane/services/identity/passkey"
)

// The methods, by the ids of their rows.
const (
	byTOTP    = 1
	byEmail   = 2
	byPasskey = 3
)

// mostAuthenticators is how many an account has.
const mostAuthenticators = 50

// Authenticator proves who somebody is besides the password: an app that makes codes, an address that they are mailed to, or a key that
// signs.
type Authenticator struct {
	rest.Versioned
	ID            int64    `json:"id" db:"id"`
	Name          string   `json:"-" db:"title"`
	Called        *string  `json:"name,omitempty" db:"name" ext:"true" doc:"what its owner calls it"`
	Method        rest.Ref `json:"method" db:"method_"`
	Value         *string  `json:"value,omitempty" db:"value" doc:"of email, the address; in the answer that makes it, and never again, of totp the otpauth:// URI that an app reads, and of passkey what PublicKeyCredential.parseCreationOptionsFromJSON() takes, as a text"`
	Verified      bool     `json:"verified" db:"verified" doc:"whether it is used: a code of it was confirmed"`
	Owner         KeyOwner `json:"owner" db:"owner_" ext:"true"`
	RecoveryCodes []string `json:"recovery_codes,omitempty" ext:"true" doc:"in the answer that verifies an account's first one, and never again: each is good once in place of a code"`
}

func (a *Authenticator) account() principal.Owner {
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

	person   person      // the caller, where another service knows its address, or from when on its password is that
	reveals  string      // the value that is shown once
	made     *newPasskey // of Credential
	recovery []string    // codes that were made
}

func (b *authenticatorBody) account() principal.Owner {
	return principal.Owner{Type: b.OwnerType, ID: b.OwnerID}
}

func (s *Service) authenticators() []rest.Route {
	of := table.New[authenticatorBody]("authenticator", "authenticator_view", s.box)
	return rest.Resource[Authenticator, authenticatorBody]{
		DB:     s.db,
		Path:   "/auth/verify/auth",
		ID:     "auth_id",
		Noun:   "authenticator",
		Guard:  guard.AnyKey,
		Scope:  readableOwners,
		Again:  rest.AgainAnother,
		Table:  "authenticator",
		View:   "authenticator_view",
		Box:    s.box,
		Edited: `{"value": "benjamin@example.org"}`,
		By: rest.By{
			Filters: map[string]string{"owner": "owner_url", "owner_type": "owner_type", "owner_id": "owner_id", "verified": "verified"},
		},
		Prepare: s.prepareAuthenticator,
		Allow:   func(ctx context.Context, tx *pg.Tx, _ *authenticatorBody) error { return allow(ctx, tx) },
		Lock:    func(ctx context.Context, tx *pg.Tx, _ ...*authenticatorBody) error { return allow(ctx, tx) },
		Check: func(ctx context.Context, tx *pg.Tx, id int64, before, b *authenticatorBody) error {
			c, err := callerOf(ctx, tx)
			if err != nil {
				return err
			}
			if before == nil {
				return s.checkNewAuthenticator(ctx, tx, c, b)
			}
			return s.checkEditedAuthenticator(ctx, tx, c, id, before, b)
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
		About: func(a *Authenticator) []pg.Target { return []pg.Target{accountTarget(a.account(), a.Owner.Name)} },
	}.Routes()
}

func accountTarget(owner principal.Owner, name *string) pg.Target {
	t := pg.Target{Type: string(owner.Type), Noun: string(owner.Type), ID: owner.ID}
	if name != nil {
		t.Name = *name
	}
	return t
}

// prepareAuthenticator finds out the account's address, where it is to be mailed to, and which version of it a new key is asked for with.
// What
// a new key has answered is checked, which counts.
func (s *Service) prepareAuthenticator(ctx context.Context, verb rest.Verbs, b *authenticatorBody) (err error) {
	owner := principal.From(ctx).Principal.Owner
	switch {
	case verb == rest.Editing && b.Verified && b.Credential.Type != "":
		b.made, err = s.checkNewPasskey(ctx, b.Credential)
	case verb == rest.Creating && (b.Method == byEmail && b.Value == nil || b.Method == byPasskey && owner.Type == principal.Client):
		b.person, err = s.personOf(ctx, owner)
	}
	return err
}

func (s *Service) checkNewAuthenticator(ctx context.Context, tx *pg.Tx, c caller, b *authenticatorBody) error {
	b.OwnerType, b.OwnerID = c.owner.Type, c.owner.ID
	if c.owner.Type == principal.Integration {
		return problem.New(problem.Forbidden, "An integration does not sign in, and so has no authenticators.")
	}
	if err := s.mayWriteVerify(ctx, tx, c, c.owner); err != nil {
		return err
	}
	has, verified, err := authenticatorsOf(ctx, tx, c.owner, 0)
	if err != nil {
		return err
	}
	if verified > 0 {
		if err := mustBeConfirmed(ctx, tx, c.key); err != nil {
			return err
		}
	}
	var wrong problem.Fields
	switch {
	case has >= mostAuthenticators:
		wrong.Add("/method", "too_many", "cannot be another one: the account has %d authenticators", has)
	case b.Method != byEmail && b.Value != nil:
		wrong.Add("/value", "read_only", "is made here for an authenticator of this method")
	case b.Method == byTOTP:
		err = s.makeTOTP(ctx, b)
	case b.Method == byPasskey && s.passkeys == nil:
		return errNoPasskeys()
	case b.Method == byPasskey:
	case b.Method == byEmail && b.Value == nil && b.person.Email == "":
		wrong.Add("/value", "required", "is required: the account has no address")
	case b.Method == byEmail:
		if b.Value == nil {
			b.Value = &b.person.Email
		}
		checkAddress(*b.Value, &wrong)
	default:
		wrong.Add("/method", "not_found", "names no method that authenticators can be made of")
	}
	if b.Verified {
		wrong.Add("/verified", "unconfirmed", "can be true once a code of the authenticator was confirmed")
	}
	return errors.Join(err, wrong.Err())
}

// makeTOTP makes the secret that an app and this service share.
func (s *Service) makeTOTP(ctx context.Context, b *authenticatorBody) error {
	key, err := totp.Generate(
		totp.GenerateOpts{Issuer: settings.SiteName.In(s.settings.Values()), AccountName: principal.From(ctx).Principal.Name, SecretSize: 20},
	)
	if err != nil {
		return fmt.Errorf("make a TOTP secret: %w", err)
	}
	b.Secret, b.reveals = secret.New(key.Secret()), key.URL()
	return nil
}

func checkAddress(address string, wrong *problem.Fields) {
	var of problem.Fields
	if account.CheckEmail(address, &of); len(of) > 0 {
		wrong.Add("/value", of[0].Code, "%s", of[0].Message)
	}
}

func (s *Service) checkEditedAuthenticator(ctx context.Context, tx *pg.Tx, c caller, id int64, before, b *authenticatorBody) error {
	if err := s.mayWriteVerify(ctx, tx, c, before.account()); err != nil {
		return err
	}
	moved := before.Value != b.Value && (before.Value == nil || b.Value == nil || *before.Value != *b.Value)
	var wrong problem.Fields
	switch {
	case b.Method != before.Method:
		wrong.Add("/method", "read_only", "stays: make another authenticator")
	case moved && before.Verified:
		wrong.Add("/value", "read_only", "stays once the authenticator is verified: make another one")
	case moved && before.Method != byEmail:
		wrong.Add("/value", "read_only", "is made here for an authenticator of this method")
	case moved && b.Value == nil:
		wrong.Add("/value", "required", "is required where the method is email")
	case moved:
		checkAddress(*b.Value, &wrong)
	}
	if err := wrong.Err(); err != nil {
		return err
	}
	switch {
	case b.Verified && !before.Verified && !moved:
		if err := s.verify(ctx, tx, c, id, b); err != nil {
			return err
		}
	case b.Verified && !before.Verified:
		return errUnconfirmed()
	case before.Verified && !b.Verified:
		if err := s.unverify(ctx, tx, c, id, before.account()); err != nil {
			return err
		}
	case !moved:
		return nil
	}
	if b.Verified {
		return nil
	}
	// What was asked for before was of the other address.
	_, err := tx.Exec(
		ctx,
		"UPDATE verify_code SET version = version + 1, expires_at = least(expires_at, now()), confirmed_at = NULL, token = NULL WHERE auth_id = $1",
		id,
	)
	return err
}

func errUnconfirmed() error {
	return problem.Member(
		"/verified",
		"unconfirmed",
		"can be true once a code of the authenticator was confirmed, within the last %.0f minutes and with the same key or session",
		freshTime.Minutes(),
	)
}

// verify has an authenticator used from now on, of which the calling key has confirmed a code, or sends the new key. With an account's
// first one
// come recovery codes.
func (s *Service) verify(ctx context.Context, tx *pg.Tx, c caller, id int64, b *authenticatorBody) error {
	if b.made != nil && b.made.open.auth == id {
		if err := s.keepPasskey(ctx, tx, c, b.made); err != nil {
			return err
		}
	}
	var confirmed bool
	err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM verify_code WHERE auth_id = $1 AND key_id = $2 AND confirmed_at > clock_timestamp() - $3::interval)", id, c.key, freshTime).
		Scan(&confirmed)
	if err != nil {
		return fmt.Errorf("look for a confirmed code: %w", err)
	}
	if !confirmed {
		return errUnconfirmed()
	}
	_, others, err := authenticatorsOf(ctx, tx, b.account(), id)
	if err != nil {
		return err
	}
	if others > 0 {
		err = mustBeConfirmed(ctx, tx, c.key)
	} else {
		b.recovery, err = renewRecoveryCodes(ctx, tx, b.account())
	}
	if err != nil {
		return err
	}
	name := principal.From(ctx).Principal.Name
	tx.Record(pg.Record{Kind: "auth.verify.auth", Action: "verified", After: map[string]any{"method": b.Method},
		Targets: []pg.Target{{Type: "auth/verify/auth", Noun: "authenticator", ID: id}, accountTarget(b.account(), &name)}})
	return s.tellOwner(ctx, tx, b.account(), "An authenticator was added, by which sign-ins are confirmed.")
}

// unverify has an authenticator not used any more. An account's last one that is verified its owner does not take away without it.
func (s *Service) unverify(ctx context.Context, tx *pg.Tx, c caller, id int64, of principal.Owner) error {
	_, others, err := authenticatorsOf(ctx, tx, of, id)
	if err != nil {
		return err
	}
	if others == 0 {
		if c.owner == of {
			if err := mustBeConfirmed(ctx, tx, c.key); err != nil {
				return err
			}
		}
		if err := deleteRecoveryCodes(ctx, tx, of); err != nil {
			return err
		}
	}
	return s.tellOwner(ctx, tx, of, "An authenticator, by which sign-ins were confirmed, was removed.")
}

func (s *Service) deleteAuthenticator(ctx context.Context, tx *pg.Tx, a *Authenticator) error {
	c, err := callerOf(ctx, tx)
	if err != nil {
		return err
	}
	if err := s.mayWriteVerify(ctx, tx, c, a.account()); err != nil {
		return err
	}
	if a.Verified {
		if err := s.unverify(ctx, tx, c, a.ID, a.account()); err != nil {
			return err
		}
	}
	_, err = tx.Exec(ctx, "DELETE FROM authenticator WHERE id = $1", a.ID)
	return err
}

// authenticatorsOf counts an account's, but for one, and those that are verified.
func authenticatorsOf(ctx context.Context, q pg.Querier, owner principal.Owner, but int64) (all, verified int, err error) {
	err = q.QueryRow(ctx, "SELECT count(*), count(*) FILTER (WHERE verified) FROM authenticator WHERE owner_type = $1 AND owner_id = $2 AND id <> $3", owner.Type, owner.ID, but).
		Scan(&all, &verified)
	if err != nil {
		return 0, 0, fmt.Errorf("count the authenticators of %s: %w", owner.URL(), err)
	}
	return all, verified, nil
}

// mayWriteVerify tells whether the caller may write to the authenticators of an account: to those of the own one with a key that is as
// free as the account, for they can carry no bound.
func (s *Service) mayWriteVerify(ctx context.Context, tx *pg.Tx, c caller, account principal.Owner) error {
	if c.owner != account {
		return s.mayWrite(ctx, tx, c, account)
	}
	if c.bound == nil || account.Type != principal.Admin {
		return nil
	}
	its, err := adminGrants(ctx, tx, account.ID)
	if err != nil {
		return err
	}
	return guard.MayGive(c.grants, its, "The account holds")
}

// endSecondFactors deletes what proves who the owner of an account is, and answers how many authenticators that were.
func endSecondFactors(ctx context.Context, tx *pg.Tx, owner principal.Owner) (n int64, err error) {
	for _, table := range []string{"verify_code", "recovery_code", "authenticator"} {
		deleted, err := tx.Exec(
			ctx,
			"DELETE FROM "+pgx.Identifier{table}.Sanitize()+" WHERE owner_type = $1 AND owner_id = $2",
			owner.Type,
			owner.ID,
		)
		if err != nil {
			return 0, fmt.Errorf("delete the second factors of %s: %w", owner.URL(), err)
		}
		n = deleted.RowsAffected()
	}
	return n, nil
}
