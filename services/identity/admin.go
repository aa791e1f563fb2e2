package identity

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/account"
	"github.com/ironplane/ironplane/pkg/auth/apikey"
	"github.com/ironplane/ironplane/pkg/auth/credentials"
	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/settings"
)

// Admin is somebody who runs the installation.
type Admin struct {
	rest.Versioned
	ID            int64          `json:"id" db:"id"`
	Username      string         `json:"username" db:"username"`
	Email         string         `json:"email,omitempty" db:"email"`
	Name          string         `json:"name" db:"name" doc:"the username"`
	ReceiveCopies bool           `json:"receive_copies" db:"receive_copies" doc:"blind copies of what is mailed to clients"`
	Disabled      bool           `json:"disabled" db:"disabled" ext:"true" doc:"whether all keys are refused, as if they were revoked, until it is taken back"`
	CreatedAt     rest.Timestamp `json:"created_at" db:"created_at"`
}

type adminBody struct {
	Username        string        `json:"username" db:"username" max:"64" example:"anna" doc:"letters, digits and . _ @ + -; on create, the part of email before the @ where it is not sent"`
	Email           string        `json:"email" db:"email" required:"create" format:"email" example:"anna@example.com" doc:"nobody else has it, in either case"`
	Password        secret.String `json:"password" required:"create" max:"1024" example:"a long walk in the rain" doc:"hard to guess, and at least as long as the setting security.password_length says (12 characters); empty: no login by password, and on edit: unchanged"`
	CurrentPassword secret.String `json:"current_password" max:"1024" ext:"true" kept:"false" example:"a long walk in the rain" doc:"on edit of one's own email or password, by a key or a session that began more than ten minutes ago; who has no password needs none"`
	ReceiveCopies   bool          `json:"receive_copies" db:"receive_copies" example:"true" doc:"blind copies of what is mailed to clients"`
	Disabled        bool          `json:"disabled" db:"disabled" ext:"true" example:"false" doc:"whether all keys are refused, as if they were revoked, until it is taken back"`

	least     int     // characters of Password
	hash      *string // of Password, once it is prepared
	confirmed *string // the hash of the caller's password, where it is CurrentPassword
	fresh     bool    // the caller has just signed in
}

func inUsername(r rune) bool {
	return unicode.In(r, unicode.L, unicode.N) || strings.ContainsRune("._@+-", r)
}

// Resolve checks what the tags cannot say.
func (b *adminBody) Resolve(wrong *problem.Fields) {
	if strings.ContainsFunc(b.Username, func(r rune) bool { return !inUsername(r) }) {
		wrong.Add("/username", "invalid", "can have letters, digits and . _ @ + - alone")
	}
	if b.Email != "" {
		account.CheckEmail(b.Email, wrong)
	}
	if !b.Password.IsZero() {
		account.CheckPassword(b.Password, b.least, wrong)
	}
	if b.hash != nil { // else the caller may not set one, and is not worked for
		account.CheckStrength(b.Password, []string{b.Username, b.Email}, wrong)
	}
}

func (s *Service) admins() []rest.Route {
	return rest.Resource[Admin, adminBody]{
		DB:     s.db,
		Path:   "/admin",
		ID:     "admin_id",
		Noun:   "admin",
		Again:  rest.AgainRefused,
		Edited: `{"username": "anna.k", "receive_copies": false}`,
		Guard: guard.Has(
			permission.UsersAdmins,
		),
		OwnGuard: guard.HasOrSelf(permission.UsersAdmins, principal.Admin),
		Table:    "admin",
		View:     "admin_view",
		By: rest.By{
			Search:  rest.SearchIn("search"),
			Sorts:   map[string]string{"username": "username", "created_at": "created_at"},
			Filters: map[string]string{"disabled": "disabled", "email": "lower(email)", "username": "lower(username)"},
		},
		Prepare: s.preparePasswords,
		Allow:   func(ctx context.Context, tx *pg.Tx, _ *adminBody) error { return allow(ctx, tx) },
		Lock:    func(ctx context.Context, tx *pg.Tx, _ ...*adminBody) error { return allow(ctx, tx) },
		Insert:  s.insertAdmin,
		Update:  s.updateAdmin,
		Delete:  s.deleteAdmin,
	}.Routes()
}

// preparePasswords compares the current password with the caller's, and hashes the new one for who may set it: hashing
// takes much, and few at a time.
func (s *Service) preparePasswords(ctx context.Context, _ rest.Verbs, b *adminBody) error {
	b.least = settings.PasswordLength.In(s.settings.Values())
	caller := principal.From(ctx).Principal
	if time.Since(caller.SignedIn) < freshTime {
		b.fresh = true
	} else if !b.CurrentPassword.IsZero() && caller.Owner.Type == principal.Admin {
		if err := s.confirm(ctx, b); err != nil {
			return err
		}
	}
	var wrong problem.Fields
	if account.CheckPassword(b.Password, b.least, &wrong); len(wrong) > 0 { // which is said later
		return nil
	}
	if b.confirmed == nil && !b.fresh && !caller.May(permission.UsersAdmins, permission.Write) { // so is this
		return nil
	}
	hash, err := s.hasher.Hash(ctx, b.Password)
	b.hash = &hash
	return err
}

// confirm compares the current password with the caller's, unless it was guessed too often. A wrong one is logged.
func (s *Service) confirm(ctx context.Context, b *adminBody) error {
	var stored *string
	err := s.db.QueryRow(ctx, "SELECT password_hash FROM admin WHERE id = $1", principal.From(ctx).Principal.Owner.ID).Scan(&stored)
	if errors.Is(err, pgx.ErrNoRows) {
		return apikey.Invalid()
	}
	if err != nil {
		return fmt.Errorf("read the caller's password: %w", err)
	}
	if stored == nil {
		return nil
	}
	right, err := s.lockouts.Confirm(ctx, s.db, s.hasher, b.CurrentPassword, *stored)
	if right {
		b.confirmed = stored
	}
	return err
}

func (s *Service) insertAdmin(ctx context.Context, tx *pg.Tx, b *adminBody) (id int64, err error) {
	if b.Username == "" {
		if b.Username, err = freeUsername(ctx, tx, b.Email); err != nil {
			return 0, err
		}
	}
	err = tx.QueryRow(ctx, "INSERT INTO admin (username, email, password_hash, receive_copies, disabled) VALUES ($1, $2, $3, $4, $5) RETURNING id",
		b.Username, b.Email, b.hash, b.ReceiveCopies, b.Disabled).
		Scan(&id)
	return id, err
}

// longestBase leaves room in a username for a number.
const longestBase = 54

// freeUsername is the part of email before the @, with the smallest number behind it that makes it unique.
func freeUsername(ctx context.Context, tx *pg.Tx, email string) (username string, err error) {
	base, _, _ := strings.Cut(email, "@")
	base = strings.Map(func(r rune) rune {
		if inUsername(r) {
			return r
		}
		return '-'
	}, base)
	base = strings.ToValidUTF8(base[:min(len(base), longestBase)], "")
	err = tx.QueryRow(ctx, `
		SELECT name FROM (SELECT $1 || CASE n WHEN 1 THEN '' ELSE n::text END AS name, n
			FROM generate_series(1, 1 + (SELECT count(*) FROM admin WHERE lower(username) LIKE lower($2) || '%')) n) candidate
		WHERE lower(name) NOT IN (SELECT lower(username) FROM admin)
		ORDER BY n LIMIT 1`, base, strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`).Replace(base)).Scan(&username)
	if err != nil {
		return "", fmt.Errorf("find a free username: %w", err)
	}
	return username, nil
}

func (s *Service) updateAdmin(ctx context.Context, tx *pg.Tx, id int64, b *adminBody) error {
	if b.Username == "" {
		return problem.Member("/username", "required", "is required and cannot be empty")
	}
	c, err := callerOf(ctx, tx)
	if err != nil {
		return err
	}
	account := principal.Owner{Type: principal.Admin, ID: id}
	err = s.mayWrite(ctx, tx, c, account)
	if c.owner == account {
		err = ofOneself(ctx, tx, b, err)
	}
	if err != nil {
		return err
	}
	if b.Disabled {
		last, err := lastAdmin(ctx, tx, id)
		if err != nil {
			return err
		}
		if last {
			return problem.Member("/disabled", "last_admin", "cannot be said of the last admin who holds users.admins write")
		}
	}
	names, err := s.changeCredentials(ctx, tx, c, id, b)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `
		UPDATE admin SET version = version + 1, username = $2, email = nullif($3, ''), receive_copies = $4,
			password_hash = coalesce($5, password_hash), disabled = $6 WHERE id = $1`,
		id, b.Username, b.Email, b.ReceiveCopies, b.hash, b.Disabled)
	if err != nil {
		return err
	}
	s.revoke(tx, append(names, adminName(id))...)
	return nil
}

// changeCredentials ends, where an admin's address or password is changed, what hangs on them: the sessions, but for the caller's own. It
// answers the names of the entries that end, and tells the admin, at the address that there was.
func (s *Service) changeCredentials(ctx context.Context, tx *pg.Tx, c caller, id int64, b *adminBody) (names []string, err error) {
	p := person{owner: principal.Owner{Type: principal.Admin, ID: id}}
	if err := tx.QueryRow(ctx, "SELECT id, username, coalesce(email, '') FROM admin WHERE id = $1 FOR UPDATE", id).
		Scan(&p.ID, &p.Name, &p.Email); err != nil {
		return nil, fmt.Errorf("read admin %d: %w", id, err)
	}
	var changes []string
	if b.hash != nil {
		changes = append(changes, "The password was changed.")
	}
	if b.Email != p.Email {
		changes = append(changes, "The email address was changed.")
	}
	if len(changes) == 0 {
		return nil, nil
	}
	if err := endLinks(ctx, tx, p.owner); err != nil {
		return nil, err
	}
	if err := s.tell(ctx, tx, p, changes...); err != nil {
		return nil, err
	}
	if was := p.Email; b.Email != was && b.Email != "" {
		if p.Email = b.Email; was != "" {
			err = s.tell(ctx, tx, p, changes...)
		}
		if err != nil {
			return nil, err
		}
	}
	return endKeys(ctx, tx, "owner_type = 'admin' AND owner_id = $1 AND kind <> 'lasting' AND id <> $2", id, c.key)
}

const freshTime = credentials.FreshTime

// ofOneself is what an admin writes of the own account: all of it or, where refusal tells that accounts are not his to write, the password
// alone; and address and password only if he has just signed in or knows the password that there is.
func ofOneself(ctx context.Context, tx *pg.Tx, b *adminBody, refusal error) error {
	if refusal != nil && !problem.Is(refusal, problem.Forbidden) {
		return refusal
	}
	id := principal.From(ctx).Principal.Owner.ID
	var others, email, known, none bool
	err := tx.QueryRow(ctx, `
		SELECT username <> $2 OR receive_copies <> $3 OR disabled <> $4, coalesce(email, '') <> $5, coalesce(password_hash = $6, false), password_hash IS NULL
		FROM admin WHERE id = $1`, id, b.Username, b.ReceiveCopies, b.Disabled, b.Email, b.confirmed).Scan(&others, &email, &known, &none)
	switch {
	case err != nil:
		return fmt.Errorf("read admin %d: %w", id, err)
	case refusal != nil && (others || email):
		return problem.New(problem.Forbidden, "%s So the own password is all that can be changed.", problem.From(refusal).Detail)
	case !email && b.Password.IsZero(), b.fresh, known, none && refusal == nil:
		return nil
	}
	return problem.Member("/current_password", "wrong", "must be the current password")
}

func (s *Service) deleteAdmin(ctx context.Context, tx *pg.Tx, admin *Admin) error {
	c, err := callerOf(ctx, tx)
	if err != nil {
		return err
	}
	if err := s.mayWrite(ctx, tx, c, principal.Owner{Type: principal.Admin, ID: admin.ID}); err != nil {
		return err
	}
	last, err := lastAdmin(ctx, tx, admin.ID)
	if err != nil {
		return err
	}
	if last {
		return problem.New(problem.Conflict, "Admin %d is the last one who holds users.admins write.", admin.ID)
	}
	names, err := endAccount(ctx, tx, principal.Owner{Type: principal.Admin, ID: admin.ID})
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, "DELETE FROM admin WHERE id = $1", admin.ID)
	s.revoke(tx, append(names, adminName(admin.ID))...)
	return err
}

// administers is what an admin holds who can give and take what others hold.
var administers = principal.Grant(permission.UsersAdmins, permission.Write)

// lastAdmin tells whether nobody who is not disabled would hold users.admins write without this admin. It is asked under
// lockAccounts.
func lastAdmin(ctx context.Context, tx *pg.Tx, id int64) (last bool, err error) {
	err = tx.QueryRow(ctx, `
		SELECT permissions @> ARRAY[$2] AND NOT disabled AND NOT EXISTS (SELECT FROM admin o WHERE o.id <> $1 AND o.permissions @> ARRAY[$2] AND NOT o.disabled)
		FROM admin WHERE id = $1`, id, administers.Names()[0]).Scan(&last)
	if err != nil {
		return false, fmt.Errorf("look for other admins: %w", err)
	}
	return last, nil
}
