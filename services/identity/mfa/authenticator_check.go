package mfa

import (
	"context"
	"errors"
	"fmt"

	"github.com/pquerna/otp/totp"

	"github.com/ironplane/ironplane/pkg/auth/credentials"
	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/rest/body"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/settings"
	"github.com/ironplane/ironplane/services/identity/access"
	"github.com/ironplane/ironplane/services/identity/person"
)

// personal is a guard for the keys of accounts that sign in.
type personal struct{}

func (personal) String() string { return "any key of a person" }

// Check refuses an integration.
func (personal) Check(c *principal.Call, a permission.Access, id int64) error {
	if err := guard.AnyKey.Check(c, a, id); err != nil {
		return err
	}
	if c.Principal.Owner.Type == principal.Integration {
		return problem.New(problem.Forbidden, "Integrations do not sign in, so they have no authenticators.")
	}
	return nil
}

// prepareAuthenticator looks up the address and credentials version of the account if the authenticator needs them. It checks the
// credential of a new security key, which counts as one try of its code.
func (s *Service) prepareAuthenticator(ctx context.Context, verb rest.Verbs, b *authenticatorBody) (err error) {
	owner := principal.FromContext(ctx).Principal.Owner
	switch {
	case verb == rest.Editing && b.Verified && b.Credential.Type != "":
		b.newKey, err = s.checkNewPasskey(ctx, b.Credential)
	case verb == rest.Creating && (b.Method == methodEmail && b.Value == nil || b.Method == methodPasskey && owner.Type == principal.Client):
		b.person, err = s.People.Get(ctx, owner)
	}
	return err
}

// checkNew refuses an authenticator that the caller may not add, and sets the columns that are not in the body.
func (s *Service) checkNew(ctx context.Context, tx *pg.Tx, c access.Caller, b *authenticatorBody) error {
	b.OwnerType, b.OwnerID = c.Owner.Type, c.Owner.ID
	if err := s.checkWrite(ctx, tx, c, c.Owner); err != nil {
		return err
	}
	count, verified, err := countAuthenticators(ctx, tx, c.Owner, 0)
	if err != nil {
		return err
	}
	if verified > 0 {
		if err := requireConfirmation(ctx, tx, c.KeyID); err != nil {
			return err
		}
	}
	var invalid problem.Fields
	switch {
	case count >= maxAuthenticators:
		invalid.Add("/method", "too_many", "cannot be added: the account has %d authenticators, and may have no more", count)
	case b.Method != methodEmail && b.Value != nil:
		invalid.Add("/value", "read_only", "is chosen by the server for this method")
	case b.Method == methodTOTP:
		err = s.generateTOTP(ctx, b)
	case b.Method == methodPasskey && s.Passkeys == nil:
		return errNoPasskeys()
	case b.Method == methodPasskey:
	case b.Method == methodEmail && b.Value == nil && b.person.Email == "":
		invalid.Add("/value", "required", "is required: the account has no email address")
	case b.Method == methodEmail:
		if b.Value == nil {
			b.Value = &b.person.Email
		}
		checkAddress(*b.Value, &invalid)
	default:
		invalid.Add("/method", "not_found", "is not a method of authenticators")
	}
	if b.Verified {
		invalid.Add("/verified", "unconfirmed", "can be true only after a code of the authenticator was confirmed")
	}
	return errors.Join(err, invalid.Err())
}

// generateTOTP generates the secret that the app shares with this service.
func (s *Service) generateTOTP(ctx context.Context, b *authenticatorBody) error {
	key, err := totp.Generate(
		totp.GenerateOpts{
			Issuer:      settings.SiteName.In(s.Settings.Values()),
			AccountName: principal.FromContext(ctx).Principal.Name,
			SecretSize:  20,
		},
	)
	if err != nil {
		return fmt.Errorf("generate a TOTP secret: %w", err)
	}
	b.Secret, b.shownOnce = secret.New(key.Secret()), key.URL()
	return nil
}

// checkAddress checks the address that codes are mailed to.
func checkAddress(address string, invalid *problem.Fields) {
	if !body.IsEmail(address) {
		invalid.Add("/value", "invalid", body.NotEmail)
	}
}

// checkEdited refuses an edit that the caller may not make. It puts the authenticator into use, or out of use.
func (s *Service) checkEdited(ctx context.Context, tx *pg.Tx, c access.Caller, id int64, before, b *authenticatorBody) error {
	if err := s.checkWrite(ctx, tx, c, before.account()); err != nil {
		return err
	}
	movesAddress := before.Value != b.Value && (before.Value == nil || b.Value == nil || *before.Value != *b.Value)
	var invalid problem.Fields
	switch {
	case b.Method != before.Method:
		invalid.Add("/method", "read_only", "cannot be changed: create another authenticator")
	case movesAddress && before.Verified:
		invalid.Add("/value", "read_only", "cannot be changed once the authenticator is verified: create another one")
	case movesAddress && before.Method != methodEmail:
		invalid.Add("/value", "read_only", "is chosen by the server for this method")
	case movesAddress && b.Value == nil:
		invalid.Add("/value", "required", "is required if the method is email")
	case movesAddress:
		checkAddress(*b.Value, &invalid)
	}
	if err := invalid.Err(); err != nil {
		return err
	}
	switch {
	case b.Verified && !before.Verified && !movesAddress:
		if err := s.verify(ctx, tx, c, id, b); err != nil {
			return err
		}
	case b.Verified && !before.Verified:
		return errUnconfirmed()
	case before.Verified && !b.Verified:
		if err := s.unverify(ctx, tx, c, id, before.account()); err != nil {
			return err
		}
	case !movesAddress:
		return nil
	}
	if b.Verified {
		return nil
	}
	// Codes that were sent before went to the old address.
	_, err := tx.Exec(
		ctx,
		"UPDATE verify_code SET version = version + 1, expires_at = least(expires_at, now()), confirmed_at = NULL, token = NULL "+
			"WHERE auth_id = $1",
		id,
	)
	return err
}

// errUnconfirmed returns the refusal to verify an authenticator without a confirmed code of it.
func errUnconfirmed() error {
	return problem.Member(
		"/verified",
		"unconfirmed",
		"can be true only after a code of the authenticator was confirmed with the same key or session, within the last %.0f minutes",
		credentials.FreshLoginTTL.Minutes(),
	)
}

// verify puts an authenticator to use. The calling key must have confirmed a code of it, or send the new security key. An
// account's first authenticator comes with recovery codes.
func (s *Service) verify(ctx context.Context, tx *pg.Tx, c access.Caller, id int64, b *authenticatorBody) error {
	if b.newKey != nil && b.newKey.code.auth == id {
		if err := s.storePasskey(ctx, tx, c, b.newKey); err != nil {
			return err
		}
	}
	var confirmed bool
	err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM verify_code WHERE auth_id = $1 AND key_id = $2 "+
		"AND confirmed_at > clock_timestamp() - $3::interval)", id, c.KeyID, credentials.FreshLoginTTL).
		Scan(&confirmed)
	if err != nil {
		return fmt.Errorf("find a confirmed code: %w", err)
	}
	if !confirmed {
		return errUnconfirmed()
	}
	_, others, err := countAuthenticators(ctx, tx, b.account(), id)
	if err != nil {
		return err
	}
	if others > 0 {
		err = requireConfirmation(ctx, tx, c.KeyID)
	} else {
		b.recovery, err = renewRecoveryCodes(ctx, tx, b.account())
	}
	if err != nil {
		return err
	}
	name := principal.FromContext(ctx).Principal.Name
	tx.Record(pg.Record{Kind: "auth.verify.auth", Action: "verified", After: map[string]any{"method": b.Method},
		Targets: []pg.Target{{Type: "auth/verify/auth", Noun: "authenticator", ID: id}, person.Target(b.account(), &name)}})
	return s.People.NotifyOwner(ctx, tx, b.account(), "An authenticator was added, which confirms sign-ins from now on.")
}

// unverify ends the use of an authenticator. An account's owner has to confirm a code before it removes its last one.
func (s *Service) unverify(ctx context.Context, tx *pg.Tx, c access.Caller, id int64, owner principal.Owner) error {
	_, others, err := countAuthenticators(ctx, tx, owner, id)
	if err != nil {
		return err
	}
	if others == 0 {
		if c.Owner == owner {
			if err := requireConfirmation(ctx, tx, c.KeyID); err != nil {
				return err
			}
		}
		if err := deleteRecoveryCodes(ctx, tx, owner); err != nil {
			return err
		}
	}
	return s.People.NotifyOwner(ctx, tx, owner, "An authenticator was removed, which confirmed sign-ins until now.")
}
