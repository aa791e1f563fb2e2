// Package person looks up the admins and clients that sign in, and mails them about changes of their accounts. It asks the clients
// service for clients.
package person

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/credentials"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/events"
	"github.com/ironplane/ironplane/pkg/mail"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/runtime/mesh"
)

// Person is the admin or client behind an account. The zero Person is nobody.
type Person struct {
	Owner principal.Owner
	credentials.Account
}

// Exists reports whether there is such a person.
func (p Person) Exists() bool { return p.Owner.ID != 0 }

// Target returns the account as the target of a record.
func (p Person) Target() pg.Target {
	return pg.Target{Type: string(p.Owner.Type), Noun: string(p.Owner.Type), ID: p.Owner.ID, Name: p.Name}
}

// MailTo returns the recipient of mails to the account.
func (p Person) MailTo() (to mail.To) {
	to.To.Name, to.To.First, to.To.Last, to.To.Email, to.To.Language = p.Name, p.First, p.Last, p.Email, p.Language
	return to
}

// HasUnprovenMailbox reports whether the client has not yet proved that it reads the mail to its present address. The proof ends the
// keys that others may have created before.
func (p Person) HasUnprovenMailbox() bool {
	return p.Owner.Type == principal.Client && (!p.Claimed || p.Unproven)
}

// CanReset reports whether the account may choose a new password by a link. An admin without a password stays without one.
func (p Person) CanReset() bool {
	return p.Exists() && !p.Disabled && (p.Owner.Type == principal.Client || p.Hash != "")
}

// Target returns an account as the target of a record. A nil name is empty.
func Target(owner principal.Owner, name *string) pg.Target {
	t := pg.Target{Type: string(owner.Type), Noun: string(owner.Type), ID: owner.ID}
	if name != nil {
		t.Name = *name
	}
	return t
}

// Directory looks up people, and tells them about changes of their accounts.
type Directory struct {
	DB        *pg.DB
	Peers     mesh.Peers
	Mails     *events.Outbox // to the system service, which sends them
	ToClients *events.Outbox
}

// askTimeout bounds how long the clients service may take to answer.
const askTimeout = 3 * time.Second

// Find returns the person with this email address or, among admins, this username. It returns the zero Person if there is none,
// after the same time.
func (d *Directory) Find(ctx context.Context, t principal.OwnerType, email, username string) (p Person, err error) {
	switch {
	case t == principal.Client:
		p.Account, err = d.fetchClient(ctx, url.Values{"email": {email}})
	case email != "":
		p.Account, err = ReadAdmin(ctx, d.DB, "lower(email) = lower($1)", email)
	default:
		p.Account, err = ReadAdmin(ctx, d.DB, "lower(username) = lower($1)", username)
	}
	if err != nil {
		return Person{}, fmt.Errorf("look up an account: %w", err)
	}
	if p.ID != 0 {
		p.Owner = principal.Owner{Type: t, ID: p.ID}
	}
	return p, nil
}

// Get returns the person behind an account, or the zero Person if the account has been deleted.
func (d *Directory) Get(ctx context.Context, owner principal.Owner) (p Person, err error) {
	if owner.Type == principal.Client {
		p.Account, err = d.fetchClient(ctx, url.Values{"id": {strconv.FormatInt(owner.ID, 10)}})
	} else {
		p.Account, err = ReadAdmin(ctx, d.DB, "id = $1", owner.ID)
	}
	if p.ID != 0 {
		p.Owner = owner
	}
	return p, err
}

// fetchClient asks the clients service for a client. It returns the zero Account if there is none.
func (d *Directory) fetchClient(ctx context.Context, query url.Values) (a credentials.Account, err error) {
	ctx, cancel := d.Peers.Limit(ctx, askTimeout)
	defer cancel()
	err = d.Peers.Ask(ctx, "clients", credentials.Path+"?"+query.Encode(), &a)
	if errors.Is(err, mesh.ErrUnavailable) {
		err = problem.New(problem.Unavailable, "Clients are unavailable right now. Try again later.").Because(err)
	}
	return a, err
}

// ReadAdmin reads the admin that meets a condition with the argument $1. It returns the zero Account if there is none.
func ReadAdmin(ctx context.Context, q pg.Querier, condition string, arg any) (a credentials.Account, err error) {
	err = q.QueryRow(ctx, "SELECT id, username, coalesce(email, ''), coalesce(password_hash, ''), disabled FROM admin WHERE "+condition, arg).
		Scan(&a.ID, &a.Name, &a.Email, &a.Hash, &a.Disabled)
	if errors.Is(err, pgx.ErrNoRows) {
		return a, nil
	}
	return a, err
}
