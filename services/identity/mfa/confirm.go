package mfa

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/credentials"
	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/services/identity/access"
	"github.com/ironplane/ironplane/services/identity/keys"
	"github.com/ironplane/ironplane/services/identity/passkey"
	"github.com/ironplane/ironplane/services/identity/person"
)

// confirmRequest is a request that answers a challenge.
type confirmRequest struct {
	Auth  int64  `path:"auth_id"`
	Code  string `path:"code_id"`
	Match rest.IfMatch
	Body  rest.Body[confirmBody]

	code    *pendingCode
	matched matchResult
	person  person.Person // of a login or a client
}

// confirmBody is the body of a confirmRequest.
type confirmBody struct {
	Token  secret.String `json:"token" max:"100" transient:"true" example:"123456" doc:"The code, or a recovery code instead."`
	Verify struct {
		Token secret.String `json:"token" max:"100" transient:"true" example:"123456" doc:"The code."`
	} `json:"verify" ext:"true" doc:"An object or text with the token, accepted instead of token."`
	Challenge  secret.String      `json:"challenge" max:"100" transient:"true" ext:"true" doc:"For a login: the challenge of its response, unless the path has it."`
	Credential passkey.Credential `json:"credential" ext:"true" open:"true" doc:"For passkey, instead of a token: the browser's response to the options, as PublicKeyCredential.toJSON() returns it."`
}

// Resolve checks what the tags cannot express.
func (b *confirmBody) Resolve(invalid *problem.Fields) {
	if b.Token.IsZero() {
		b.Token = b.Verify.Token
	}
	if b.Token.IsZero() && b.Credential.Type == "" {
		invalid.Add("/token", "required", "is required")
	}
}

// ConfirmedKey is the response to a confirmed code.
type ConfirmedKey struct {
	Key    keys.APIKey `json:"key" doc:"For a login: the session's key, with its value. Otherwise: the calling key."`
	Device string      `json:"device,omitempty" ext:"true" doc:"For a login: the device that later logins may send, as in the response of a login without a second factor."`
}

// keyOrChallenge is a guard that lets every caller through. The answer to a login's challenge needs no key, and findCode requires
// one of other requests.
type keyOrChallenge struct{}

func (keyOrChallenge) String() string { return "any key, or none with a login's challenge" }

func (keyOrChallenge) Check(c *principal.Call, a permission.Access, id int64) error {
	return guard.Public.Check(c, a, id)
}

// pendingCode is a code that waits for an answer.
type pendingCode struct {
	id, version, auth, method, credentials int64
	owner                                  principal.Owner
	name                                   string // of the owner
	origin                                 origin
	login, verified                        bool
	secret, token                          []byte // sealed
	challenge                              []byte // of a passkey
}

// findCode finds the code that a request answers, by the challenge or, without one, by the calling key.
func (s *Service) findCode(ctx context.Context, req *confirmRequest, challenge string) error {
	call := principal.FromContext(ctx)
	where, arg := "c.challenge = $1", any(keys.HashToken(challenge))
	if challenge == "" {
		if err := guard.AnyKey.Check(call, permission.Write, 0); err != nil {
			return err
		}
		if err := s.DB.InTx(ctx, func(tx *pg.Tx) error {
			tx.Unrecorded("nothing is changed")
			_, err := access.ReadCaller(ctx, tx)
			return err
		}); err != nil {
			return err
		}
		where, arg = "c.key_id = $1", call.Principal.KeyID
	}
	var code *int64 // nil: the challenge stands in its place
	if id, err := strconv.ParseInt(req.Code, 10, 64); err == nil {
		code = &id
	}
	var o pendingCode
	err := s.DB.QueryRow(ctx, `
		SELECT c.id, c.version, coalesce(c.auth_id, 0), coalesce(v.method_id, $4), c.credentials, c.owner_type, c.owner_id, c.challenge IS NOT NULL AND c.key_id IS NULL, c.origin, v.verified IS NOT FALSE, v.secret, c.token, c.signed
		FROM verify_code c LEFT JOIN authenticator v ON v.id = c.auth_id
		WHERE `+where+` AND coalesce(c.auth_id, 0) = $2 AND ($3::bigint IS NULL OR c.id = $3)`, arg, req.Auth, code, methodEmail).
		Scan(
			&o.id, &o.version, &o.auth, &o.method, &o.credentials, &o.owner.Type, &o.owner.ID,
			&o.login, &o.origin, &o.verified, &o.secret, &o.token, &o.challenge,
		)
	if errors.Is(err, pgx.ErrNoRows) && call.Principal == nil { // guesses queue, so that they do not slow down real challenges
		_, err := s.Challenges.Do(ctx, call.IP, func() (bool, error) {
			return false, problem.New(problem.Unauthenticated, "The challenge does not exist, was completed, or has expired. Sign in again.")
		})
		return err
	}
	if err != nil {
		return err
	}
	if p := call.Principal; p != nil && p.Owner == o.owner {
		o.name = p.Name
	}
	req.code = &o
	return nil
}

// compareCode compares the request's answer with the code. The try is counted first.
func (s *Service) compareCode(ctx context.Context, req *confirmRequest) error {
	body, bodyErr := req.Body.New()
	challenge := body.Challenge.Reveal()
	if _, err := strconv.ParseInt(req.Code, 10, 64); err != nil && challenge == "" {
		challenge = req.Code
	}
	if err := s.findCode(ctx, req, challenge); err != nil {
		return err
	}
	if err := errors.Join(req.Match.Check(req.code.version), bodyErr); err != nil {
		return err
	}
	if err := s.findPerson(ctx, req); err != nil {
		return err
	}
	if body.Credential.Type != "" {
		return s.tryAnswer(ctx, req.code, func() (err error) {
			req.matched.key, err = s.verifySignature(ctx, req.code, body.Credential)
			return err
		})
	}
	return s.tryAnswer(ctx, req.code, func() (err error) {
		req.matched, err = s.match(ctx, req.code, body.Token)
		return err
	})
}

// findPerson looks up the account of a login or a client. The code has expired if the account's credentials have changed since.
func (s *Service) findPerson(ctx context.Context, req *confirmRequest) (err error) {
	o := req.code
	if !o.login && o.owner.Type != principal.Client {
		return nil
	}
	if req.person, err = s.People.Get(ctx, o.owner); err != nil {
		return fmt.Errorf("look up the account of a code: %w", err)
	}
	if p := &req.person; !p.Exists() || p.Disabled || p.Version != o.credentials {
		return o.errExpired()
	}
	o.name = req.person.Name
	return nil
}

// confirmCode marks a code as confirmed by the calling key, or begins the session of a login.
func (s *Service) confirmCode(ctx context.Context, tx *pg.Tx, req confirmRequest) (confirmed ConfirmedKey, err error) {
	if o := req.code; !o.login {
		c, err := access.LockCaller(ctx, tx)
		if err != nil {
			return confirmed, err
		}
		if confirmed.Key, err = keys.View.Get(ctx, tx, c.KeyID); err != nil {
			return confirmed, fmt.Errorf("read the calling key: %w", err)
		}
	} else {
		if confirmed.Key, err = s.Sessions.SignIn(ctx, tx, req.person); err != nil {
			return confirmed, err
		}
		if confirmed.Device, err = s.Sessions.NewDevice(req.person); err != nil {
			return confirmed, err
		}
	}
	return confirmed, s.consume(ctx, tx, req.code, req.matched, confirmed.Key.ID)
}

// consume marks the code, and the recovery code or step that matched, as used. It fails if another request has used one of them
// first.
func (s *Service) consume(ctx context.Context, tx *pg.Tx, o *pendingCode, m matchResult, key int64) error {
	execOnce := func(sql string, args ...any) error {
		used, err := tx.Exec(ctx, sql, args...)
		if err != nil {
			return fmt.Errorf("consume a code: %w", err)
		}
		if used.RowsAffected() == 0 {
			return o.errExpired()
		}
		return nil
	}
	err := execOnce(
		"UPDATE verify_code SET version = version + 1, confirmed_at = clock_timestamp(), key_id = $2, token = NULL "+
			"WHERE id = $1 AND confirmed_at IS NULL AND expires_at > clock_timestamp()",
		o.id,
		key,
	)
	switch {
	case err != nil:
		return err
	case m.recovery != nil:
		if err := execOnce(
			"DELETE FROM recovery_code WHERE hash = $1 AND owner_type = $2 AND owner_id = $3",
			m.recovery,
			o.owner.Type,
			o.owner.ID,
		); err != nil {
			return err
		}
		left, err := countRecoveryCodes(ctx, tx, o.owner)
		if err != nil {
			return err
		}
		tx.Record(o.record("confirmed", map[string]any{"auth": o.auth, "code": o.id, "recovery_codes_left": left}))
		return s.People.NotifyOwner(ctx, tx, o.owner, fmt.Sprintf("A recovery code was used. There are %d left.", left))
	case m.step != 0:
		err = execOnce("UPDATE authenticator SET step = $2 WHERE id = $1 AND step < $2", o.auth, m.step)
	case m.key != nil:
		var by int64
		err := tx.QueryRow(ctx, "UPDATE authenticator SET counter = $2 WHERE credential = $1 AND verified "+
			"AND (counter < $2 OR counter = 0 AND $2 = 0) RETURNING id", m.key.ID, m.key.Counter).
			Scan(&by)
		if errors.Is(err, pgx.ErrNoRows) {
			return o.errExpired()
		}
		tx.Record(o.record("confirmed", map[string]any{"auth": by, "code": o.id}))
		return err
	}
	tx.Record(o.record("confirmed", nil))
	return err
}

// errExpired returns the refusal of an answer to a code that can no longer be confirmed.
func (o *pendingCode) errExpired() error {
	pointer := "/token"
	if o.method == methodPasskey && !o.verified {
		pointer = "/credential"
	}
	return problem.Member(
		pointer,
		"expired",
		"belongs to a code that was confirmed, has expired, or got %d wrong answers: ask for another code",
		maxTries,
	)
}

// record returns the record of an answer to the code. A nil after stands for the code's ids.
func (o *pendingCode) record(action pg.Action, after any) pg.Record {
	if after == nil {
		after = map[string]int64{"auth": o.auth, "code": o.id}
	}
	return pg.Record{
		Kind:    string(o.owner.Type),
		Part:    "verify_code",
		Action:  action,
		Targets: []pg.Target{person.Target(o.owner, &o.name)},
		After:   after,
	}
}

// isConfirmed reports whether a key has confirmed a code within credentials.FreshLoginTTL. Codes of logins and of verified
// authenticators count.
func isConfirmed(ctx context.Context, q pg.Querier, key int64) (confirmed bool, err error) {
	err = q.QueryRow(ctx, `
		SELECT EXISTS (SELECT FROM verify_code c LEFT JOIN authenticator v ON v.id = c.auth_id
			WHERE c.key_id = $1 AND c.confirmed_at > clock_timestamp() - $2::interval AND v.verified IS NOT FALSE)`, key, credentials.FreshLoginTTL).Scan(&confirmed)
	if err != nil {
		return false, fmt.Errorf("find a confirmed code: %w", err)
	}
	return confirmed, nil
}

// requireConfirmation refuses a key that has not confirmed a code within credentials.FreshLoginTTL.
func requireConfirmation(ctx context.Context, q pg.Querier, key int64) error {
	confirmed, err := isConfirmed(ctx, q, key)
	if err == nil && !confirmed {
		err = problem.New(
			problem.Forbidden,
			"This change needs a second factor. Confirm a code of a verified authenticator first, with the same key or session. "+
				"The confirmation counts for %.0f minutes.",
			credentials.FreshLoginTTL.Minutes(),
		)
	}
	return err
}
