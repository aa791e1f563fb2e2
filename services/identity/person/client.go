package person

import (
	"context"
	"errors"
	"net/url"
	"strconv"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/credentials"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/secret"
)

// clientTimeout bounds how long a request waits until the clients service has applied a change.
const clientTimeout = 10 * time.Second

// SetClientPassword has the clients service change a client's password. The response waits until the client can sign in with it.
func (d *Directory) SetClientPassword(ctx context.Context, tx *pg.Tx, p Person, hash secret.String) error {
	if err := d.ToClients.Send(
		ctx,
		tx,
		credentials.ChangeKind,
		credentials.Change{Client: p.ID, Version: p.Version, Action: credentials.Password, Proven: true},
		hash,
	); err != nil {
		return err
	}
	tx.AfterCommit(func(ctx context.Context) error {
		account, err := d.awaitClient(ctx, p, func(account credentials.Account) bool { return account.Version != p.Version })
		if err == nil && account.Hash != hash.Reveal() {
			err = problem.New(problem.Conflict, "The account was changed at the same time. The password was not set.")
		}
		return err
	})
	return nil
}

// Claim tells the clients service that a client has taken over its account. change is how: a constant of package credentials. The
// response waits until the account counts as claimed.
func (d *Directory) Claim(ctx context.Context, tx *pg.Tx, p Person, change string) error {
	if p.Owner.Type != principal.Client || p.SignedIn || p.Claimed && change != credentials.SignedIn {
		return nil
	}
	if err := d.ToClients.Send(
		ctx,
		tx,
		credentials.ChangeKind,
		credentials.Change{Client: p.ID, Version: p.Version, Action: change},
		secret.String{},
	); err != nil {
		return err
	}
	if !p.Claimed {
		tx.AfterCommit(func(ctx context.Context) error {
			_, err := d.awaitClient(ctx, p, func(account credentials.Account) bool { return account.Claimed || account.Version != p.Version })
			return err
		})
	}
	return nil
}

// RehashClient has the clients service store another hash of a client's password.
func (d *Directory) RehashClient(ctx context.Context, tx *pg.Tx, p Person, hash secret.String) error {
	change := credentials.Change{Client: p.ID, Version: p.Version, Action: credentials.Rehashed}
	return d.ToClients.Send(ctx, tx, credentials.ChangeKind, change, hash)
}

// awaitClient waits until the clients service has applied a change. It also returns if the client has been deleted.
func (d *Directory) awaitClient(
	ctx context.Context,
	p Person,
	done func(credentials.Account) bool,
) (account credentials.Account, err error) {
	ctx, cancel := context.WithTimeout(ctx, clientTimeout)
	defer cancel()
	for tick := time.Tick(10 * time.Millisecond); ; {
		if account, err = d.fetchClient(ctx, url.Values{"id": {strconv.FormatInt(p.ID, 10)}}); err == nil && (account.ID == 0 || done(account)) {
			return account, nil
		}
		select {
		case <-tick:
		case <-ctx.Done():
			return account, problem.New(problem.Unavailable, "The change was accepted, and takes effect as soon as possible.").
				Because(errors.Join(err, ctx.Err()))
		}
	}
}

// IsAbove reports whether the caller is a client that reaches another client by sub links. The gateway asks that again for each
// request of a session in which one acts for the other.
func (d *Directory) IsAbove(ctx context.Context, owner principal.Owner) (bool, error) {
	caller := principal.FromContext(ctx).Principal
	if caller.Owner.Type != principal.Client || owner.Type != principal.Client || caller.Owner == owner || caller.Acting {
		return false, nil
	}
	found, err := credentials.AskReach(ctx, d.Peers, caller.Owner.ID, owner.ID)
	return found.Whole, err
}
