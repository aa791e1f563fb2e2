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
	maxResets = 5 // unused links of an account
	// resetKind is the kind of the job that mails a link, and the part of an account in records of links.
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

// PasswordReset is the response to a request to reset a password.
type PasswordReset struct {
	User ResetUser `json:"user" doc:"The account whose password is reset."`
}

// ResetUser is an account. A caller that may not read the account sees only the address that it has sent.
type ResetUser struct {
	Email    string  `json:"email" doc:"The email address."`
	ID       *int64  `json:"id,omitempty" doc:"The account's id, for callers that may read the account."`
	Name     *string `json:"name,omitempty" doc:"The account's name, for callers that may read the account."`
	Username *string `json:"username,omitempty" doc:"The admin's username, for callers that may read the account."`
}

// describeAccount returns an account for a caller that may read it.
func describeAccount(p person.Person) PasswordReset {
	user := ResetUser{Email: p.Email, ID: &p.ID, Name: &p.Name}
	if p.Owner.Type == principal.Admin {
		user.Username = &p.Name
	}
	return PasswordReset{user}
}

// resetRequest is the body of a request for a link.
type resetRequest struct {
	Email string              `json:"email" required:"create" max:"320" example:"owner@example.com" doc:"The account's email address."`
	Type  principal.OwnerType `json:"type" required:"create" enum:"admin,client" example:"client" doc:"The account's type."`
}

// newResetRequest is a request for a link.
type newResetRequest struct {
	Body   rest.Body[resetRequest]
	body   *resetRequest
	person person.Person // the zero Person: no link is mailed
}

// passwordChoice is the body by which a new password is chosen.
type passwordChoice struct {
	Token    secret.String `json:"token" required:"create,edit" max:"255" transient:"true" example:"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA" doc:"The token behind the # of the mailed link."`
	Password secret.String `json:"password" required:"create,edit" max:"1024" example:"a long walk in the rain" doc:"The new password. It must be hard to guess and as long as the setting security.password_length asks for (12 characters)."`
	Keys     bool          `json:"keys" transient:"true" example:"false" doc:"Whether to delete the account's lasting keys too."`
}

// finishResetRequest is a request to choose a new password by a link.
type finishResetRequest struct {
	ID   int64 `path:"*"`
	Body rest.Body[passwordChoice]

	found resetLink
	body  *passwordChoice
	hash  string // of the password
}

// resetLink is a link by which a password is chosen.
type resetLink struct {
	id      int64
	person  person.Person
	version int64 // of the person's credentials when the link was created
	welcome bool
	ip      netip.Addr
	hash    []byte
	expires time.Time
}

// Routes returns the operations on forgotten passwords.
func (s *Resets) Routes() []rest.Route {
	return []rest.Route{
		rest.Mutation[newResetRequest, PasswordReset]{
			Method:  http.MethodPost,
			Path:    "/auth/password-reset",
			Guard:   guard.Public,
			Name:    "requestPasswordReset",
			Summary: "Mail a link to choose a new password",
			Doc: "The response is the same if no account has the address, unless the caller may read the account. An admin without a " +
				"password, and a disabled account, get no mail.",
			Effect:  rest.Effect{Logs: rest.LogsEach, Retry: rest.RetryRepeats},
			Prepare: s.findForReset,
			Do:      s.makeReset,
		},
		rest.Mutation[finishResetRequest, PasswordReset]{
			Method:    http.MethodPatch,
			Path:      "/auth/password-reset/{reset_id}",
			Guard:     guard.Public,
			Name:      "finishPasswordReset",
			Summary:   "Choose a new password by a mailed link",
			Doc:       "The link works once, within an hour. All sessions of the account end.",
			Extension: true,
			Effect:    rest.Effect{Logs: rest.LogsEach, Retry: rest.RetryRefused},
			Prepare:   s.prepareReset,
			Do:        s.finishReset,
		},
	}
}

// findForReset looks for the account. It takes the same time if there is none.
func (s *Resets) findForReset(ctx context.Context, req *newResetRequest) (err error) {
	if req.body, err = req.Body.New(); err != nil {
		return err
	}
	req.person, err = s.People.Find(ctx, req.body.Type, req.body.Email, "")
	return err
}

// makeReset stores a link for the account. If there is no such account, it stores one that is never mailed.
func (s *Resets) makeReset(ctx context.Context, tx *pg.Tx, req newResetRequest) (response PasswordReset, err error) {
	p := req.person
	if response.User.Email = req.body.Email; p.Exists() && principal.FromContext(ctx).Principal != nil && access.CanRead(ctx, p.Owner) {
		response = describeAccount(p)
	}
	if !p.CanReset() {
		p = person.Person{}
	}
	r := resetLink{person: p, version: p.Version, ip: access.Address(ctx)}
	if err := s.storeReset(ctx, tx, &r, resetTTL); err != nil {
		return response, err
	}
	return response, storeAttempt(ctx, tx, attempt{kind: askedReset, person: p, expires: &r.expires})
}

// readReset reads a link. It sets only the person's owner, whose account may be deleted.
func readReset(ctx context.Context, q pg.Querier, id int64) (r resetLink, err error) {
	err = q.QueryRow(ctx, "SELECT id, coalesce(owner_type, ''), coalesce(owner_id, 0), credentials, welcome, ip, hash, expires_at "+
		"FROM password_reset WHERE id = $1 AND expires_at > now()", id).
		Scan(&r.id, &r.person.Owner.Type, &r.person.Owner.ID, &r.version, &r.welcome, &r.ip, &r.hash, &r.expires)
	return r, err
}

// prepareReset compares the token before it looks up the account, and hashes the password.
func (s *Resets) prepareReset(ctx context.Context, req *finishResetRequest) (err error) {
	if req.found, err = readReset(ctx, s.DB, req.ID); err != nil {
		return err
	}
	body, err := req.Body.New()
	if err != nil {
		return err
	}
	token := sha256.Sum256([]byte(body.Token.Reveal()))
	if subtle.ConstantTimeCompare(token[:], req.found.hash) != 1 {
		return problem.Member("/token", "wrong", "is not the link's token")
	}
	if req.found.person, err = s.People.Get(ctx, req.found.person.Owner); err != nil {
		return err
	}
	p := req.found.person
	if !p.CanReset() || req.found.version != p.Version {
		return pgx.ErrNoRows
	}
	var invalid problem.Fields
	site := s.Settings.Values()
	if account.CheckPassword(body.Password, site, &invalid); len(invalid) == 0 {
		account.CheckStrength(body.Password, site, []string{p.Name, p.Email}, &invalid)
	}
	if err := invalid.Err(); err != nil {
		return err
	}
	req.body = body
	req.hash, err = s.Hasher.Hash(ctx, body.Password)
	return err
}

// notOperatorKeys is the condition for keys whose creator lacked users.clients write.
const notOperatorKeys = "coalesce(NOT bound @> ARRAY['users.clients write'], true)"

// finishReset uses the link up, sets the password, and ends the account's sessions and other links.
func (s *Resets) finishReset(ctx context.Context, tx *pg.Tx, req finishResetRequest) (response PasswordReset, err error) {
	p := req.found.person
	if err := access.Lock(ctx, tx); err != nil {
		return response, err
	}
	used, err := tx.Exec(
		ctx,
		"DELETE FROM password_reset WHERE id = $1 AND hash = $2 AND expires_at > clock_timestamp()",
		req.ID,
		req.found.hash,
	)
	if err != nil {
		return response, fmt.Errorf("use a password reset: %w", err)
	}
	if used.RowsAffected() == 0 {
		return response, pgx.ErrNoRows
	}
	changes := []string{"A new password was chosen by a mailed link, and all sessions ended."}
	condition := "kind <> 'lasting'"
	switch {
	case req.body.Keys:
		condition = "true"
		changes = append(changes, "All API keys were deleted.")
	case p.HasUnprovenMailbox():
		condition = "(kind <> 'lasting' OR " + notOperatorKeys + ")"
	}
	ended, err := keys.End(ctx, tx, "owner_type = $1 AND owner_id = $2 AND "+condition, p.Owner.Type, p.Owner.ID)
	if err != nil {
		return response, err
	}
	if err := keys.EndLinks(ctx, tx, p.Owner); err != nil {
		return response, err
	}
	if p.Owner.Type == principal.Client && !p.Claimed { // somebody who used the account before may have added some
		if _, err := keys.EndSecondFactors(ctx, tx, p.Owner); err != nil {
			return response, err
		}
	}
	if p.Owner.Type == principal.Client {
		err = s.People.SetClientPassword(ctx, tx, p, secret.New(req.hash))
	} else {
		ended = append(ended, admin.EntryName(p.ID))
		err = admin.SetPassword(ctx, tx, p, req.hash)
	}
	if err != nil {
		return response, err
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
	return describeAccount(p), s.People.Notify(ctx, tx, p, changes...)
}
