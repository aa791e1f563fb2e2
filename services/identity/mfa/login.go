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

// LoginVerify is the response to a login that needs a second factor. The code is confirmed with the challenge, without a key.
type LoginVerify struct {
	Code      VerifyCode `json:"code" doc:"The code that the login needs."`
	Challenge string     `json:"challenge" doc:"Sent with the code, or instead of the code's id in the path."`
	Auths     []CodeAuth `json:"auths" doc:"The account's authenticators. A login that names one of them in auth asks for its code."`
}

// MarshalJSON hides that LoginVerify is a part of a resource's item: its members are not columns of a key.
func (v *LoginVerify) MarshalJSON() ([]byte, error) {
	type plain LoginVerify
	return json.Marshal((*plain)(v))
}

// AskForCode asks a person that has sent the right password for a second factor. authID chooses among several authenticators. It
// returns nil if the account has no second factor and needs none. knownDevice is true if the account has signed in from the caller's
// device before.
func (s *Service) AskForCode(
	ctx context.Context,
	tx *pg.Tx,
	p person.Person,
	authID *rest.RefID,
	knownDevice bool,
) (*LoginVerify, error) {
	auths, err := s.readVerified(ctx, tx, p.Owner)
	if err != nil {
		return nil, err
	}
	options := challengeOptions{person: p, origin: fromLogin, challenge: keys.NewToken()}
	if knownDevice {
		options.origin = fromDevice
	}
	verify := &LoginVerify{Challenge: options.challenge.Reveal(), Auths: []CodeAuth{}}
	for i, auth := range auths {
		verify.Auths = append(verify.Auths, CodeAuth{auth.ID, auth.Method, auth.Verified})
		if i == 0 || authID != nil && int64(*authID) == auth.ID {
			options.auth = &auth
		}
	}
	mustHave := p.Require || p.Owner.Type == principal.Admin && settings.VerifyAdmins.In(s.Settings.Values()) == 1
	switch {
	case options.auth == nil && authID != nil, authID != nil && options.auth.ID != int64(*authID):
		return nil, problem.Member("/auth", "not_found", "names no verified authenticator of the account")
	case options.auth == nil && !mustHave:
		return nil, nil
	case options.auth == nil && p.Email == "":
		return nil, problem.New(
			problem.Forbidden,
			"The account needs a second factor to sign in, but has neither an authenticator nor an email address for codes.",
		)
	}
	verify.Code, err = s.beginChallenge(ctx, tx, options)
	return verify, err
}

// readVerified returns an account's verified authenticators. Those by mail come after the others, and those that cannot be used
// come last.
func (s *Service) readVerified(ctx context.Context, tx *pg.Tx, owner principal.Owner) ([]Authenticator, error) {
	rows, err := tx.Query(
		ctx,
		"SELECT id FROM authenticator WHERE owner_type = $1 AND owner_id = $2 AND verified "+
			"ORDER BY domain IS NOT NULL AND domain <> $4, method_id = $3, id",
		owner.Type,
		owner.ID,
		methodEmail,
		s.passkeyDomain(),
	)
	if err != nil {
		return nil, fmt.Errorf("read the authenticators of %s: %w", owner.URL(), err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, fmt.Errorf("read the authenticators of %s: %w", owner.URL(), err)
	}
	return AuthenticatorView.GetMany(ctx, tx, ids)
}
