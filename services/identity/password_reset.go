package identity

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/account"
	"github.com/ironplane/ironplane/pkg/auth/credentials"
	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/events"
	"github.com/ironplane/ironplane/pkg/jobs"
	"github.com/ironplane/ironplane/pkg/mail"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/settings"
)

const (
	// resetTime is how long a mailed link is good, and mostResets how many an account has at a time.
	resetTime  = time.Hour
	mostResets = 5
	// resetKind is the job that mails a link, and the part of an account that its use is recorded of.
	resetKind = "password-reset"
)

// PasswordReset says whose password is chosen anew.
type PasswordReset struct {
	User ResetUser `json:"user"`
}

// ResetUser is an account; who may not read it sees the address that he has sent.
type ResetUser struct {
	Email    string  `json:"email"`
	ID       *int64  `json:"id,omitempty" doc:"to who may read the account"`
	Name     *string `json:"name,omitempty" doc:"the same"`
	Username *string `json:"username,omitempty" doc:"the same, of an admin"`
}

// shown is an account to who may read it.
func (p person) shown() PasswordReset {
	user := ResetUser{Email: p.Email, ID: &p.ID, Name: &p.Name}
	if p.owner.Type == principal.Admin {
		user.Username = &p.Name
	}
	return PasswordReset{user}
}

type askForReset struct {
	Email string              `json:"email" required:"create" max:"320" example:"owner@example.com" doc:"of the account"`
	Type  principal.OwnerType `json:"type" required:"create" enum:"admin,client" example:"client" doc:"of the account"`
}

type newReset struct {
	Body   rest.Body[askForReset]
	asked  *askForReset
	person person // nobody: no link is mailed
}

type choosePassword struct {
	Token    secret.String `json:"token" required:"create,edit" max:"255" kept:"false" example:"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA" doc:"that stands behind the # of the mailed link"`
	Password secret.String `json:"password" required:"create,edit" max:"1024" example:"a long walk in the rain" doc:"hard to guess, and at least as long as the setting security.password_length says (12 characters)"`
	Keys     bool          `json:"keys" kept:"false" example:"false" doc:"whether the account's lasting keys are deleted, too"`
}

type finishReset struct {
	ID   int64 `path:"*"`
	Body rest.Body[choosePassword]

	found reset
	sent  *choosePassword
	hash  string // of the password
}

// reset is a link by which a password is chosen.
type reset struct {
	id      int64
	person  person
	version int64 // of the person's credentials when it was made
	welcome bool
	ip      netip.Addr
	hash    []byte
	expires time.Time
}

func (s *Service) passwordResets() []rest.Route {
	return []rest.Route{
		rest.Mutation[newReset, PasswordReset]{
			Method:  http.MethodPost,
			Path:    "/auth/password-reset",
			Guard:   guard.Public,
			Name:    "requestPasswordReset",
			Summary: "Have a link mailed to choose a new password by",
			Doc:     "The answer is the same where nobody has the address, unless the caller may read the account. An admin without a password, and a disabled account, get no mail.",
			Effect:  rest.Effect{Logs: rest.LogsEach, Again: rest.AgainAnother},
			Prepare: s.findForReset,
			Do:      s.makeReset,
		},
		rest.Mutation[finishReset, PasswordReset]{
			Method:    http.MethodPatch,
			Path:      "/auth/password-reset/{reset_id}",
			Guard:     guard.Public,
			Name:      "finishPasswordReset",
			Summary:   "Choose a new password by a mailed link",
			Doc:       "It works once, for an hour, and ends all sessions of the account.",
			Extension: true,
			Effect:    rest.Effect{Logs: rest.LogsEach, Again: rest.AgainRefused},
			Prepare:   s.prepareReset,
			Do:        s.finishReset,
		},
	}
}

// findForReset looks for the account. It takes the same whether there is one.
func (s *Service) findForReset(ctx context.Context, req *newReset) (err error) {
	if req.asked, err = req.Body.New(); err != nil {
		return err
	}
	req.person, err = s.find(ctx, req.asked.Type, req.asked.Email, "")
	return err
}

// mayReset tells whether the account may choose a new password by a link: an admin who has none is to have none.
func (p person) mayReset() bool {
	return p.exists() && !p.Disabled && (p.owner.Type == principal.Client || p.Hash != "")
}

func (s *Service) makeReset(ctx context.Context, tx *pg.Tx, req newReset) (answer PasswordReset, err error) {
	p := req.person
	if answer.User.Email = req.asked.Email; p.exists() && principal.From(ctx).Principal != nil && mayRead(ctx, p.owner) {
		answer = p.shown()
	}
	if !p.mayReset() {
		p = person{}
	}
	r := reset{person: p, version: p.Version, ip: address(ctx)}
	if err := s.keepReset(ctx, tx, &r, resetTime); err != nil {
		return answer, err
	}
	return answer, noteAttempt(ctx, tx, attempt{what: askedReset, of: p, expires: &r.expires})
}

// keepReset keeps a link that is to be mailed, and has it mailed.
func (s *Service) keepReset(ctx context.Context, tx *pg.Tx, r *reset, good time.Duration) error {
	var ownerType *principal.OwnerType
	var ownerID *int64
	if r.person.exists() {
		ownerType, ownerID = &r.person.owner.Type, &r.person.owner.ID
	}
	err := tx.QueryRow(ctx, "INSERT INTO password_reset (owner_type, owner_id, credentials, welcome, ip, expires_at) VALUES ($1, $2, $3, $4, $5, now() + $6) RETURNING id, expires_at",
		ownerType, ownerID, r.version, r.welcome, r.ip, good).
		Scan(&r.id, &r.expires)
	if err != nil {
		return fmt.Errorf("keep a password reset: %w", err)
	}
	job := s.resetJob()
	return jobs.Enqueue(ctx, tx, &job, resetTask{r.id})
}

// resetTask is what a job is given.
type resetTask struct {
	Reset int64 `json:"reset"`
}

// resetJob mails a link. Whether it goes to anybody is found out here, where nobody waits for it.
func (s *Service) resetJob() service.Job {
	return service.Job{
		Kind:     resetKind,
		Attempts: 10,
		Backoff:  func(attempt int) time.Duration { return time.Duration(attempt) * time.Minute },
		Do:       jobs.Do(s.mailReset),
	}
}

func (s *Service) mailReset(ctx context.Context, _ *service.Attempt, task resetTask) error {
	r, err := readReset(ctx, s.db, task.Reset)
	if err == nil {
		r.person, err = s.personOf(ctx, r.person.owner)
	}
	if errors.Is(err, pgx.ErrNoRows) ||
		err == nil && (!r.person.mayReset() || r.person.Email == "" || r.hash != nil || r.version != r.person.Version) {
		return nil
	}
	if err != nil {
		return err
	}
	token := newToken()
	hash := sha256.Sum256([]byte(token.Reveal()))
	link, err := s.passwordLink(r, token)
	if err != nil {
		return err
	}
	return s.db.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("who asked for it is recorded")
		if err := tx.Lock(
			ctx,
			"resets of "+string(r.person.owner.Type),
			r.person.owner.ID,
		); err != nil { // those that are mailed at the same time are counted, too
			return err
		}
		kept, err := tx.Exec(ctx, `
			UPDATE password_reset SET hash = $2 WHERE id = $1 AND hash IS NULL AND expires_at > now()
				AND (welcome OR (SELECT count(*) FROM password_reset WHERE owner_type = $3 AND owner_id = $4 AND NOT welcome AND hash IS NOT NULL AND expires_at > now()) < $5)`,
			r.id, hash[:], r.person.owner.Type, r.person.owner.ID, mostResets)
		if err != nil || kept.RowsAffected() == 0 {
			return err
		}
		var content mail.Content = mail.PasswordReset{Link: link, Expires: r.expires, IP: r.ip.String()}
		if r.welcome {
			content = mail.ClientAccountCreated{Link: link, Expires: r.expires}
		}
		return mail.Send(ctx, tx, s.outbox, r.person.owner.URL(), r.person.to(), content)
	})
}

// newToken makes what a link is good by: 256 random bits.
func newToken() secret.String {
	var bits [32]byte
	rand.Read(bits[:])
	return secret.New(base64.RawURLEncoding.EncodeToString(bits[:]))
}

// passwordLink is where a password is chosen: in the panel or, where there is none, at the gateway.
func (s *Service) passwordLink(r reset, token secret.String) (secret.String, error) {
	values := s.settings.Values()
	if panel := panelOf(values, r.person.owner.Type); panel != "" {
		return secret.New(fmt.Sprintf("%s/auth/password-reset/%d#%s", panel, r.id, url.Values{"token": {token.Reveal()}}.Encode())), nil
	}
	api := strings.TrimRight(settings.APIURL.In(values), "/")
	if api == "" {
		return secret.String{}, errors.New(
			"a link cannot be made: nobody says where callers reach the API (IRONPLANE_API_URL), nor where the panel is",
		)
	}
	return secret.New(fmt.Sprintf("%s/-/password#%s", api, url.Values{"id": {fmt.Sprint(r.id)}, "token": {token.Reveal()}}.Encode())), nil
}

// panelOf is where accounts of a type have their panel; empty: they have none.
func panelOf(values settings.Values, t principal.OwnerType) string {
	return strings.TrimRight(panels[t].In(values), "/")
}

// panels are the settings that say so.
var panels = map[principal.OwnerType]settings.Text{principal.Admin: settings.AdminURL, principal.Client: settings.ClientURL}

// readReset reads a link, and of the account, which may be gone, no more than which it is.
func readReset(ctx context.Context, q pg.Querier, id int64) (r reset, err error) {
	err = q.QueryRow(ctx, "SELECT id, coalesce(owner_type, ''), coalesce(owner_id, 0), credentials, welcome, ip, hash, expires_at FROM password_reset WHERE id = $1 AND expires_at > now()", id).
		Scan(&r.id, &r.person.owner.Type, &r.person.owner.ID, &r.version, &r.welcome, &r.ip, &r.hash, &r.expires)
	return r, err
}

// prepareReset compares the token, before it looks whose it is, and hashes the password.
func (s *Service) prepareReset(ctx context.Context, req *finishReset) (err error) {
	if req.found, err = readReset(ctx, s.db, req.ID); err != nil {
		return err
	}
	body, err := req.Body.New()
	if err != nil {
		return err
	}
	token := sha256.Sum256([]byte(body.Token.Reveal()))
	if subtle.ConstantTimeCompare(token[:], req.found.hash) != 1 {
		return problem.Member("/token", "wrong", "is not the one of the link")
	}
	if req.found.person, err = s.personOf(ctx, req.found.person.owner); err != nil {
		return err
	}
	p := req.found.person
	if !p.mayReset() || req.found.version != p.Version {
		return pgx.ErrNoRows
	}
	var wrong problem.Fields
	if account.CheckPassword(body.Password, settings.PasswordLength.In(s.settings.Values()), &wrong); len(wrong) == 0 {
		account.CheckStrength(body.Password, []string{p.Name, p.Email}, &wrong)
	}
	if err := wrong.Err(); err != nil {
		return err
	}
	req.sent = body
	req.hash, err = s.hasher.Hash(ctx, body.Password)
	return err
}

func (s *Service) finishReset(ctx context.Context, tx *pg.Tx, req finishReset) (answer PasswordReset, err error) {
	p := req.found.person
	if err := lockAccounts(ctx, tx); err != nil {
		return answer, err
	}
	used, err := tx.Exec(
		ctx,
		"DELETE FROM password_reset WHERE id = $1 AND hash = $2 AND expires_at > clock_timestamp()",
		req.ID,
		req.found.hash,
	)
	if err != nil {
		return answer, fmt.Errorf("use a password reset: %w", err)
	}
	if used.RowsAffected() == 0 {
		return answer, pgx.ErrNoRows
	}
	changes := []string{"A new password was chosen by a link that was mailed, and all sessions ended."}
	which := "kind <> 'lasting'"
	switch {
	case req.sent.Keys:
		which = "true"
		changes = append(changes, "All API keys were deleted.")
	case p.provesMailbox():
		which = "(kind <> 'lasting' OR " + notOperators + ")"
	}
	ended, err := endKeys(ctx, tx, "owner_type = $1 AND owner_id = $2 AND "+which, p.owner.Type, p.owner.ID)
	if err != nil {
		return answer, err
	}
	if err := endLinks(ctx, tx, p.owner); err != nil {
		return answer, err
	}
	if p.owner.Type == principal.Client && !p.Claimed { // who had the account before may have added some
		if _, err := endSecondFactors(ctx, tx, p.owner); err != nil {
			return answer, err
		}
	}
	if p.owner.Type == principal.Client {
		err = s.setClientPassword(ctx, tx, p, secret.New(req.hash))
	} else {
		ended = append(ended, adminName(p.ID))
		err = setAdminPassword(ctx, tx, p, req.hash)
	}
	if err != nil {
		return answer, err
	}
	s.revoke(tx, ended...)
	tx.Record(
		pg.Record{
			Kind:    string(p.owner.Type),
			Part:    resetKind,
			Action:  "used",
			Targets: []pg.Target{p.target()},
			Before:  map[string]any{"expires_at": req.found.expires.UTC().Format(time.RFC3339)},
			After:   struct{}{},
		},
	)
	return p.shown(), s.tell(ctx, tx, p, changes...)
}

// welcome has a link mailed by which a new account chooses its first password.
func (s *Service) welcome(ctx context.Context, tx *pg.Tx, m events.Message) error {
	var of credentials.Welcome
	if err := json.Unmarshal(m.Content, &of); err != nil {
		return fmt.Errorf("read whom to welcome: %w", err)
	}
	p, err := s.personOf(ctx, principal.Owner{Type: principal.Client, ID: of.Client})
	if err != nil || !p.exists() {
		return err
	}
	return s.keepReset(ctx, tx, &reset{person: p, version: p.Version, welcome: true}, credentials.WelcomeTime)
}
