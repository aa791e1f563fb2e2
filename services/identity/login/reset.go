package login

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"net/http"
	"net/netip"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/account"
	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/keycache"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/events"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/settings"
	"github.com/ironplane/ironplane/services/identity/access"
	"github.com/ironplane/ironplane/services/identity/admin"
	"github.com/ironplane/ironplane/services/identity/keys"
	"github.com/ironplane/ironplane/services/identity/person"
)

const (
	resetTTL  = time.Hour
	maxResets = 5 // links that an account has at a time
	// resetKind is the job that mails a link, and the part of an account of which the link's use is recorded.
	resetKind = "password-reset"
)

// Resets answers requests to choose a new password by a mailed link.
type Resets struct {
	DB       *pg.DB
	Entries  *keycache.Store
	Hasher   account.Hasher
	Settings *settings.Follower
	People   *person.Directory
	Mails    *events.Outbox
}

// PasswordReset says whose password is chosen anew.
type PasswordReset struct {
	User ResetUser `json:"user"`
}

// ResetUser is an account. A caller that may not read it sees the address that it has sent.
type ResetUser struct {
	Email    string  `json:"email"`
	ID       *int64  `json:"id,omitempty" doc:"to who may read the account"`
	Name     *string `json:"name,omitempty" doc:"the same"`
	Username *string `json:"username,omitempty" doc:"the same, of an admin"`
}

// shown returns an account for a caller that may read it.
func shown(p person.Person) PasswordReset {
	user := ResetUser{Email: p.Email, ID: &p.ID, Name: &p.Name}
	if p.Owner.Type == principal.Admin {
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
	person person.Person // nobody: no link is mailed
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
	person  person.Person
	version int64 // of the person's credentials when it was made
	welcome bool
	ip      netip.Addr
	hash    []byte
	expires time.Time
}

// Routes returns the operations on forgotten passwords.
func (s *Resets) Routes() []rest.Route {
	return []rest.Route{
		rest.Mutation[newReset, PasswordReset]{
			Method:  http.MethodPost,
			Path:    "/auth/password-reset",
			Guard:   guard.Public,
			Name:    "requestPasswordReset",
			Summary: "Have a link mailed to choose a new password by",
			Doc: "The answer is the same where nobody has the address, unless the caller may read the account. An admin without a password, " +
				"and a disabled account, get no mail.",
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

// findForReset looks for the account. It takes equally long where there is none.
func (s *Resets) findForReset(ctx context.Context, req *newReset) (err error) {
	if req.asked, err = req.Body.New(); err != nil {
		return err
	}
	req.person, err = s.People.Find(ctx, req.asked.Type, req.asked.Email, "")
	return err
}

func (s *Resets) makeReset(ctx context.Context, tx *pg.Tx, req newReset) (answer PasswordReset, err error) {
	p := req.person
	if answer.User.Email = req.asked.Email; p.Exists() && principal.From(ctx).Principal != nil && access.MayRead(ctx, p.Owner) {
		answer = shown(p)
	}
	if !p.MayReset() {
		p = person.Person{}
	}
	r := reset{person: p, version: p.Version, ip: access.Address(ctx)}
	if err := s.keepReset(ctx, tx, &r, resetTTL); err != nil {
		return answer, err
	}
	return answer, noteAttempt(ctx, tx, attempt{what: askedReset, of: p, expires: &r.expires})
}

// readReset reads a link. Of its person it sets the owner alone, who may be gone.
func readReset(ctx context.Context, q pg.Querier, id int64) (r reset, err error) {
	err = q.QueryRow(ctx, "SELECT id, coalesce(owner_type, ''), coalesce(owner_id, 0), credentials, welcome, ip, hash, expires_at "+
		"FROM password_reset WHERE id = $1 AND expires_at > now()", id).
		Scan(&r.id, &r.person.Owner.Type, &r.person.Owner.ID, &r.version, &r.welcome, &r.ip, &r.hash, &r.expires)
	return r, err
}

// prepareReset compares the token, before it looks whose link it is, and hashes the password.
func (s *Resets) prepareReset(ctx context.Context, req *finishReset) (err error) {
	if req.found, err = readReset(ctx, s.DB, req.ID); err != nil {
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
	if req.found.person, err = s.People.Of(ctx, req.found.person.Owner); err != nil {
		return err
	}
	p := req.found.person
	if !p.MayReset() || req.found.version != p.Version {
		return pgx.ErrNoRows
	}
	var invalid problem.Fields
	if account.CheckPassword(body.Password, settings.PasswordLength.In(s.Settings.Values()), &invalid); len(invalid) == 0 {
		account.CheckStrength(body.Password, []string{p.Name, p.Email}, &invalid)
	}
	if err := invalid.Err(); err != nil {
		return err
	}
	req.sent = body
	req.hash, err = s.Hasher.Hash(ctx, body.Password)
	return err
}

// notOperators is the condition for keys that were made without users.clients write.
const notOperators = "coalesce(NOT bound @> ARRAY['users.clients write'], true)"

func (s *Resets) finishReset(ctx context.Context, tx *pg.Tx, req finishReset) (answer PasswordReset, err error) {
	p := req.found.person
	if err := access.Lock(ctx, tx); err != nil {
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
	case p.ProvesMailbox():
		which = "(kind <> 'lasting' OR " + notOperators + ")"
	}
	ended, err := keys.End(ctx, tx, "owner_type = $1 AND owner_id = $2 AND "+which, p.Owner.Type, p.Owner.ID)
	if err != nil {
		return answer, err
	}
	if err := keys.EndLinks(ctx, tx, p.Owner); err != nil {
		return answer, err
	}
	if p.Owner.Type == principal.Client && !p.Claimed { // who had the account before may have added some
		if _, err := keys.EndSecondFactors(ctx, tx, p.Owner); err != nil {
			return answer, err
		}
	}
	if p.Owner.Type == principal.Client {
		err = s.People.SetClientPassword(ctx, tx, p, secret.New(req.hash))
	} else {
		ended = append(ended, admin.EntryName(p.ID))
		err = admin.SetPassword(ctx, tx, p, req.hash)
	}
	if err != nil {
		return answer, err
	}
	keys.Revoke(tx, s.Entries, ended...)
	tx.Record(
		pg.Record{
			Kind:    string(p.Owner.Type),
			Part:    resetKind,
			Action:  "used",
			Targets: []pg.Target{p.Target()},
			Before:  map[string]any{"expires_at": req.found.expires.UTC().Format(time.RFC3339)},
			After:   struct{}{},
		},
	)
	return shown(p), s.People.Notify(ctx, tx, p, changes...)
}
