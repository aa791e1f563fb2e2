package mfa

import (
	"context"
	"errors"
	"fmt"

	"github.com/pquerna/otp/totp"

	"github.com/ironplane/ironplane/pkg/auth/account"
	"github.com/ironplane/ironplane/pkg/auth/credentials"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/settings"
	"github.com/ironplane/ironplane/services/identity/access"
	"github.com/ironplane/ironplane/services/identity/person"
)

// prepareAuthenticator looks up the account's address and the version of its credentials, where a new authenticator needs them. It
// checks what a new security key has answered; that takes one of the code's tries.
func (s *Service) prepareAuthenticator(ctx context.Context, verb rest.Verbs, b *authenticatorBody) (err error) {
	owner := principal.From(ctx).Principal.Owner
	switch {
	case verb == rest.Editing && b.Verified && b.Credential.Type != "":
		b.made, err = s.checkNewPasskey(ctx, b.Credential)
	case verb == rest.Creating && (b.Method == byEmail && b.Value == nil || b.Method == byPasskey && owner.Type == principal.Client):
		b.person, err = s.People.Of(ctx, owner)
	}
	return err
}

func (s *Service) checkNew(ctx context.Context, tx *pg.Tx, c access.Caller, b *authenticatorBody) error {
	b.OwnerType, b.OwnerID = c.Owner.Type, c.Owner.ID
	if c.Owner.Type == principal.Integration {
		return problem.New(problem.Forbidden, "An integration does not sign in, and so has no authenticators.")
	}
	if err := s.mayWrite(ctx, tx, c, c.Owner); err != nil {
		return err
	}
	has, verified, err := countAuthenticators(ctx, tx, c.Owner, 0)
	if err != nil {
		return err
	}
	if verified > 0 {
		if err := mustBeConfirmed(ctx, tx, c.KeyID); err != nil {
			return err
		}
	}
	var invalid problem.Fields
	switch {
	case has >= maxAuthenticators:
		invalid.Add("/method", "too_many", "cannot be another one: the account has %d authenticators", has)
	case b.Method != byEmail && b.Value != nil:
		invalid.Add("/value", "read_only", "is made here for an authenticator of this method")
	case b.Method == byTOTP:
		err = s.makeTOTP(ctx, b)
	case b.Method == byPasskey && s.Passkeys == nil:
		return errNoPasskeys()
	case b.Method == byPasskey:
	case b.Method == byEmail && b.Value == nil && b.person.Email == "":
		invalid.Add("/value", "required", "is required: the account has no address")
	case b.Method == byEmail:
		if b.Value == nil {
			b.Value = &b.person.Email
		}
		checkAddress(*b.Value, &invalid)
	default:
		invalid.Add("/method", "not_found", "names no method that authenticators can be made of")
	}
	if b.Verified {
		invalid.Add("/verified", "unconfirmed", "can be true once a code of the authenticator was confirmed")
	}
	return errors.Join(err, invalid.Err())
}

// makeTOTP makes the secret that the app shares with this service.
func (s *Service) makeTOTP(ctx context.Context, b *authenticatorBody) error {
	key, err := totp.Generate(
		totp.GenerateOpts{Issuer: settings.SiteName.In(s.Settings.Values()), AccountName: principal.From(ctx).Principal.Name, SecretSize: 20},
	)
	if err != nil {
		return fmt.Errorf("make a TOTP secret: %w", err)
	}
	b.Secret, b.reveals = secret.New(key.Secret()), key.URL()
	return nil
}

func checkAddress(address string, invalid *problem.Fields) {
	var of problem.Fields
	if account.CheckEmail(address, &of); len(of) > 0 {
		invalid.Add("/value", of[0].Code, "%s", of[0].Message)
	}
}

func (s *Service) checkEdited(ctx context.Context, tx *pg.Tx, c access.Caller, id int64, before, b *authenticatorBody) error {
	if err := s.mayWrite(ctx, tx, c, before.account()); err != nil {
		return err
	}
	moved := before.Value != b.Value && (before.Value == nil || b.Value == nil || *before.Value != *b.Value)
	var invalid problem.Fields
	switch {
	case b.Method != before.Method:
		invalid.Add("/method", "read_only", "stays: make another authenticator")
	case moved && before.Verified:
		invalid.Add("/value", "read_only", "stays once the authenticator is verified: make another one")
	case moved && before.Method != byEmail:
		invalid.Add("/value", "read_only", "is made here for an authenticator of this method")
	case moved && b.Value == nil:
		invalid.Add("/value", "required", "is required where the method is email")
	case moved:
		checkAddress(*b.Value, &invalid)
	}
	if err := invalid.Err(); err != nil {
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
	// The codes that were sent before went to the old address.
	_, err := tx.Exec(
		ctx,
		"UPDATE verify_code SET version = version + 1, expires_at = least(expires_at, now()), confirmed_at = NULL, token = NULL "+
			"WHERE auth_id = $1",
		id,
	)
	return err
}

func errUnconfirmed() error {
	return problem.Member(
		"/verified",
		"unconfirmed",
		"can be true once a code of the authenticator was confirmed, within the last %.0f minutes and with the same key or session",
		credentials.FreshTime.Minutes(),
	)
}

// verify puts an authenticator to use. The calling key has to have confirmed a code of it, or sends the new security key. An
// account's first authenticator comes with recovery codes.
func (s *Service) verify(ctx context.Context, tx *pg.Tx, c access.Caller, id int64, b *authenticatorBody) error {
	if b.made != nil && b.made.open.auth == id {
		if err := s.keepPasskey(ctx, tx, c, b.made); err != nil {
			return err
		}
	}
	var confirmed bool
	err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM verify_code WHERE auth_id = $1 AND key_id = $2 "+
		"AND confirmed_at > clock_timestamp() - $3::interval)", id, c.KeyID, credentials.FreshTime).
		Scan(&confirmed)
	if err != nil {
		return fmt.Errorf("look for a confirmed code: %w", err)
	}
	if !confirmed {
		return errUnconfirmed()
	}
	_, others, err := countAuthenticators(ctx, tx, b.account(), id)
	if err != nil {
		return err
	}
	if others > 0 {
		err = mustBeConfirmed(ctx, tx, c.KeyID)
	} else {
		b.recovery, err = renewRecoveryCodes(ctx, tx, b.account())
	}
	if err != nil {
		return err
	}
	name := principal.From(ctx).Principal.Name
	tx.Record(pg.Record{Kind: "auth.verify.auth", Action: "verified", After: map[string]any{"method": b.Method},
		Targets: []pg.Target{{Type: "auth/verify/auth", Noun: "authenticator", ID: id}, person.Target(b.account(), &name)}})
	return s.People.NotifyOwner(ctx, tx, b.account(), "An authenticator was added, by which sign-ins are confirmed.")
}

// unverify ends the use of an authenticator. An account's owner has to confirm a code before its last one is removed.
func (s *Service) unverify(ctx context.Context, tx *pg.Tx, c access.Caller, id int64, of principal.Owner) error {
	_, others, err := countAuthenticators(ctx, tx, of, id)
	if err != nil {
		return err
	}
	if others == 0 {
		if c.Owner == of {
			if err := mustBeConfirmed(ctx, tx, c.KeyID); err != nil {
				return err
			}
		}
		if err := deleteRecoveryCodes(ctx, tx, of); err != nil {
			return err
		}
	}
	return s.People.NotifyOwner(ctx, tx, of, "An authenticator, by which sign-ins were confirmed, was removed.")
}
