package mfa

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/mail"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/services/identity/access"
	"github.com/ironplane/ironplane/services/identity/keys"
	"github.com/ironplane/ironplane/services/identity/person"
)

const (
	// CodeTTL is how long a code can be confirmed. It is compared maxTries times.
	CodeTTL  = 10 * time.Minute
	maxTries = 5
)

const codesPath, codePath = "/auth/verify/auth/{auth_id}/code", "/auth/verify/auth/{auth_id}/code/{code_id}"

// VerifyCode is a pending or confirmed second-factor challenge.
type VerifyCode struct {
	rest.Versioned
	ID          int64           `json:"id" db:"id"`
	Name        string          `json:"-" db:"auth_method_name"`
	Auth        CodeAuth        `json:"auth" db:"auth_" doc:"The authenticator that the code belongs to."`
	ExpiresAt   rest.Timestamp  `json:"expires_at" db:"expires_at" ext:"true"`
	ConfirmedAt *rest.Timestamp `json:"confirmed_at,omitempty" db:"confirmed_at" ext:"true" doc:"When the code was confirmed. Left out until then."`
	Options     json.RawMessage `json:"options,omitempty" ext:"true" doc:"For passkey, only in the response that creates the code: the JSON for PublicKeyCredential.parseRequestOptionsFromJSON(), or for parseCreationOptionsFromJSON() if the authenticator is not verified yet. Left out if no security key can be used; then recovery codes still work."`
}

// CodeAuth is the authenticator that a code belongs to.
type CodeAuth struct {
	ID       int64    `json:"id" db:"id" doc:"The authenticator's id. 0: the account has none, and the code is mailed to its address."`
	Method   rest.Ref `json:"method" db:"method_" doc:"The kind of second factor."`
	Verified bool     `json:"verified" db:"verified" doc:"Whether the authenticator is in use."`
}

// verifyCodeBody is internal. Clients never send it.
type verifyCodeBody struct {
	Auth int64 `path:"auth_id" db:"auth_id"`
}

// newVerifyCode is a request for a code.
type newVerifyCode struct {
	Auth int64 `path:"auth_id"`
	Body rest.Body[wrappedBody]

	credentials int64
}

// wrappedBody is the body of a request for a code. Callers may send it, and it has no effect.
type wrappedBody struct {
	IsWrapped bool `json:"isWrapped" example:"true" doc:"Ignored."`
}

// codeRoutes returns the operations on codes.
func (s *Service) codeRoutes() []rest.Route {
	return append(
		rest.Resource[VerifyCode, verifyCodeBody]{
			Path:    codesPath,
			ID:      "code_id",
			Noun:    "verify code",
			Guard:   guard.ForCredentials(guard.AnyKey),
			Without: rest.Listing | rest.Creating | rest.Editing,
			Table:   "verify_code",
			View:    "verify_code_view",
			Scope: func(ctx context.Context) []pg.Condition {
				return []pg.Condition{{SQL: "key_id = $1", Args: []any{principal.FromContext(ctx).Principal.KeyID}}}
			},
			// A code reveals nothing about others' authenticators.
			Parent: func(context.Context, pg.Querier, int64, permission.Access) error { return nil },
			Lock: func(ctx context.Context, tx *pg.Tx, _ rest.Verbs, _ ...*verifyCodeBody) error {
				return access.Allow(ctx, tx)
			},
		}.Routes(),
		rest.Mutation[newVerifyCode, VerifyCode]{
			Method:  http.MethodPost,
			Path:    codesPath,
			Guard:   guard.ForCredentials(guard.AnyKey),
			Name:    "createVerifyCode",
			Summary: "Send a code by mail, or begin to confirm another second factor",
			Effect: rest.Effect{
				Logs:     rest.LogsItem,
				Retry:    rest.RetryRepeats,
				ViewPath: codePath,
			},
			Prepare: s.prepareCode,
			Allow:   access.AllowMutation[newVerifyCode],
			Do:      s.createCode,
		},
		rest.Mutation[confirmRequest, ConfirmedKey]{
			Method:  http.MethodPatch,
			Path:    codePath,
			Guard:   guard.ForCredentials(keyOrChallenge{}),
			Name:    "confirmVerifyCode",
			Summary: "Confirm a code, or complete a login",
			Effect: rest.Effect{
				Logs:  rest.LogsEach,
				Retry: rest.RetryRefused,
			},
			Example: `{"token": "123456"}`,
			Prepare: s.compareCode,
			Do:      s.confirmCode,
		},
	)
}

// prepareCode looks up the version of a client's credentials. The code expires when the version changes.
func (s *Service) prepareCode(ctx context.Context, req *newVerifyCode) error {
	if owner := principal.FromContext(ctx).Principal.Owner; owner.Type == principal.Client {
		p, err := s.People.Get(ctx, owner)
		req.credentials = p.Version
		return err
	}
	return nil
}

// createCode creates a challenge for one of the caller's authenticators.
func (s *Service) createCode(ctx context.Context, tx *pg.Tx, req newVerifyCode) (VerifyCode, error) {
	c, err := access.LockCaller(ctx, tx)
	if err != nil {
		return VerifyCode{}, err
	}
	auth, err := AuthenticatorView.Get(ctx, tx, req.Auth, access.ReadableOwners(ctx)...)
	if err != nil {
		return VerifyCode{}, err
	}
	if auth.Account() != c.Owner {
		return VerifyCode{}, problem.New(problem.Forbidden, "Only an authenticator's owner can ask for its codes.")
	}
	if _, err := req.Body.New(); err != nil {
		return VerifyCode{}, err
	}
	p := person.Person{Owner: c.Owner}
	p.Name, p.Version = principal.FromContext(ctx).Principal.Name, req.credentials
	return s.beginChallenge(ctx, tx, challengeOptions{person: p, origin: fromSession, auth: &auth, key: &c.KeyID, latest: c.Latest})
}

// challengeOptions describe a new challenge.
type challengeOptions struct {
	person    person.Person
	origin    origin
	auth      *Authenticator // nil: the code is mailed to the account's address
	key       *int64         // the calling key; nil for a login
	challenge secret.String  // of a login
	latest    *time.Time     // when the code expires at the latest; nil: after CodeTTL
}

// beginChallenge stores a challenge, and mails the code if the method is email.
func (s *Service) beginChallenge(ctx context.Context, tx *pg.Tx, o challengeOptions) (code VerifyCode, err error) {
	owner := o.person.Owner
	if err := tx.Lock(ctx, "codes of "+string(owner.Type), owner.ID); err != nil { // so that concurrent requests are counted
		return code, err
	}
	if err := dropOldest(ctx, tx, &o); err != nil {
		return code, err
	}
	var authID *int64
	to := o.person.MailTo()
	if o.auth != nil {
		authID = &o.auth.ID
		if o.auth.Value != nil {
			to.To.Email = *o.auth.Value
		}
	}
	var challenge []byte
	if !o.challenge.IsZero() {
		challenge = keys.HashToken(o.challenge.Reveal())
	}
	var id int64
	var options json.RawMessage // must not be logged
	err = tx.QueryRow(ctx, `
		INSERT INTO verify_code (owner_type, owner_id, auth_id, key_id, challenge, credentials, origin, address, expires_at)
		VALUES (@owner_type, @owner_id, @auth, @key, @challenge, @credentials, @origin, @address, least(now() + @ttl::interval, @latest::timestamptz))
		RETURNING id`,
		pgx.StrictNamedArgs{
			"owner_type": owner.Type, "owner_id": owner.ID, "auth": authID, "key": o.key, "challenge": challenge,
			"credentials": o.person.Version, "origin": o.origin, "address": access.Address(ctx), "ttl": CodeTTL, "latest": o.latest,
		},
	).Scan(&id)
	if err != nil {
		return code, fmt.Errorf("create a code: %w", err)
	}
	if code, err = codeView.Get(ctx, tx, id); err != nil {
		return code, fmt.Errorf("read a code: %w", err)
	}
	switch code.Auth.Method.ID {
	case methodEmail:
		err = s.mailCode(ctx, tx, &code, &o, to)
	case methodPasskey:
		options, err = s.createChallenge(ctx, tx, &code, o.person)
	}
	if err != nil {
		return code, err
	}
	name := o.person.Name
	tx.Record(
		pg.Record{
			Kind:    "auth.verify.auth.code",
			Action:  pg.Created,
			After:   code,
			Targets: []pg.Target{codeTarget(&code), person.Target(owner, &name)},
		},
	)
	code.Options = options
	return code, nil
}

func codeTarget(c *VerifyCode) pg.Target {
	return pg.Target{Type: fmt.Sprintf("auth/verify/auth/%d/code", c.Auth.ID), Noun: "verify code", ID: c.ID, Name: c.Name, Version: c.Version}
}

func tokenLocation(id int64) seal.Location {
	return seal.Location{Table: "verify_code", Column: "token", ID: id}
}

// mailCode chooses six random digits, stores them encrypted, and mails them.
func (s *Service) mailCode(ctx context.Context, tx *pg.Tx, code *VerifyCode, o *challengeOptions, to mail.To) error {
	if err := checkMailed(ctx, tx, o); err != nil {
		return err
	}
	n, err := rand.Int(rand.Reader, big.NewInt(1_000_000))
	if err != nil {
		return fmt.Errorf("generate a code: %w", err)
	}
	token := secret.New(fmt.Sprintf("%06d", n))
	if _, err := tx.Exec(
		ctx,
		"UPDATE verify_code SET token = $2, mailed_at = now() WHERE id = $1",
		code.ID,
		s.Box.Seal(tokenLocation(code.ID), token),
	); err != nil {
		return fmt.Errorf("store a code: %w", err)
	}
	return mail.Send(
		ctx,
		tx,
		s.Mails,
		o.person.Owner.URL(),
		to,
		mail.TwoFactorCode{Code: token, Expires: code.ExpiresAt.UTC().Truncate(time.Second), IP: access.Address(ctx).String()},
	)
}
