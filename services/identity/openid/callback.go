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
	State  secret.String `query:"state" max:"255" doc:"which sign-in it is"`
	Code   secret.String `query:"code" max:"4096" doc:"what the provider tells who has signed in for"`
	Error  string        `query:"error" max:"255" doc:"why the provider has not signed anybody in"`
	Issuer string        `query:"iss" max:"500" doc:"who sends it, where the provider says so"`
}

// finish asks the provider who has signed in, and sends the browser to the panel with a code. It works once, whatever the result.
func (s *Service) finish(ctx context.Context, req callback) (link session.SSOLink, err error) {
	var id, provider int64
	var attempt Attempt
	var sealed []byte
	code := keys.NewToken() // from here on the state finds the row no more
	err = s.DB.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("that somebody signs in is recorded")
		return tx.QueryRow(ctx, "UPDATE openid_login SET hash = $2, came_back = true "+
			"WHERE hash = $1 AND NOT came_back AND expires_at > clock_timestamp() RETURNING id, provider_id, nonce, verifier",
			keys.HashToken(req.State.Reveal()), keys.HashToken(code.Reveal())).
			Scan(&id, &provider, &attempt.Nonce, &sealed)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return link, errNotBegun()
	}
	if err != nil {
		return link, fmt.Errorf("look for who comes back from a provider: %w", err)
	}
	if attempt.Verifier, err = s.Box.Open(verifierPlace(id), sealed); err != nil {
		return link, err
	}
	p, settings, err := s.settingsOf(ctx, provider)
	if errors.Is(err, pgx.ErrNoRows) {
		return link, errNotBegun()
	}
	if err != nil {
		return link, err
	}
	if req.Error != "" || req.Code.IsZero() || req.Issuer != "" && req.Issuer != p.Issuer {
		return link, s.refuse(ctx, &p, ErrRefused)
	}
	who, err := s.Client.Finish(ctx, settings, req.Code, attempt)
	if errors.Is(err, ErrRefused) {
		return link, s.refuse(ctx, &p, err)
	}
	if err != nil {
		return link, errProviderAway(err)
	}
	err = s.DB.InTx(ctx, func(tx *pg.Tx) error {
		admin, err := s.adminAt(ctx, tx, &p, who)
		if err != nil {
			return err
		}
		tx.Unrecorded("that somebody signs in is recorded")
		return tx.QueryRow(ctx, "UPDATE openid_login SET admin_id = $2, verifier = NULL, expires_at = now() + $3 "+
			"WHERE id = $1 RETURNING expires_at", id, admin, session.LinkTTL).
			Scan(&link.ExpiresAt.Time)
	})
	if problem.Is(err, problem.Forbidden) {
		return link, s.refuse(ctx, &p, err)
	}
	link.URL = session.Panel(s.Settings.Values(), principal.Admin) + "/auth/sso#key=" + code.Reveal()
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
		return fmt.Errorf("note a refused sign-in: %w", err)
	}
	return problem.New(problem.Unauthenticated, "The identity provider has signed in nobody who is an admin here.").Because(cause)
}

// adminAt returns the admin that a person at a provider is: the one who signed in before, the one with the verified address of a
// listed domain, or a new one.
func (s *Service) adminAt(ctx context.Context, tx *pg.Tx, p *OpenIDProvider, who Person) (id int64, err error) {
	if err := access.Lock(ctx, tx); err != nil {
		return 0, err
	}
	nobody := problem.New(problem.Forbidden, "Nobody is this person.")
	err = tx.QueryRow(ctx, "SELECT admin_id FROM openid_subject WHERE issuer = $1 AND subject = $2", p.Issuer, who.Subject).Scan(&id)
	if err == nil || !errors.Is(err, pgx.ErrNoRows) {
		return id, err
	}
	if !p.lists(who.Email) {
		return 0, nobody
	}
	err = tx.QueryRow(ctx, "SELECT id FROM admin WHERE lower(email) = lower($1)", who.Email).Scan(&id)
	switch {
	case errors.Is(err, pgx.ErrNoRows) && p.MakesAdmins:
		if id, err = admin.Create(ctx, tx, who.Email, p.Permissions); err != nil {
			return 0, err
		}
	case errors.Is(err, pgx.ErrNoRows):
		return 0, nobody
	case err != nil:
		return 0, fmt.Errorf("look for an admin by address: %w", err)
	}
	linked, err := tx.Exec(
		ctx,
		"INSERT INTO openid_subject (issuer, subject, admin_id) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
		p.Issuer,
		who.Subject,
		id,
	)
	if err != nil {
		return 0, fmt.Errorf("note who somebody at a provider is: %w", err)
	}
	if linked.RowsAffected() == 0 { // the admin is somebody else there
		return 0, nobody
	}
	return id, nil
}

// Exchange begins the session of an admin who has signed in at a provider. verifier proves that the same panel began the sign-in.
func (s *Service) Exchange(ctx context.Context, tx *pg.Tx, hash []byte, verifier secret.String) (keys.APIKey, error) {
	p := person.Person{Owner: principal.Owner{Type: principal.Admin}}
	err := tx.QueryRow(ctx, "DELETE FROM openid_login WHERE hash = $1 AND challenge = $2 AND admin_id IS NOT NULL "+
		"AND expires_at > clock_timestamp() RETURNING admin_id", hash, keys.HashToken(verifier.Reveal())).
		Scan(&p.Owner.ID)
	if errors.Is(err, pgx.ErrNoRows) {
		return keys.APIKey{}, problem.New(problem.Unauthenticated, "There is no such code: it was used, or its time is over.")
	}
	if err != nil {
		return keys.APIKey{}, fmt.Errorf("use a code: %w", err)
	}
	if p.Account, err = person.ReadAdmin(ctx, tx, "id = $1", p.Owner.ID); err != nil {
		return keys.APIKey{}, fmt.Errorf("read who signs in: %w", err)
	}
	return s.Sessions.SignIn(ctx, tx, p)
}
