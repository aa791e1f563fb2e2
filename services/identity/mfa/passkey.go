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

// handleLength is the length in bytes of an account's handle, by which security keys know the account.
const handleLength = 32

// errNoPasskeys returns the refusal of security keys where the operator has not configured them.
func errNoPasskeys() error {
	return problem.Member(
		"/method",
		"unavailable",
		"cannot be passkey: the operator has to set IRONPLANE_PASSKEY_DOMAIN and IRONPLANE_PASSKEY_ORIGINS of the identity service first",
	)
}

// passkeyDomain returns the domain of the keys that can be used, or "" if there is none.
func (s *Service) passkeyDomain() string {
	if s.Passkeys == nil {
		return ""
	}
	return s.Passkeys.Domain
}

// passkeyPolicy returns what the settings ask of security keys.
func (s *Service) passkeyPolicy() passkey.Policy {
	values := s.Settings.Values()
	return passkey.Policy{Site: settings.SiteName.In(values), Verify: settings.VerifyPasskeys.In(values) == 1}
}

// readPasskeys returns an account's verified keys that can be used.
func (s *Service) readPasskeys(ctx context.Context, q pg.Querier, owner principal.Owner) (a passkey.Account, err error) {
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

// beginPasskey returns the options by which the caller's browser creates a key for a new authenticator.
func (s *Service) beginPasskey(ctx context.Context, tx *pg.Tx, id int64, p person.Person) (options string, err error) {
	c, err := access.ReadCaller(ctx, tx)
	if err != nil {
		return "", err
	}
	auth, err := AuthenticatorView.Get(ctx, tx, id)
	if err != nil {
		return "", fmt.Errorf("read authenticator %d: %w", id, err)
	}
	p.Owner, p.Name = c.Owner, principal.FromContext(ctx).Principal.Name
	code, err := s.beginChallenge(ctx, tx, challengeOptions{person: p, origin: fromSession, auth: &auth, key: &c.KeyID, latest: c.Latest})
	return string(code.Options), err
}

// createChallenge returns the options for a browser. For an authenticator that is not verified they create a key, and else they
// have one of the account's keys sign. They are nil if none of these keys can be used.
func (s *Service) createChallenge(ctx context.Context, tx *pg.Tx, code *VerifyCode, p person.Person) (options json.RawMessage, err error) {
	keys, err := s.readPasskeys(ctx, tx, p.Owner)
	if err != nil {
		return nil, err
	}
	var challenge []byte
	switch {
	case s.Passkeys == nil && !code.Auth.Verified:
		return nil, errNoPasskeys()
	case !code.Auth.Verified:
		keys.Name = p.Name
		if keys.Handle, err = passkeyHandle(ctx, tx, code.Auth.ID, p.Owner); err != nil {
			return nil, err
		}
		options, challenge, err = s.Passkeys.CreationOptions(keys, s.passkeyPolicy())
	case len(keys.Keys) > 0:
		options, challenge, err = s.Passkeys.RequestOptions(keys, s.passkeyPolicy())
	}
	if err != nil {
		return nil, err
	}
	if _, err := tx.Exec(ctx, "UPDATE verify_code SET signed = $2 WHERE id = $1", code.ID, challenge); err != nil {
		return nil, fmt.Errorf("store a challenge: %w", err)
	}
	return options, nil
}

// passkeyHandle returns the account's handle. The handle stays the same, so that a device replaces its key for the account instead
// of adding one.
func passkeyHandle(ctx context.Context, tx *pg.Tx, auth int64, owner principal.Owner) (handle []byte, err error) {
	random := make([]byte, handleLength)
	rand.Read(random)
	err = tx.QueryRow(ctx, `
		UPDATE authenticator SET handle = coalesce((SELECT handle FROM authenticator WHERE owner_type = $2 AND owner_id = $3 AND handle IS NOT NULL ORDER BY id LIMIT 1), $4)
		WHERE id = $1 RETURNING handle`, auth, owner.Type, owner.ID, random).Scan(&handle)
	if err != nil {
		return nil, fmt.Errorf("set the handle of a security key of %s: %w", owner.URL(), err)
	}
	return handle, nil
}

// newPasskey is a new security key, with the code that it answers.
type newPasskey struct {
	code pendingCode
	key  passkey.Key
}

// checkNewPasskey checks a new key's credential against the challenge of the calling key. It returns nil if no such challenge is
// open.
func (s *Service) checkNewPasskey(ctx context.Context, credential passkey.Credential) (*newPasskey, error) {
	p := principal.FromContext(ctx).Principal
	created := newPasskey{code: pendingCode{
		origin: fromSession, method: methodPasskey, owner: p.Owner, name: p.Name, challenge: credential.Challenge(),
	}}
	o := &created.code
	err := s.DB.QueryRow(ctx, "SELECT c.id, v.id, c.credentials FROM verify_code c JOIN authenticator v ON v.id = c.auth_id "+
		"WHERE c.key_id = $1 AND c.signed = $2 AND c.confirmed_at IS NULL AND NOT v.verified", p.KeyID, o.challenge).
		Scan(&o.id, &o.auth, &o.credentials)
	if errors.Is(err, pgx.ErrNoRows) || err == nil && s.Passkeys == nil {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find the challenge of a new security key: %w", err)
	}
	if err := s.findPerson(ctx, &confirmRequest{code: o}); err != nil {
		return nil, err
	}
	return &created, s.tryAnswer(ctx, o, func() (err error) {
		created.key, err = s.Passkeys.VerifyNew(s.passkeyPolicy(), o.challenge, credential)
		return newInvalidPasskey(err)
	})
}

// maxReason bounds the logged reason of a refusal, in bytes. The caller has sent a part of it.
const maxReason = 300

// newInvalidPasskey turns a refusal by package passkey into an invalidAnswer.
func newInvalidPasskey(err error) error {
	var refused *passkey.Refused
	if !errors.As(err, &refused) {
		return err
	}
	reason := strings.TrimSuffix(refused.Reason+": "+refused.Detail, ": ")
	return &invalidAnswer{
		field:  problem.Member("/credential", "wrong", "is refused: %s", refused.Reason),
		reason: strings.ToValidUTF8(reason[:min(len(reason), maxReason)], ""), copied: refused.Copied,
	}
}

// storePasskey stores a new key, and consumes its code.
func (s *Service) storePasskey(ctx context.Context, tx *pg.Tx, c access.Caller, created *newPasskey) error {
	k := created.key
	_, err := tx.Exec(
		ctx,
		"UPDATE authenticator SET domain = $2, credential = $3, public_key = $4, counter = $5, copied = $6, transports = $7 WHERE id = $1",
		created.code.auth,
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
	return s.consume(ctx, tx, &created.code, matchResult{}, c.KeyID)
}

// verifySignature returns the account's key that has signed the challenge.
func (s *Service) verifySignature(ctx context.Context, o *pendingCode, credential passkey.Credential) (*passkey.Key, error) {
	newInvalid := func(why string) error { return newInvalidPasskey(&passkey.Refused{Reason: why}) }
	switch {
	case o.method != methodPasskey || o.challenge == nil || s.Passkeys == nil:
		return nil, newInvalid("no security key was asked for")
	case !o.verified:
		return nil, newInvalid("the key is new: send it in the request that verifies its authenticator")
	}
	account, err := s.readPasskeys(ctx, s.DB, o.owner)
	if err != nil {
		return nil, err
	}
	if len(account.Keys) == 0 {
		return nil, newInvalid("the account has no security key that can be used")
	}
	k, err := s.Passkeys.VerifySignature(account, s.passkeyPolicy(), o.challenge, credential)
	return &k, newInvalidPasskey(err)
}
