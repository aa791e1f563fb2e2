package mfa

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/settings"
	"github.com/ironplane/ironplane/services/identity/keys"
	"github.com/ironplane/ironplane/services/identity/person"
)

// LoginVerify is the answer to a login that takes a second factor. The code is confirmed with the challenge, without a key.
type LoginVerify struct {
	Code      VerifyCode `json:"code"`
	Challenge string     `json:"challenge" doc:"to be sent with the code, or in place of the code's id in the path"`
	Auths     []CodeAuth `json:"auths" doc:"the account's authenticators: a login that names one of them as auth asks for its code"`
}

// MarshalJSON writes a value whose members are no columns of a key.
func (v *LoginVerify) MarshalJSON() ([]byte, error) {
	type plain LoginVerify
	return json.Marshal((*plain)(v))
}

// AskForCode asks a person who has sent the right password for a second factor; by names the authenticator. It returns nil where
// the account has no second factor, and needs none.
func (s *Service) AskForCode(ctx context.Context, tx *pg.Tx, p person.Person, by *rest.RefID) (*LoginVerify, error) {
	auths, err := s.verifiedOf(ctx, tx, p.Owner)
	if err != nil {
		return nil, err
	}
	a := challengeOptions{person: p, challenge: keys.NewToken()}
	answer := &LoginVerify{Challenge: a.challenge.Reveal(), Auths: []CodeAuth{}}
	for i, auth := range auths {
		answer.Auths = append(answer.Auths, CodeAuth{auth.ID, auth.Method, auth.Verified})
		if i == 0 || by != nil && int64(*by) == auth.ID {
			a.auth = &auth
		}
	}
	mustHave := p.Require || p.Owner.Type == principal.Admin && settings.VerifyAdmins.In(s.Settings.Values()) == 1
	switch {
	case a.auth == nil && by != nil, by != nil && a.auth.ID != int64(*by):
		return nil, problem.Member("/auth", "not_found", "names no verified authenticator of the account")
	case a.auth == nil && !mustHave:
		return nil, nil
	case a.auth == nil && p.Email == "":
		return nil, problem.New(
			problem.Forbidden,
			"The account signs in with a second factor alone, and has neither an authenticator nor an address that a code could be mailed to.",
		)
	}
	answer.Code, err = s.askFor(ctx, tx, a)
	return answer, err
}

// verifiedOf returns an account's verified authenticators: those by mail after the others, and those that cannot be used last.
func (s *Service) verifiedOf(ctx context.Context, tx *pg.Tx, owner principal.Owner) ([]Authenticator, error) {
	rows, err := tx.Query(
		ctx,
		"SELECT id FROM authenticator WHERE owner_type = $1 AND owner_id = $2 AND verified "+
			"ORDER BY domain IS NOT NULL AND domain <> $4, method_id = $3, id",
		owner.Type,
		owner.ID,
		byEmail,
		s.passkeyDomain(),
	)
	if err != nil {
		return nil, fmt.Errorf("read the authenticators of %s: %w", owner.URL(), err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, fmt.Errorf("read the authenticators of %s: %w", owner.URL(), err)
	}
	return AuthenticatorView.Some(ctx, tx, ids)
}
