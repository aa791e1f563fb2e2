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

// clientTimeout bounds how long an answer waits for the clients service to make a change.
const clientTimeout = 10 * time.Second

// SetClientPassword has the clients service change a client's password. The answer waits until the client can sign in with it.
func (d *Directory) SetClientPassword(ctx context.Context, tx *pg.Tx, p Person, hash secret.String) error {
	if err := d.ToClients.Send(
		ctx,
		tx,
		credentials.ChangeKind,
		credentials.Change{Client: p.ID, Version: p.Version, What: credentials.Password, Proven: true},
		hash,
	); err != nil {
		return err
	}
	tx.AfterCommit(func(ctx context.Context) error {
		is, err := d.awaitClient(ctx, p, func(is credentials.Account) bool { return is.Version != p.Version })
		if err == nil && is.Hash != hash.Reveal() {
			err = problem.New(problem.Conflict, "The account was changed at the same time, and has not got this password.")
		}
		return err
	})
	return nil
}

// Claim tells the clients service that a client has taken over its account, and how (a constant of credentials). The answer waits
// until the account counts as claimed.
func (d *Directory) Claim(ctx context.Context, tx *pg.Tx, p Person, what string) error {
	if p.Owner.Type != principal.Client || p.SignedIn || p.Claimed && what != credentials.SignedIn {
		return nil
	}
	if err := d.ToClients.Send(
		ctx,
		tx,
		credentials.ChangeKind,
		credentials.Change{Client: p.ID, Version: p.Version, What: what},
		secret.String{},
	); err != nil {
		return err
	}
	if !p.Claimed {
		tx.AfterCommit(func(ctx context.Context) error {
			_, err := d.awaitClient(ctx, p, func(is credentials.Account) bool { return is.Claimed || is.Version != p.Version })
			return err
		})
	}
	return nil
}

// RehashClient has the clients service store another hash of a client's password.
func (d *Directory) RehashClient(ctx context.Context, tx *pg.Tx, p Person, hash secret.String) error {
	change := credentials.Change{Client: p.ID, Version: p.Version, What: credentials.Rehashed}
	return d.ToClients.Send(ctx, tx, credentials.ChangeKind, change, hash)
}

// awaitClient waits until the clients service has made a change. It is done, too, where the client is gone.
func (d *Directory) awaitClient(ctx context.Context, p Person, done func(credentials.Account) bool) (is credentials.Account, err error) {
	ctx, cancel := context.WithTimeout(ctx, clientTimeout)
	defer cancel()
	for tick := time.Tick(10 * time.Millisecond); ; {
		if is, err = d.askClient(ctx, url.Values{"id": {strconv.FormatInt(p.ID, 10)}}); err == nil && (is.ID == 0 || done(is)) {
			return is, nil
		}
		select {
		case <-tick:
		case <-ctx.Done():
			return is, problem.New(problem.Unavailable, "The account is changed as soon as that can be done.").Because(errors.Join(err, ctx.Err()))
		}
	}
}
