package identity

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
	"github.com/ironplane/ironplane/services/identity/passkey"
)

// handleLength is how many random bytes keys call their account.
const handleLength = 32

func errNoPasskeys() error {
	return problem.Member(
		"/method",
		"unavailable",
		"cannot be security keys and passkeys: IRONPLANE_PASSKEY_DOMAIN and IRONPLANE_PASSKEY_ORIGINS of the identity service say for which domain and panels they are, and are not set",
	)
}

// passkeyDomain is the domain of the keys that can be used.
func (s *Service) passkeyDomain() string {
	if s.passkeys == nil {
		return ""
	}
	return s.passkeys.Domain
}

func (s *Service) passkeyPolicy() passkey.Policy {
	values := s.settings.Values()
	return passkey.Policy{Site: settings.SiteName.In(values), Verify: settings.VerifyPasskeys.In(values) == 1}
}

// passkeysOf are an account's verified keys that can be used.
func (s *Service) passkeysOf(ctx context.Context, q pg.Querier, owner principal.Owner) (a passkey.Account, err error) {
	rows, err := q.Query(
		ctx,
		"SELECT handle, credential, public_key, counter, copied, transports FROM authenticator WHERE owner_type = $1 AND owner_id = $2 AND verified AND domain = $3 ORDER BY id",
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

// askForPasskey has the browser of the caller, who has made an authenticator, make a key for it.
func (s *Service) askForPasskey(ctx context.Context, tx *pg.Tx, id int64, p person) (options string, err error) {
	c, err := callerOf(ctx, tx)
	if err != nil {
		return "", err
	}
	auth, err := authenticatorView.Get(ctx, tx, id)
	if err != nil {
		return "", fmt.Errorf("read authenticator %d: %w", id, err)
	}
	p.owner, p.Name = c.owner, principal.From(ctx).Principal.Name
	code, err := s.askFor(ctx, tx, asked{person: p, auth: &auth, key: &c.key, latest: c.expires})
	return string(code.Options), err
}

// challenge is what a browser is asked: to make a key for an authenticator that is not verified, or to have one of the account's keys sign,
// of
// which there may be none that can be used.
func (s *Service) challenge(ctx context.Context, tx *pg.Tx, code *VerifyCode, p person) (options json.RawMessage, err error) {
	keys, err := s.passkeysOf(ctx, tx, p.owner)
	if err != nil {
		return nil, err
	}
	var signed []byte
	switch {
	case s.passkeys == nil && !code.Auth.Verified:
		return nil, errNoPasskeys()
	case !code.Auth.Verified:
		keys.Name = p.Name
		if keys.Handle, err = passkeyHandle(ctx, tx, code.Auth.ID, p.owner); err != nil {
			return nil, err
		}
		options, signed, err = s.passkeys.NewKey(keys, s.passkeyPolicy())
	case len(keys.Keys) > 0:
		options, signed, err = s.passkeys.Sign(keys, s.passkeyPolicy())
	}
	if err != nil {
		return nil, err
	}
	if _, err := tx.Exec(ctx, "UPDATE verify_code SET signed = $2 WHERE id = $1", code.ID, signed); err != nil {
		return nil, fmt.Errorf("keep a challenge: %w", err)
	}
	return options, nil
}

// passkeyHandle is what an account's keys call it. It stays, so that a device that makes another key for it forgets the last one.
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

// newPasskey is a key that was made as the caller was asked to.
type newPasskey struct {
	open openCode
	key  passkey.Key
}

// checkNewPasskey looks whether an answer is that of a new key to what the calling key was asked; nil: it answers nothing that is open.
func (s *Service) checkNewPasskey(ctx context.Context, answer passkey.Credential) (*newPasskey, error) {
	p := principal.From(ctx).Principal
	made := newPasskey{open: openCode{method: byPasskey, owner: p.Owner, name: p.Name, signed: answer.Challenge()}}
	o := &made.open
	err := s.db.QueryRow(ctx, "SELECT c.id, v.id, c.credentials FROM verify_code c JOIN authenticator v ON v.id = c.auth_id WHERE c.key_id = $1 AND c.signed = $2 AND c.confirmed_at IS NULL AND NOT v.verified", p.KeyID, o.signed).
		Scan(&o.id, &o.auth, &o.credentials)
	if errors.Is(err, pgx.ErrNoRows) || err == nil && s.passkeys == nil {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for what a new key answers: %w", err)
	}
	if err := s.findPerson(ctx, &codeAnswer{open: o}); err != nil {
		return nil, err
	}
	return &made, s.try(ctx, o, func() (err error) {
		made.key, err = s.passkeys.Made(s.passkeyPolicy(), o.signed, answer)
		return wrongPasskey(err)
	})
}

// longestReason is how much stands in the log of why a key was refused, which is partly what it sent.
const longestReason = 300

// wrongPasskey says of an answer that was refused why.
func wrongPasskey(err error) error {
	var refused *passkey.Refused
	if !errors.As(err, &refused) {
		return err
	}
	reason := strings.TrimSuffix(refused.Why+": "+refused.Detail, ": ")
	return &wrongAnswer{
		field:  problem.Member("/credential", "wrong", "does not count: %s", refused.Why),
		reason: strings.ToValidUTF8(reason[:min(len(reason), longestReason)], ""), copied: refused.Copied,
	}
}

// keepPasskey keeps a key that was made, and uses up what it was asked for by.
func (s *Service) keepPasskey(ctx context.Context, tx *pg.Tx, c caller, made *newPasskey) error {
	k := made.key
	_, err := tx.Exec(
		ctx,
		"UPDATE authenticator SET domain = $2, credential = $3, public_key = $4, counter = $5, copied = $6, transports = $7 WHERE id = $1",
		made.open.auth,
		s.passkeys.Domain,
		k.ID,
		k.Public,
		k.Counter,
		k.Copied,
		k.Transports,
	)
	if err != nil {
		return err
	}
	return s.use(ctx, tx, &made.open, matched{}, c.key)
}

// signed looks which of the account's keys has signed what was asked for.
func (s *Service) signed(ctx context.Context, o *openCode, answer passkey.Credential) (*passkey.Key, error) {
	wrong := func(why string) error { return wrongPasskey(&passkey.Refused{Why: why}) }
	switch {
	case o.method != byPasskey || o.signed == nil || s.passkeys == nil:
		return nil, wrong("no security key was asked for")
	case !o.verified:
		return nil, wrong("the key is a new one, which is sent when its authenticator is verified")
	}
	account, err := s.passkeysOf(ctx, s.db, o.owner)
	if err != nil {
		return nil, err
	}
	if len(account.Keys) == 0 {
		return nil, wrong("the account has no security key that can be used")
	}
	k, err := s.passkeys.Signed(account, s.passkeyPolicy(), o.signed, answer)
	return &k, wrongPasskey(err)
}
