package mfa

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/settings"
	"github.com/ironplane/ironplane/services/identity/access"
	"github.com/ironplane/ironplane/services/identity/passkey"
	"github.com/ironplane/ironplane/services/identity/person"
)

// handleLength is the length of an account's handle, by which security keys know the account, in bytes.
const handleLength = 32

func errNoPasskeys() error {
	return problem.Member(
		"/method",
		"unavailable",
		"cannot be security keys and passkeys: IRONPLANE_PASSKEY_DOMAIN and IRONPLANE_PASSKEY_ORIGINS of the identity service say for which "+
			"domain and panels they are, and are not set",
	)
}

// passkeyDomain returns the domain of the keys that can be used; empty where there is none.
func (s *Service) passkeyDomain() string {
	if s.Passkeys == nil {
		return ""
	}
	return s.Passkeys.Domain
}

func (s *Service) passkeyPolicy() passkey.Policy {
	values := s.Settings.Values()
	return passkey.Policy{Site: settings.SiteName.In(values), Verify: settings.VerifyPasskeys.In(values) == 1}
}

// passkeysOf returns an account's verified keys that can be used.
func (s *Service) passkeysOf(ctx context.Context, q pg.Querier, owner principal.Owner) (a passkey.Account, err error) {
	rows, err := q.Query(
		ctx,
		"SELECT handle, credential, public_key, counter, copied, transports FROM authenticator "+
			"WHERE owner_type = $1 AND owner_id = $2 AND verified AND domain = $3 ORDER BY id",
		owner.Type,
		owner.ID,
		s.passkeyDomain(),
	)
	if err != nil {
		return a, fmt.Errorf("read the security keys of %s: %w", owner.URL(), err)
	}
	a.Keys, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (k passkey.Key, err error) {
		return k, row.Scan(&a.Handle, &k.ID, &k.Public, &k.Counter, &k.Copied, &k.Transports)
	})
	if err != nil {
		return a, fmt.Errorf("read the security keys of %s: %w", owner.URL(), err)
	}
	return a, nil
}

// askForPasskey returns the options by which the caller's browser makes a key for a new authenticator.
func (s *Service) askForPasskey(ctx context.Context, tx *pg.Tx, id int64, p person.Person) (options string, err error) {
	c, err := access.Of(ctx, tx)
	if err != nil {
		return "", err
	}
	auth, err := AuthenticatorView.Get(ctx, tx, id)
	if err != nil {
		return "", fmt.Errorf("read authenticator %d: %w", id, err)
	}
	p.Owner, p.Name = c.Owner, principal.From(ctx).Principal.Name
	code, err := s.askFor(ctx, tx, challengeOptions{person: p, auth: &auth, key: &c.KeyID, latest: c.Latest})
	return string(code.Options), err
}

// challenge returns what a browser is asked: to make a key for an authenticator that is not verified, or else to sign with one of
// the account's keys. It is nil where none of those can be used.
func (s *Service) challenge(ctx context.Context, tx *pg.Tx, code *VerifyCode, p person.Person) (options json.RawMessage, err error) {
	keys, err := s.passkeysOf(ctx, tx, p.Owner)
	if err != nil {
		return nil, err
	}
	var signed []byte
	switch {
	case s.Passkeys == nil && !code.Auth.Verified:
		return nil, errNoPasskeys()
	case !code.Auth.Verified:
		keys.Name = p.Name
		if keys.Handle, err = passkeyHandle(ctx, tx, code.Auth.ID, p.Owner); err != nil {
			return nil, err
		}
		options, signed, err = s.Passkeys.NewKey(keys, s.passkeyPolicy())
	case len(keys.Keys) > 0:
		options, signed, err = s.Passkeys.Sign(keys, s.passkeyPolicy())
	}
	if err != nil {
		return nil, err
	}
	if _, err := tx.Exec(ctx, "UPDATE verify_code SET signed = $2 WHERE id = $1", code.ID, signed); err != nil {
		return nil, fmt.Errorf("keep a challenge: %w", err)
	}
	return options, nil
}

// passkeyHandle returns the account's handle. It stays, so that a device replaces its key for the account instead of adding one.
func passkeyHandle(ctx context.Context, tx *pg.Tx, auth int64, owner principal.Owner) (handle []byte, err error) {
	random := make([]byte, handleLength)
	rand.Read(random)
	err = tx.QueryRow(ctx, `
		UPDATE authenticator SET handle = coalesce((SELECT handle FROM authenticator WHERE owner_type = $2 AND owner_id = $3 AND handle IS NOT NULL ORDER BY id LIMIT 1), $4)
		WHERE id = $1 RETURNING handle`, auth, owner.Type, owner.ID, random).Scan(&handle)
	if err != nil {
		return nil, fmt.Errorf("give a security key a name for %s: %w", owner.URL(), err)
	}
	return handle, nil
}

// newPasskey is a new security key, and the code by which it was asked for.
type newPasskey struct {
	open openCode
	key  passkey.Key
}

// checkNewPasskey checks a new key's answer to a challenge of the calling key; nil where no such challenge is open.
func (s *Service) checkNewPasskey(ctx context.Context, answer passkey.Credential) (*newPasskey, error) {
	p := principal.From(ctx).Principal
	made := newPasskey{open: openCode{method: byPasskey, owner: p.Owner, name: p.Name, signed: answer.Challenge()}}
	o := &made.open
	err := s.DB.QueryRow(ctx, "SELECT c.id, v.id, c.credentials FROM verify_code c JOIN authenticator v ON v.id = c.auth_id "+
		"WHERE c.key_id = $1 AND c.signed = $2 AND c.confirmed_at IS NULL AND NOT v.verified", p.KeyID, o.signed).
		Scan(&o.id, &o.auth, &o.credentials)
	if errors.Is(err, pgx.ErrNoRows) || err == nil && s.Passkeys == nil {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for what a new key answers: %w", err)
	}
	if err := s.findPerson(ctx, &codeAnswer{open: o}); err != nil {
		return nil, err
	}
	return &made, s.try(ctx, o, func() (err error) {
		made.key, err = s.Passkeys.Made(s.passkeyPolicy(), o.signed, answer)
		return wrongPasskey(err)
	})
}

// maxReason bounds the logged reason why a key was refused, in bytes: part of it is what the caller sent.
const maxReason = 300

// wrongPasskey turns a refused answer into a wrongAnswer.
func wrongPasskey(err error) error {
	var refused *passkey.Refused
	if !errors.As(err, &refused) {
		return err
	}
	reason := strings.TrimSuffix(refused.Why+": "+refused.Detail, ": ")
	return &wrongAnswer{
		field:  problem.Member("/credential", "wrong", "does not count: %s", refused.Why),
		reason: strings.ToValidUTF8(reason[:min(len(reason), maxReason)], ""), copied: refused.Copied,
	}
}

// keepPasskey stores a new key, and consumes its code.
func (s *Service) keepPasskey(ctx context.Context, tx *pg.Tx, c access.Caller, made *newPasskey) error {
	k := made.key
	_, err := tx.Exec(
		ctx,
		"UPDATE authenticator SET domain = $2, credential = $3, public_key = $4, counter = $5, copied = $6, transports = $7 WHERE id = $1",
		made.open.auth,
		s.Passkeys.Domain,
		k.ID,
		k.Public,
		k.Counter,
		k.Copied,
		k.Transports,
	)
	if err != nil {
		return err
	}
	return s.use(ctx, tx, &made.open, matched{}, c.KeyID)
}

// signed returns the account's key that has signed the challenge.
func (s *Service) signed(ctx context.Context, o *openCode, answer passkey.Credential) (*passkey.Key, error) {
	wrong := func(why string) error { return wrongPasskey(&passkey.Refused{Why: why}) }
	switch {
	case o.method != byPasskey || o.signed == nil || s.Passkeys == nil:
		return nil, wrong("no security key was asked for")
	case !o.verified:
		return nil, wrong("the key is a new one, which is sent when its authenticator is verified")
	}
	account, err := s.passkeysOf(ctx, s.DB, o.owner)
	if err != nil {
		return nil, err
	}
	if len(account.Keys) == 0 {
		return nil, wrong("the account has no security key that can be used")
	}
	k, err := s.Passkeys.Signed(account, s.passkeyPolicy(), o.signed, answer)
	return &k, wrongPasskey(err)
}
