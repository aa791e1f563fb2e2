package identity

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/account"
	"github.com/ironplane/ironplane/pkg/auth/credentials"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/runtime/mesh"
	"github.com/ironplane/ironplane/pkg/secret"
)

// personOf is who has an account now; nobody where it is gone.
func (s *Service) personOf(ctx context.Context, owner principal.Owner) (p person, err error) {
	if owner.Type == principal.Client {
		p.Account, err = s.askClient(ctx, url.Values{"id": {strconv.FormatInt(owner.ID, 10)}})
	} else {
		p.Account, err = readAdmin(ctx, s.db, "id = $1", owner.ID)
	}
	if p.ID != 0 {
		p.owner = owner
	}
	return p, err
}

// askClient asks the clients service who a client is; the zero Account: there is none.
func (s *Service) askClient(ctx context.Context, which url.Values) (a credentials.Account, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	err = s.peers.Ask(ctx, "clients", credentials.Path+"?"+which.Encode(), &a)
	if errors.Is(err, mesh.ErrAway) {
		err = problem.New(problem.Unavailable, "Clients cannot be looked up right now.").Because(err)
	}
	return a, err
}

// readAdmin reads an admin; the zero Account: there is none.
func readAdmin(ctx context.Context, q pg.Querier, which string, arg any) (a credentials.Account, err error) {
	err = q.QueryRow(ctx, "SELECT id, username, coalesce(email, ''), coalesce(password_hash, ''), disabled FROM admin WHERE "+which, arg).
		Scan(&a.ID, &a.Name, &a.Email, &a.Hash, &a.Disabled)
	if errors.Is(err, pgx.ErrNoRows) {
		return a, nil
	}
	return a, err
}

// notOperators is which keys neither who holds users.clients has made nor somebody with one of these.
const notOperators = "coalesce(NOT bound @> ARRAY['users.clients write'], true)"

// provesMailbox tells whether a proof that the mailbox is his claims the account, or is the first one of a new address: then what others
// may
// have made before ends.
func (p person) provesMailbox() bool {
	return p.owner.Type == principal.Client && (!p.Claimed || p.Unproven)
}

// setAdminPassword changes an admin's password, unless it was changed in the meantime.
func setAdminPassword(ctx context.Context, tx *pg.Tx, p person, hash string) error {
	var version int64
	err := tx.QueryRow(ctx, "UPDATE admin SET version = version + 1, password_hash = $3 WHERE id = $1 AND password_hash = $2 AND NOT disabled RETURNING version", p.ID, p.Hash, hash).
		Scan(&version)
	if err != nil {
		return err
	}
	of := p.target()
	of.Version = version
	tx.Record(
		pg.Record{
			Kind:    "admin",
			Action:  pg.Edited,
			Targets: []pg.Target{of},
			Before:  secret.Marked(struct{}{}, "password"),
			After:   secret.Marked(struct{}{}, "password"),
		},
	)
	return nil
}

// clientTime is how long the clients service may take to do what it is told, before the caller is answered.
const clientTime = 10 * time.Second

// setClientPassword has the clients service change a client's password. Who is answered can sign in with it.
func (s *Service) setClientPassword(ctx context.Context, tx *pg.Tx, p person, hash secret.String) error {
	if err := s.toClients.Send(
		ctx,
		tx,
		credentials.ChangeKind,
		credentials.Change{Client: p.ID, Version: p.Version, What: credentials.Password, Proven: true},
		hash,
	); err != nil {
		return err
	}
	tx.AfterCommit(func(ctx context.Context) error {
		is, err := s.awaitClient(ctx, p, func(is credentials.Account) bool { return is.Version != p.Version })
		if err == nil && is.Hash != hash.Reveal() {
			err = problem.New(problem.Conflict, "The account was changed at the same time, and has not got this password.")
		}
		return err
	})
	return nil
}

// tellClaimed tells the clients service that an account has shown itself to be who it is for. From the answer on it is its own.
func (s *Service) tellClaimed(ctx context.Context, tx *pg.Tx, p person, what string) error {
	if p.owner.Type != principal.Client || p.SignedIn || p.Claimed && what != credentials.SignedIn {
		return nil
	}
	if err := s.toClients.Send(
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
			_, err := s.awaitClient(ctx, p, func(is credentials.Account) bool { return is.Claimed || is.Version != p.Version })
			return err
		})
	}
	return nil
}

// awaitClient waits until the clients service has done what it was told.
func (s *Service) awaitClient(ctx context.Context, p person, done func(credentials.Account) bool) (is credentials.Account, err error) {
	ctx, cancel := context.WithTimeout(ctx, clientTime)
	defer cancel()
	for tick := time.Tick(10 * time.Millisecond); ; {
		if is, err = s.askClient(ctx, url.Values{"id": {strconv.FormatInt(p.ID, 10)}}); err == nil && (is.ID == 0 || done(is)) {
			return is, nil
		}
		select {
		case <-tick:
		case <-ctx.Done():
			return is, problem.New(problem.Unavailable, "The account is changed as soon as that can be done.").Because(errors.Join(err, ctx.Err()))
		}
	}
}

// endLinks ends the links and codes that are good for an account.
func endLinks(ctx context.Context, tx *pg.Tx, of principal.Owner) error {
	for _, table := range []string{"password_reset", "sso_code", "verify_code"} {
		if _, err := tx.Exec(ctx, "DELETE FROM "+table+" WHERE owner_type = $1 AND owner_id = $2", of.Type, of.ID); err != nil {
			return fmt.Errorf("end the links of %s: %w", of.URL(), err)
		}
	}
	if of.Type == principal.Admin {
		if _, err := tx.Exec(ctx, "DELETE FROM openid_login WHERE admin_id = $1", of.ID); err != nil {
			return fmt.Errorf("end the sign-ins of %s: %w", of.URL(), err)
		}
	}
	return nil
}

// rehash hashes the password of who signs in anew, where it was hashed with other parameters than passwords are now.
func (s *Service) rehash(ctx context.Context, p *person, password secret.String) error {
	if !account.Outdated(p.Hash) {
		return nil
	}
	hash, err := s.hasher.Hash(ctx, password)
	if problem.Is(err, problem.Unavailable) { // there is time for it at the next login
		return nil
	}
	if err != nil {
		return err
	}
	err = s.db.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("it is the same password")
		if p.owner.Type == principal.Client {
			return s.toClients.Send(
				ctx,
				tx,
				credentials.ChangeKind,
				credentials.Change{Client: p.ID, Version: p.Version, What: credentials.Rehashed},
				secret.New(hash),
			)
		}
		changed, err := tx.Exec(ctx, "UPDATE admin SET password_hash = $3 WHERE id = $1 AND password_hash = $2", p.ID, p.Hash, hash)
		if err == nil && changed.RowsAffected() == 1 {
			p.Hash = hash
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("hash a password anew: %w", err)
	}
	return nil
}
