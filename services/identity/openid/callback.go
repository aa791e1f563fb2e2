package openid

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/services/identity/access"
	"github.com/ironplane/ironplane/services/identity/admin"
	"github.com/ironplane/ironplane/services/identity/keys"
	"github.com/ironplane/ironplane/services/identity/person"
	"github.com/ironplane/ironplane/services/identity/session"
)

// callback is the request by which a provider sends a browser back.
type callback struct {
	State  secret.String `query:"state" max:"255" doc:"Identifies the sign-in."`
	Code   secret.String `query:"code" max:"4096" doc:"The provider exchanges it for the identity of the user."`
	Error  string        `query:"error" max:"255" doc:"Why the provider has refused the sign-in."`
	Issuer string        `query:"iss" max:"500" doc:"The provider's issuer, if the provider sends it."`
}

// finish asks the provider for the identity of the user, and sends the browser to the panel with a code. It works once, whatever
// the result.
func (s *Service) finish(ctx context.Context, req callback) (link session.SSOLink, err error) {
	var id, provider int64
	var attempt Attempt
	var sealed []byte
	code := keys.NewToken() // it replaces the state, which works no longer
	err = s.DB.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("the sign-in is recorded")
		return tx.QueryRow(ctx, "UPDATE openid_login SET hash = $2, came_back = true "+
			"WHERE hash = $1 AND NOT came_back AND expires_at > clock_timestamp() RETURNING id, provider_id, nonce, verifier",
			keys.HashToken(req.State.Reveal()), keys.HashToken(code.Reveal())).
			Scan(&id, &provider, &attempt.Nonce, &sealed)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return link, errNoSignIn()
	}
	if err != nil {
		return link, fmt.Errorf("find a pending sign-in: %w", err)
	}
	if attempt.Verifier, err = s.Box.Open(verifierLocation(id), sealed); err != nil {
		return link, err
	}
	p, settings, err := s.readProvider(ctx, provider)
	if errors.Is(err, pgx.ErrNoRows) {
		return link, errNoSignIn()
	}
	if err != nil {
		return link, err
	}
	if req.Error != "" || req.Code.IsZero() || req.Issuer != "" && req.Issuer != p.Issuer {
		return link, s.refuse(ctx, &p, ErrRefused)
	}
	identity, err := s.Client.Finish(ctx, settings, req.Code, attempt)
	if errors.Is(err, ErrRefused) {
		return link, s.refuse(ctx, &p, err)
	}
	if err != nil {
		return link, errProviderUnavailable(err)
	}
	err = s.DB.InTx(ctx, func(tx *pg.Tx) error {
		admin, err := s.findAdmin(ctx, tx, &p, identity)
		if err != nil {
			return err
		}
		tx.Unrecorded("the sign-in is recorded")
		return tx.QueryRow(ctx, "UPDATE openid_login SET admin_id = $2, verifier = NULL, expires_at = now() + $3 "+
			"WHERE id = $1 RETURNING expires_at", id, admin, session.LinkTTL).
			Scan(&link.ExpiresAt.Time)
	})
	if problem.Is(err, problem.Forbidden) {
		return link, s.refuse(ctx, &p, err)
	}
	link.URL = session.PanelURL(s.Settings.Values(), principal.Admin) + "/auth/sso#key=" + code.Reveal()
	return link, err
}

// refuse records that a sign-in at a provider was refused, and returns the error for the caller.
func (s *Service) refuse(ctx context.Context, p *OpenIDProvider, cause error) error {
	err := s.DB.InTx(ctx, func(tx *pg.Tx) error {
		tx.Record(
			pg.Record{
				Kind:    "auth.openid",
				Action:  "refused",
				After:   struct{}{},
				Targets: []pg.Target{{Type: "auth/provider", Noun: "identity provider", ID: p.ID, Name: p.Name}},
			},
		)
		return nil
	})
	if err != nil {
		return fmt.Errorf("record a refused sign-in: %w", err)
	}
	return problem.New(problem.Unauthenticated, "The identity provider's user is not an admin here.").Because(cause)
}

// findAdmin returns the admin with an identity. It is the one that signed in with it before, else the one with its verified
// address in a listed domain, else a new one.
func (s *Service) findAdmin(ctx context.Context, tx *pg.Tx, p *OpenIDProvider, identity Identity) (id int64, err error) {
	if err := access.Lock(ctx, tx); err != nil {
		return 0, err
	}
	errUnknown := problem.New(problem.Forbidden, "No admin has this identity.")
	err = tx.QueryRow(ctx, "SELECT admin_id FROM openid_subject WHERE issuer = $1 AND subject = $2", p.Issuer, identity.Subject).Scan(&id)
	if err == nil || !errors.Is(err, pgx.ErrNoRows) {
		return id, err
	}
	if !p.allowsEmail(identity.Email) {
		return 0, errUnknown
	}
	err = tx.QueryRow(ctx, "SELECT id FROM admin WHERE lower(email) = lower($1)", identity.Email).Scan(&id)
	switch {
	case errors.Is(err, pgx.ErrNoRows) && p.MakesAdmins:
		if id, err = admin.Create(ctx, tx, identity.Email, p.Permissions); err != nil {
			return 0, err
		}
	case errors.Is(err, pgx.ErrNoRows):
		return 0, errUnknown
	case err != nil:
		return 0, fmt.Errorf("find an admin by address: %w", err)
	}
	linked, err := tx.Exec(
		ctx,
		"INSERT INTO openid_subject (issuer, subject, admin_id) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
		p.Issuer,
		identity.Subject,
		id,
	)
	if err != nil {
		return 0, fmt.Errorf("store an identity: %w", err)
	}
	if linked.RowsAffected() == 0 { // the admin has another identity at this provider
		return 0, errUnknown
	}
	return id, nil
}

// Exchange begins the session of an admin that has signed in at a provider. verifier proves that the same panel began the sign-in.
func (s *Service) Exchange(ctx context.Context, tx *pg.Tx, hash []byte, verifier secret.String) (keys.APIKey, error) {
	p := person.Person{Owner: principal.Owner{Type: principal.Admin}}
	err := tx.QueryRow(ctx, "DELETE FROM openid_login WHERE hash = $1 AND challenge = $2 AND admin_id IS NOT NULL "+
		"AND expires_at > clock_timestamp() RETURNING admin_id", hash, keys.HashToken(verifier.Reveal())).
		Scan(&p.Owner.ID)
	if errors.Is(err, pgx.ErrNoRows) {
		return keys.APIKey{}, problem.New(problem.Unauthenticated, "The code does not exist, was used, or has expired.")
	}
	if err != nil {
		return keys.APIKey{}, fmt.Errorf("use a code: %w", err)
	}
	if p.Account, err = person.ReadAdmin(ctx, tx, "id = $1", p.Owner.ID); err != nil {
		return keys.APIKey{}, fmt.Errorf("read an admin that signs in: %w", err)
	}
	return s.Sessions.SignIn(ctx, tx, p)
}
