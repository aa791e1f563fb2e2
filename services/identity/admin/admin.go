// Package admin manages admins and their permissions, and creates the first admin of an installation.
package admin

import (
	"context"
	"strings"

	"github.com/ironplane/ironplane/pkg/auth/account"
	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/keycache"
	"github.com/ironplane/ironplane/pkg/auth/lockout"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/settings"
	"github.com/ironplane/ironplane/services/identity/access"
	"github.com/ironplane/ironplane/services/identity/keys"
	"github.com/ironplane/ironplane/services/identity/person"
)

// Service answers requests about admins.
type Service struct {
	DB       *pg.DB
	Entries  *keycache.Store
	Hasher   account.Hasher
	Lockouts *lockout.Lockouts
	Settings *settings.Follower
	Rules    *access.Rules
	People   *person.Directory
}

// Routes returns the operations on admins and their permissions.
func (s *Service) Routes() []rest.Route { return append(s.adminRoutes(), s.permissionRoutes()...) }

// Admin is an account of a person who runs the installation.
type Admin struct {
	rest.Versioned
	ID            int64          `json:"id" db:"id"`
	Username      string         `json:"username" db:"username" doc:"The name that the admin signs in with."`
	Email         string         `json:"email,omitempty" db:"email"`
	Name          string         `json:"name" db:"name" doc:"The username."`
	ReceiveCopies bool           `json:"receive_copies" db:"receive_copies" doc:"Whether the admin gets blind copies of mails to clients."`
	Disabled      bool           `json:"disabled" db:"disabled" ext:"true" doc:"Whether the account is disabled. All of its keys are refused until it is enabled again."`
	CreatedAt     rest.Timestamp `json:"created_at" db:"created_at"`
}

// View reads admins.
var View = pg.NewView[Admin]("admin_view")

// Target returns an admin as the target of a record.
func Target(admin *Admin) pg.Target {
	return pg.Target{Type: "admin", Noun: "admin", ID: admin.ID, Name: admin.Username, Version: admin.Version}
}

// adminBody is the body by which an admin is created or edited.
type adminBody struct {
	Username        string        `json:"username" db:"username" max:"64" example:"anna" doc:"The name to sign in with: letters, digits and . _ @ + -. Left out on create: the part of email before the @."`
	Email           string        `json:"email" db:"email" required:"create" format:"email" example:"anna@example.com" doc:"The email address. No other admin may have it, in any case."`
	Password        secret.String `json:"password" required:"create" max:"1024" example:"a long walk in the rain" doc:"The password. It must be hard to guess and as long as the setting security.password_length asks for (12 characters). Empty: no login by password on create, unchanged on edit."`
	CurrentPassword secret.String `json:"current_password" max:"1024" ext:"true" transient:"true" example:"a long walk in the rain" doc:"The caller's current password. Needed to change one's own email or password with a key, or with a session that began more than ten minutes ago. Not needed without a password."`
	ReceiveCopies   bool          `json:"receive_copies" db:"receive_copies" example:"true" doc:"Whether the admin gets blind copies of mails to clients."`
	Disabled        bool          `json:"disabled" db:"disabled" ext:"true" example:"false" doc:"Whether the account is disabled. All of its keys are refused until it is enabled again."`

	site      settings.Values // set by preparePasswords
	hash      *string         // of Password; nil: none was sent, or the caller may not set it
	confirmed *string         // the hash of the caller's password; nil: CurrentPassword does not match it
	isFresh   bool            // the caller has signed in within credentials.FreshTime
}

// Resolve checks what the tags cannot express.
func (b *adminBody) Resolve(invalid *problem.Fields) {
	if strings.ContainsFunc(b.Username, func(r rune) bool { return !isUsernameRune(r) }) {
		invalid.Add("/username", "invalid", "can have only letters, digits and . _ @ + -")
	}
	if !b.Password.IsZero() {
		account.CheckPassword(b.Password, b.site, invalid)
	}
	if b.hash != nil { // estimating the strength takes time, and is done only for callers that may set it
		account.CheckStrength(b.Password, b.site, []string{b.Username, b.Email}, invalid)
	}
}

// adminRoutes returns the operations on admins.
func (s *Service) adminRoutes() []rest.Route {
	return rest.Resource[Admin, adminBody]{
		Path:        "/admin",
		ID:          "admin_id",
		Noun:        "admin",
		Retry:       rest.RetryRefused,
		EditExample: `{"username": "anna.k", "receive_copies": false}`,
		Guard:       guard.ForCredentials(guard.Has(permission.UsersAdmins)),
		OwnGuard:    guard.ForCredentials(guard.HasOrSelf(permission.UsersAdmins, principal.Admin)),
		Table:       "admin",
		View:        "admin_view",
		List: rest.ListOptions{
			Search:  rest.SearchIn("search"),
			Sorts:   map[string]string{"username": "username", "created_at": "created_at"},
			Filters: map[string]string{"disabled": "disabled", "email": "lower(email)", "username": "lower(username)"},
		},
		Prepare: s.preparePasswords,
		Allow:   func(ctx context.Context, tx *pg.Tx, _ []int64, _ *adminBody) error { return access.Allow(ctx, tx) },
		Insert:  s.insert,
		Update:  s.update,
		Delete:  s.deleteAdmin,
	}.Routes()
}

// insert stores a new admin. It chooses a username if the body has none.
func (s *Service) insert(ctx context.Context, tx *pg.Tx, b *adminBody) (id int64, err error) {
	if b.Username == "" {
		if b.Username, err = freeUsername(ctx, tx, b.Email); err != nil {
			return 0, err
		}
	}
	err = tx.QueryRow(ctx, "INSERT INTO admin (username, email, password_hash, receive_copies, disabled) "+
		"VALUES ($1, $2, $3, $4, $5) RETURNING id",
		b.Username, b.Email, b.hash, b.ReceiveCopies, b.Disabled).
		Scan(&id)
	return id, err
}

// update stores an edited admin. It refuses to disable the last admin that can edit permissions.
func (s *Service) update(ctx context.Context, tx *pg.Tx, id int64, b *adminBody) error {
	if b.Username == "" {
		return problem.Member("/username", "required", "is required and cannot be empty")
	}
	c, err := access.ReadCaller(ctx, tx)
	if err != nil {
		return err
	}
	account := principal.Owner{Type: principal.Admin, ID: id}
	err = s.Rules.CheckWrite(ctx, tx, c, account)
	if c.Owner == account {
		err = checkOwnEdit(ctx, tx, b, err)
	}
	if err != nil {
		return err
	}
	if b.Disabled {
		last, err := IsLast(ctx, tx, id)
		if err != nil {
			return err
		}
		if last {
			return problem.Member("/disabled", "last_admin", "cannot be set for the last admin with users.admins write")
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
	keys.Revoke(tx, s.Entries, append(names, EntryName(id))...)
	return nil
}

// deleteAdmin deletes an admin with its keys. It refuses to delete the last admin that can edit permissions.
func (s *Service) deleteAdmin(ctx context.Context, tx *pg.Tx, admin *Admin) error {
	c, err := access.ReadCaller(ctx, tx)
	if err != nil {
		return err
	}
	if err := s.Rules.CheckWrite(ctx, tx, c, principal.Owner{Type: principal.Admin, ID: admin.ID}); err != nil {
		return err
	}
	last, err := IsLast(ctx, tx, admin.ID)
	if err != nil {
		return err
	}
	if last {
		return problem.New(problem.Conflict, "Admin %d is the last one with users.admins write.", admin.ID)
	}
	names, err := keys.EndAccount(ctx, tx, principal.Owner{Type: principal.Admin, ID: admin.ID})
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, "DELETE FROM admin WHERE id = $1", admin.ID)
	keys.Revoke(tx, s.Entries, append(names, EntryName(admin.ID))...)
	return err
}
