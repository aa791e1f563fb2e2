package identity

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"strconv"
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
	"github.com/ironplane/ironplane/services/identity/passkey"
)

const (
	// verifyTime is how long a code can be confirmed, mostTries how often it is compared, and mostOpen how many of an account are open.
	verifyTime = 10 * time.Minute
	mostTries  = 5
	mostOpen   = 20
)

const codesPath, codePath = "/auth/verify/auth/{auth_id}/code", "/auth/verify/auth/{auth_id}/code/{code_id}"

// VerifyCode is a code that is yet to be sent by who was asked for it, or was.
type VerifyCode struct {
	rest.Versioned
	ID          int64           `json:"id" db:"id"`
	Name        string          `json:"-" db:"auth_method_name"`
	Auth        CodeAuth        `json:"auth" db:"auth_"`
	ExpiresAt   rest.Timestamp  `json:"expires_at" db:"expires_at" ext:"true"`
	ConfirmedAt *rest.Timestamp `json:"confirmed_at,omitempty" db:"confirmed_at" ext:"true"`
	Options     json.RawMessage `json:"options,omitempty" ext:"true" doc:"of passkey, in the answer that asks for it, and never again: what PublicKeyCredential.parseRequestOptionsFromJSON() takes, or parseCreationOptionsFromJSON() where the authenticator is not verified yet. Without it none of the account's can be used, but recovery codes"`
}

// CodeAuth is the authenticator that a code is of.
type CodeAuth struct {
	ID       int64    `json:"id" db:"id" doc:"0: the account has none, and is mailed the code"`
	Method   rest.Ref `json:"method" db:"method_"`
	Verified bool     `json:"verified" db:"verified"`
}

// verifyCodeBody is none that anybody sends.
type verifyCodeBody struct {
	Auth int64 `path:"auth_id" db:"auth_id"`
}

type newVerifyCode struct {
	Auth int64 `path:"auth_id"`
	Body rest.Body[wrapped]

	credentials int64
}

type wrapped struct {
	IsWrapped bool `json:"isWrapped" example:"true" doc:"means nothing"`
}

type codeAnswer struct {
	Auth  int64  `path:"auth_id"`
	Code  string `path:"code_id"`
	Match rest.IfMatch
	Body  rest.Body[codeAnswerBody]

	open    *openCode
	matched matched
	person  person // who signs in
}

type codeAnswerBody struct {
	Token  secret.String `json:"token" max:"100" kept:"false" example:"123456" doc:"the code, or a recovery code in its place"`
	Verify struct {
		Token secret.String `json:"token" max:"100" kept:"false" example:"123456"`
	} `json:"verify" ext:"true" doc:"the same"`
	Challenge  secret.String      `json:"challenge" max:"100" kept:"false" ext:"true" doc:"of a login: as the login answered it, if it does not stand in the path"`
	Credential passkey.Credential `json:"credential" ext:"true" doc:"of passkey, in place of a token: what the browser answered to the options, as PublicKeyCredential.toJSON() has it"`
}

// Resolve checks what the tags cannot say.
func (b *codeAnswerBody) Resolve(wrong *problem.Fields) {
	if b.Token.IsZero() {
		b.Token = b.Verify.Token
	}
	if b.Token.IsZero() && b.Credential.Type == "" {
		wrong.Add("/token", "required", "is required")
	}
}

// ConfirmedKey is the answer to who confirms a code.
type ConfirmedKey struct {
	Key APIKey `json:"key" doc:"of a login, the session's, with its value; else the calling one"`
}

// keyOrChallenge lets everybody through: who answers a login's challenge needs no key, and of others it is asked for where the body is
// known.
type keyOrChallenge struct{}

func (keyOrChallenge) String() string { return "any key, or none with a login's challenge" }

func (keyOrChallenge) Check(c *principal.Call, a permission.Access, id int64) error {
	return guard.Public.Check(c, a, id)
}

func (s *Service) verifyCodes() []rest.Route {
	return append(
		rest.Resource[VerifyCode, verifyCodeBody]{
			DB:      s.db,
			Path:    codesPath,
			ID:      "code_id",
			Noun:    "verify code",
			Guard:   guard.AnyKey,
			Without: rest.Listing | rest.Creating | rest.Editing,
			Table:   "verify_code",
			View:    "verify_code_view",
			Scope: func(ctx context.Context) []pg.Condition {
				return []pg.Condition{{SQL: "key_id = $1", Args: []any{principal.From(ctx).Principal.KeyID}}}
			},
			Parent: func(context.Context, pg.Querier, int64, permission.Access) error { return nil }, // a code tells nothing of others' authenticators
			Lock:   func(ctx context.Context, tx *pg.Tx, _ ...*verifyCodeBody) error { return allow(ctx, tx) },
		}.Routes(),
		rest.Mutation[newVerifyCode, VerifyCode]{
			Method:  http.MethodPost,
			Path:    codesPath,
			Guard:   guard.AnyKey,
			Name:    "createVerifyCode",
			Summary: "Have a code sent, or ask for one of an app",
			Effect: rest.Effect{
				Logs:  rest.LogsItem,
				Again: rest.AgainAnother,
				Shows: codePath,
			},
			Prepare: s.prepareCode,
			Allow:   allowed[newVerifyCode],
			Do:      s.askCallerForCode,
		},
		rest.Mutation[codeAnswer, ConfirmedKey]{
			Method:  http.MethodPatch,
			Path:    codePath,
			Guard:   keyOrChallenge{},
			Name:    "confirmVerifyCode",
			Summary: "Confirm a code, or complete a login",
			Effect: rest.Effect{
				Logs:  rest.LogsEach,
				Again: rest.AgainRefused,
			},
			Example: `{"token": "123456"}`,
			Prepare: s.compareCode,
			Do:      s.confirmCode,
		},
	)
}

// prepareCode finds out, for a client, which version of its address and password the code is of.
func (s *Service) prepareCode(ctx context.Context, req *newVerifyCode) error {
	if owner := principal.From(ctx).Principal.Owner; owner.Type == principal.Client {
		p, err := s.personOf(ctx, owner)
		req.credentials = p.Version
		return err
	}
	return nil
}

var authenticatorView, codeView = pg.NewView[Authenticator]("authenticator_view"), pg.NewView[VerifyCode]("verify_code_view")

// askCallerForCode asks the caller for a code of one of the own authenticators.
func (s *Service) askCallerForCode(ctx context.Context, tx *pg.Tx, req newVerifyCode) (VerifyCode, error) {
	c, err := lockedCaller(ctx, tx)
	if err != nil {
		return VerifyCode{}, err
	}
	auth, err := authenticatorView.Get(ctx, tx, req.Auth, readableOwners(ctx)...)
	if err != nil {
		return VerifyCode{}, err
	}
	if auth.account() != c.owner {
		return VerifyCode{}, problem.New(problem.Forbidden, "The codes of an authenticator are its owner's.")
	}
	if _, err := req.Body.New(); err != nil {
		return VerifyCode{}, err
	}
	p := person{owner: c.owner}
	p.Name, p.Version = principal.From(ctx).Principal.Name, req.credentials
	return s.askFor(ctx, tx, asked{person: p, auth: &auth, key: &c.key, latest: c.expires})
}

// asked is who is asked for a code, and how.
type asked struct {
	person    person
	auth      *Authenticator // nil: it is mailed to the account's address
	key       *int64         // which asks for it; nil: it is for a login
	challenge secret.String  // of a login
	latest    *time.Time     // when it ends at the latest; nil: with its time
}

// askFor begins to wait for a code, which is mailed where it is not made by an app.
func (s *Service) askFor(ctx context.Context, tx *pg.Tx, a asked) (code VerifyCode, err error) {
	owner := a.person.owner
	if err := tx.Lock(ctx, "codes of "+string(owner.Type), owner.ID); err != nil { // who asks at the same time is counted, too
		return code, err
	}
	var open int
	err = tx.QueryRow(ctx, "SELECT count(*) FROM verify_code WHERE owner_type = $1 AND owner_id = $2 AND expires_at > now() AND confirmed_at IS NULL", owner.Type, owner.ID).
		Scan(&open)
	if err != nil {
		return code, fmt.Errorf("count the open codes of %s: %w", owner.URL(), err)
	}
	if open >= mostOpen {
		refused := problem.New(problem.TooManyRequests, "Too many codes were asked for. Try again later.")
		refused.RetryAfter = verifyTime
		return code, refused
	}
	var authID *int64
	to := a.person.to()
	if a.auth != nil {
		authID = &a.auth.ID
		if a.auth.Value != nil {
			to.To.Email = *a.auth.Value
		}
	}
	var challenge []byte
	if !a.challenge.IsZero() {
		challenge = hashOf(a.challenge.Reveal())
	}
	var id int64
	var options json.RawMessage // which is no matter of the log
	err = tx.QueryRow(ctx, `
		INSERT INTO verify_code (owner_type, owner_id, auth_id, key_id, challenge, credentials, expires_at) VALUES ($1, $2, $3, $4, $5, $6, least(now() + $7::interval, $8::timestamptz)) RETURNING id`,
		owner.Type, owner.ID, authID, a.key, challenge, a.person.Version, verifyTime, a.latest).Scan(&id)
	if err != nil {
		return code, fmt.Errorf("ask for a code: %w", err)
	}
	if code, err = codeView.Get(ctx, tx, id); err != nil {
		return code, fmt.Errorf("read a code: %w", err)
	}
	switch code.Auth.Method.ID {
	case byEmail:
		err = s.mailCode(ctx, tx, &code, owner, to)
	case byPasskey:
		options, err = s.challenge(ctx, tx, &code, a.person)
	}
	if err != nil {
		return code, err
	}
	name := a.person.Name
	tx.Record(
		pg.Record{
			Kind:    "auth.verify.auth.code",
			Action:  pg.Created,
			After:   code,
			Targets: []pg.Target{codeTarget(&code), accountTarget(owner, &name)},
		},
	)
	code.Options = options
	return code, nil
}

func codeTarget(c *VerifyCode) pg.Target {
	return pg.Target{Type: fmt.Sprintf("auth/verify/auth/%d/code", c.Auth.ID), Noun: "verify code", ID: c.ID, Name: c.Name, Version: c.Version}
}

// hashOf is what is kept of a text that nobody can guess.
func hashOf(text string) []byte {
	sum := sha256.Sum256([]byte(text))
	return sum[:]
}

func tokenPlace(id int64) seal.Place {
	return seal.Place{Table: "verify_code", Column: "token", ID: id}
}

func (s *Service) mailCode(ctx context.Context, tx *pg.Tx, code *VerifyCode, owner principal.Owner, to mail.To) error {
	n, err := rand.Int(rand.Reader, big.NewInt(1_000_000))
	if err != nil {
		return fmt.Errorf("make a code: %w", err)
	}
	token := secret.New(fmt.Sprintf("%06d", n))
	if _, err := tx.Exec(ctx, "UPDATE verify_code SET token = $2 WHERE id = $1", code.ID, s.box.Seal(tokenPlace(code.ID), token)); err != nil {
		return fmt.Errorf("keep a code: %w", err)
	}
	return mail.Send(
		ctx,
		tx,
		s.outbox,
		owner.URL(),
		to,
		mail.TwoFactorCode{Code: token, Expires: code.ExpiresAt.UTC().Truncate(time.Second), IP: address(ctx).String()},
	)
}

// openCode is a code that may be confirmed.
type openCode struct {
	id, version, auth, method, credentials int64
	owner                                  principal.Owner
	name                                   string // the owner's
	login, verified                        bool
	secret, token                          []byte // sealed
	signed                                 []byte // of passkey
}

// findCode finds what an answer is for. Without a key, one code is as unknown as another.
func (s *Service) findCode(ctx context.Context, req *codeAnswer, challenge string) error {
	call := principal.From(ctx)
	where, arg := "c.challenge = $1", any(hashOf(challenge))
	if challenge == "" {
		if err := guard.AnyKey.Check(call, permission.Write, 0); err != nil {
			return err
		}
		if err := s.db.InTx(ctx, func(tx *pg.Tx) error {
			tx.Unrecorded("nothing is changed")
			_, err := callerOf(ctx, tx)
			return err
		}); err != nil {
			return err
		}
		where, arg = "c.key_id = $1", call.Principal.KeyID
	}
	id, isID := strconv.ParseInt(req.Code, 10, 64)
	var o openCode
	err := s.db.QueryRow(ctx, `
		SELECT c.id, c.version, coalesce(c.auth_id, 0), coalesce(v.method_id, $4), c.credentials, c.owner_type, c.owner_id, c.challenge IS NOT NULL AND c.key_id IS NULL, v.verified IS NOT FALSE, v.secret, c.token, c.signed
		FROM verify_code c LEFT JOIN authenticator v ON v.id = c.auth_id
		WHERE `+where+` AND coalesce(c.auth_id, 0) = $2 AND ($3 < 0 OR c.id = $3)`, arg, req.Auth, map[bool]int64{true: id, false: -1}[isID == nil], byEmail).
		Scan(&o.id, &o.version, &o.auth, &o.method, &o.credentials, &o.owner.Type, &o.owner.ID, &o.login, &o.verified, &o.secret, &o.token, &o.signed)
	if errors.Is(err, pgx.ErrNoRows) && call.Principal == nil { // he waits, and nobody who has a challenge
		_, err := s.challenges.Do(ctx, func() (bool, error) {
			return false, problem.New(problem.Unauthenticated, "There is no such challenge, or it is over.")
		})
		return err
	}
	if err != nil {
		return err
	}
	if p := call.Principal; p != nil && p.Owner == o.owner {
		o.name = p.Name
	}
	req.open = &o
	return nil
}

// compareCode compares an answer, which counts before.
func (s *Service) compareCode(ctx context.Context, req *codeAnswer) error {
	body, wrong := req.Body.New()
	challenge := body.Challenge.Reveal()
	if _, err := strconv.ParseInt(req.Code, 10, 64); err != nil && challenge == "" {
		challenge = req.Code
	}
	if err := s.findCode(ctx, req, challenge); err != nil {
		return err
	}
	if err := errors.Join(req.Match.Check(req.open.version), wrong); err != nil {
		return err
	}
	if err := s.findPerson(ctx, req); err != nil {
		return err
	}
	if body.Credential.Type != "" {
		return s.try(ctx, req.open, func() (err error) {
			req.matched.key, err = s.signed(ctx, req.open, body.Credential)
			return err
		})
	}
	return s.try(ctx, req.open, func() (err error) {
		req.matched, err = s.match(ctx, req.open, body.Token)
		return err
	})
}

// try takes one of a code's tries to look at an answer, and notes that it was wrong.
func (s *Service) try(ctx context.Context, o *openCode, look func() error) error {
	var wrong *wrongAnswer
	right, err := s.lockouts.TryCode(ctx, o.owner.URL(), func() (bool, error) {
		if err := s.takeTry(ctx, o); err != nil {
			return false, err
		}
		err := look()
		if errors.As(err, &wrong) {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil || right {
		return err
	}
	if err := s.db.InTx(ctx, func(tx *pg.Tx) error {
		after := map[string]any{"auth": o.auth, "code": o.id}
		if wrong.reason != "" {
			after["reason"] = wrong.reason
		}
		tx.Record(o.record("refused", after))
		if !wrong.copied {
			return nil
		}
		return s.tellOwner(
			ctx,
			tx,
			o.owner,
			"A security key was refused, because it has signed less often than it had before: there may be a copy of it.",
		)
	}); err != nil {
		return fmt.Errorf("note a wrong answer: %w", err)
	}
	return wrong.field
}

// wrongAnswer is an answer that does not count.
type wrongAnswer struct {
	field  error  // what the caller is told
	reason string // what stands in the log, of keys
	copied bool
}

func (w *wrongAnswer) Error() string { return w.field.Error() }

func errWrongCode() error {
	return &wrongAnswer{field: problem.Member("/token", "wrong", "is not the code")}
}

func (o *openCode) errOver() error {
	pointer := "/token"
	if o.method == byPasskey && !o.verified {
		pointer = "/credential"
	}
	return problem.Member(
		pointer,
		"expired",
		"is of a code that is over: it was confirmed, has expired, or was sent wrong %d times; ask for another one",
		mostTries,
	)
}

// record is what stands in the log of an answer, or of what was confirmed by it.
func (o *openCode) record(action pg.Action, after any) pg.Record {
	if after == nil {
		after = map[string]int64{"auth": o.auth, "code": o.id}
	}
	return pg.Record{
		Kind:    string(o.owner.Type),
		Part:    "verify_code",
		Action:  action,
		Targets: []pg.Target{accountTarget(o.owner, &o.name)},
		After:   after,
	}
}

// findPerson finds whose code it is, where that says whether it still counts: who signs in, or a client, whose address and password another
// service has.
func (s *Service) findPerson(ctx context.Context, req *codeAnswer) (err error) {
	o := req.open
	if !o.login && o.owner.Type != principal.Client {
		return nil
	}
	if req.person, err = s.personOf(ctx, o.owner); err != nil {
		return fmt.Errorf("look for whose code it is: %w", err)
	}
	if p := &req.person; !p.exists() || p.Disabled || p.Version != o.credentials {
		return o.errOver()
	}
	o.name = req.person.Name
	return nil
}

// takeTry takes one of a code's tries, however many come at once.
func (s *Service) takeTry(ctx context.Context, o *openCode) error {
	return s.db.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("what comes of it is")
		taken, err := tx.Exec(
			ctx,
			"UPDATE verify_code SET tries = tries + 1 WHERE id = $1 AND tries < $2 AND confirmed_at IS NULL AND expires_at > clock_timestamp()",
			o.id,
			mostTries,
		)
		if err != nil {
			return fmt.Errorf("count an answer: %w", err)
		}
		if taken.RowsAffected() == 0 {
			return o.errOver()
		}
		return nil
	})
}

// confirmCode notes that a code was confirmed, and by which key, or begins the session that it was for.
func (s *Service) confirmCode(ctx context.Context, tx *pg.Tx, req codeAnswer) (confirmed ConfirmedKey, err error) {
	if o := req.open; !o.login {
		c, err := lockedCaller(ctx, tx)
		if err != nil {
			return confirmed, err
		}
		if confirmed.Key, err = keyView.Get(ctx, tx, c.key); err != nil {
			return confirmed, fmt.Errorf("read the calling key: %w", err)
		}
	} else if confirmed.Key, err = s.signIn(ctx, tx, req.person); err != nil {
		return confirmed, err
	}
	return confirmed, s.use(ctx, tx, req.open, req.matched, confirmed.Key.ID)
}

// use uses up what was compared, unless somebody else was faster.
func (s *Service) use(ctx context.Context, tx *pg.Tx, o *openCode, m matched, key int64) error {
	once := func(sql string, args ...any) error {
		used, err := tx.Exec(ctx, sql, args...)
		if err != nil {
			return fmt.Errorf("use a code up: %w", err)
		}
		if used.RowsAffected() == 0 {
			return o.errOver()
		}
		return nil
	}
	err := once(
		"UPDATE verify_code SET version = version + 1, confirmed_at = clock_timestamp(), key_id = $2, token = NULL WHERE id = $1 AND confirmed_at IS NULL AND expires_at > clock_timestamp()",
		o.id,
		key,
	)
	switch {
	case err != nil:
		return err
	case m.recovery != nil:
		if err := once(
			"DELETE FROM recovery_code WHERE hash = $1 AND owner_type = $2 AND owner_id = $3",
			m.recovery,
			o.owner.Type,
			o.owner.ID,
		); err != nil {
			return err
		}
		left, err := recoveryCodesOf(ctx, tx, o.owner)
		if err != nil {
			return err
		}
		tx.Record(o.record("confirmed", map[string]any{"auth": o.auth, "code": o.id, "recovery_codes_left": left}))
		return s.tellOwner(ctx, tx, o.owner, fmt.Sprintf("A recovery code was used. There are %d left.", left))
	case m.step != 0:
		err = once("UPDATE authenticator SET step = $2 WHERE id = $1 AND step < $2", o.auth, m.step)
	case m.key != nil:
		var by int64
		err := tx.QueryRow(ctx, "UPDATE authenticator SET counter = $2 WHERE credential = $1 AND verified AND (counter < $2 OR counter = 0 AND $2 = 0) RETURNING id", m.key.ID, m.key.Counter).
			Scan(&by)
		if errors.Is(err, pgx.ErrNoRows) {
			return o.errOver()
		}
		tx.Record(o.record("confirmed", map[string]any{"auth": by, "code": o.id}))
		return err
	}
	tx.Record(o.record("confirmed", nil))
	return err
}

// isConfirmed tells whether a key, or session, has confirmed a code within the last minutes, by an authenticator that is verified or where
// it
// signed in.
func isConfirmed(ctx context.Context, q pg.Querier, key int64) (is bool, err error) {
	err = q.QueryRow(ctx, `
		SELECT EXISTS (SELECT FROM verify_code c LEFT JOIN authenticator v ON v.id = c.auth_id
			WHERE c.key_id = $1 AND c.confirmed_at > clock_timestamp() - $2::interval AND v.verified IS NOT FALSE)`, key, freshTime).Scan(&is)
	if err != nil {
		return false, fmt.Errorf("look for a confirmed code: %w", err)
	}
	return is, nil
}

// mustBeConfirmed refuses a key that has confirmed no code of late.
func mustBeConfirmed(ctx context.Context, q pg.Querier, key int64) error {
	is, err := isConfirmed(ctx, q, key)
	if err == nil && !is {
		err = problem.New(
			problem.Forbidden,
			"This takes a code of a verified authenticator that the same key or session confirmed within the last %.0f minutes.",
			freshTime.Minutes(),
		)
	}
	return err
}
