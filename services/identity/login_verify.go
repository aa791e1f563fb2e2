package identity

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
)

// LoginVerify is how a login goes on: the code is confirmed with the challenge, without a key.
type LoginVerify struct {
	Code      VerifyCode `json:"code"`
	Challenge string     `json:"challenge" doc:"to be sent with the code, or in place of the code's id in the path"`
	Auths     []CodeAuth `json:"auths" doc:"the account's authenticators: a login that names one of them as auth asks for its code"`
}

// MarshalJSON writes it as one value, none of whose members is a column of a key's.
func (v *LoginVerify) MarshalJSON() ([]byte, error) {
	type plain LoginVerify
	return json.Marshal((*plain)(v))
}

// askForCode asks who has sent the right password for a second factor; nil: the account has none, and needs none.
func (s *Service) askForCode(ctx context.Context, tx *pg.Tx, p person, by *rest.RefID) (*LoginVerify, error) {
	auths, err := s.verifiedOf(ctx, tx, p.owner)
	if err != nil {
		return nil, err
	}
	a := asked{person: p, challenge: newToken()}
	answer := &LoginVerify{Challenge: a.challenge.Reveal(), Auths: []CodeAuth{}}
	for i, auth := range auths {
		answer.Auths = append(answer.Auths, CodeAuth{auth.ID, auth.Method, auth.Verified})
		if i == 0 || by != nil && int64(*by) == auth.ID {
			a.auth = &auth
		}
	}
	mustHave := p.Require || p.owner.Type == principal.Admin && settings.VerifyAdmins.In(s.settings.Values()) == 1
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

// verifiedOf are an account's verified authenticators, those first that need no mail, and those last that cannot be used.
func (s *Service) verifiedOf(ctx context.Context, tx *pg.Tx, owner principal.Owner) ([]Authenticator, error) {
	rows, err := tx.Query(
		ctx,
		"SELECT id FROM authenticator WHERE owner_type = $1 AND owner_id = $2 AND verified ORDER BY domain IS NOT NULL AND domain <> $4, method_id = $3, id",
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
	return authenticatorView.Some(ctx, tx, ids)
}
