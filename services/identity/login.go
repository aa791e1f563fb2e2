package identity

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/account"
	"github.com/ironplane/ironplane/pkg/auth/credentials"
	"github.com/ironplane/ironplane/pkg/auth/lockout"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/mail"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/secret"
)

// person is an admin or a client as somebody who signs in; the zero person is nobody.
type person struct {
	owner principal.Owner
	credentials.Account
}

// exists tells whether it is somebody.
func (p person) exists() bool { return p.owner.ID != 0 }

func (p person) target() pg.Target {
	return pg.Target{Type: string(p.owner.Type), Noun: string(p.owner.Type), ID: p.owner.ID, Name: p.Name}
}

func (p person) to() (to mail.To) {
	to.To.Name, to.To.First, to.To.Last, to.To.Email = p.Name, p.First, p.Last, p.Email
	return to
}

// find finds who has this address or, of admins, this username. It takes the same whether there is somebody.
func (s *Service) find(ctx context.Context, t principal.OwnerType, email, username string) (p person, err error) {
	switch {
	case t == principal.Client:
		p.Account, err = s.askClient(ctx, url.Values{"email": {email}})
	case email != "":
		p.Account, err = readAdmin(ctx, s.db, "lower(email) = lower($1)", email)
	default:
		p.Account, err = readAdmin(ctx, s.db, "lower(username) = lower($1)", username)
	}
	if err != nil {
		return person{}, fmt.Errorf("look for who signs in: %w", err)
	}
	if p.ID != 0 {
		p.owner = principal.Owner{Type: t, ID: p.ID}
	}
	return p, nil
}

// askTime is how long another service may take to answer.
const askTime = 3 * time.Second

// networkOf is what counts as one place: an IPv4 address, or a /64.
func networkOf(ctx context.Context) netip.Prefix {
	ip := address(ctx)
	bits := 32
	if ip.Is6() {
		bits = 64
	}
	network, _ := ip.Prefix(bits)
	return network
}

// errNotSignedIn is the one answer to who names nobody, or has not the password.
func errNotSignedIn() error {
	return problem.New(problem.Unauthenticated, "There is no such account with this password.")
}

// knock compares a password, and answers whose it is. Whether nobody has the name, there is no password, the account is disabled or the
// password is another one, is answered alike, and takes the same.
func (s *Service) knock(ctx context.Context, t principal.OwnerType, email, username string, password secret.String) (p person, err error) {
	if p, err = s.find(ctx, t, email, username); err != nil {
		return person{}, err
	}
	guess := lockout.Guess{Name: nameOf(t, email, username), Address: principal.From(ctx).IP}
	err = s.db.QueryRow(ctx, "SELECT EXISTS (SELECT FROM signed_in_from WHERE owner_type = $1 AND owner_id = $2 AND network = $3 AND last_at > now() - interval '30 days')", t, p.ID, networkOf(ctx)).
		Scan(&guess.Known)
	if err != nil {
		return person{}, fmt.Errorf("look where somebody signed in: %w", err)
	}
	hash := p.Hash
	if hash == "" {
		hash = account.Nobodys
	}
	compare := func() (bool, error) {
		matches, err := s.hasher.Matches(ctx, password, hash)
		return matches && p.exists() && !p.Disabled && p.Hash != "", err
	}
	right, err := s.lockouts.Try(ctx, guess, func() (bool, error) {
		if guess.Known {
			return compare()
		}
		return s.passwords.Do(ctx, compare)
	})
	if err != nil {
		return person{}, fmt.Errorf("compare a password: %w", err)
	}
	if right {
		err := s.rehash(ctx, &p, password)
		return p, err
	}
	if err := s.db.InTx(ctx, func(tx *pg.Tx) error { return noteAttempt(ctx, tx, attempt{what: refusedLogin, of: p}) }); err != nil {
		return person{}, err
	}
	return person{}, errNotSignedIn()
}

// nameOf is by what guesses at a name are counted. It may be a password that somebody typed at the wrong place, so it is hashed.
func nameOf(t principal.OwnerType, email, username string) string {
	sum := sha256.Sum256([]byte(strings.ToLower(fmt.Sprintf("%s\x00%s\x00%s", t, email, username))))
	return hex.EncodeToString(sum[:16])
}

// signIn begins the session of who has proved who he is, unless that was changed in the meantime.
func (s *Service) signIn(ctx context.Context, tx *pg.Tx, p person) (APIKey, error) {
	if p.owner.Type == principal.Admin {
		var same bool
		err := tx.QueryRow(ctx, "SELECT coalesce(password_hash, '') = $2 AND NOT disabled FROM admin WHERE id = $1 FOR SHARE", p.ID, p.Hash).
			Scan(&same)
		if errors.Is(err, pgx.ErrNoRows) || err == nil && !same {
			return APIKey{}, errNotSignedIn()
		}
		if err != nil {
			return APIKey{}, fmt.Errorf("look whether the password is still the same: %w", err)
		}
	} else if err := s.clients.Hold(ctx, tx, p.ID, "/email"); problem.Is(err, problem.Invalid) {
		return APIKey{}, errNotSignedIn()
	} else if err != nil {
		return APIKey{}, err
	}
	key, err := s.begin(ctx, tx, newSession{kind: login, owner: p.owner, credentials: p.Version})
	if err != nil {
		return key, err
	}
	if err := s.tellClaimed(ctx, tx, p, credentials.SignedIn); err != nil {
		return key, err
	}
	var isNew bool
	err = tx.QueryRow(ctx, `
		INSERT INTO signed_in_from (owner_type, owner_id, network) VALUES ($1, $2, $3)
		ON CONFLICT (owner_type, owner_id, network) DO UPDATE SET last_at = now() RETURNING xmax = 0`, p.owner.Type, p.ID, networkOf(ctx)).Scan(&isNew)
	if err != nil {
		return key, fmt.Errorf("note where somebody signed in: %w", err)
	}
	if isNew {
		if err := s.tell(ctx, tx, p, "Somebody signed in to the account from an address that it was not used from before."); err != nil {
			return key, err
		}
	}
	tx.Record(
		pg.Record{
			Kind:    "auth.session",
			Action:  "began",
			Targets: []pg.Target{p.target(), keyTarget(&key)},
			After:   map[string]any{"expires_at": key.ExpiresAt},
		},
	)
	return key, nil
}

// mostMails is how many mails about itself an account gets within an hour.
const mostMails = 10

// tell tells the owner of an account by mail what its security hangs on.
func (s *Service) tell(ctx context.Context, tx *pg.Tx, p person, changes ...string) error {
	if p.Email == "" {
		return nil
	}
	if may, err := mayMail(ctx, tx, p.owner); err != nil || !may {
		return err
	}
	return mail.Send(ctx, tx, s.outbox, p.owner.URL(), p.to(), changed(ctx, p.Name, changes))
}

// tellOwner is tell where of a client, whom another service knows, no more is known than which.
func (s *Service) tellOwner(ctx context.Context, tx *pg.Tx, owner principal.Owner, changes ...string) error {
	if owner.Type == principal.Admin {
		admin, err := readAdmin(ctx, tx, "id = $1", owner.ID)
		if err != nil {
			return fmt.Errorf("read admin %d: %w", owner.ID, err)
		}
		return s.tell(ctx, tx, person{owner, admin}, changes...)
	}
	if may, err := mayMail(ctx, tx, owner); err != nil || !may {
		return err
	}
	return s.toClients.Send(
		ctx,
		tx,
		mail.ChangedKind,
		mail.ClientChanged{Client: owner.ID, Content: changed(ctx, "", changes)},
		secret.String{},
	)
}

// mayMail counts a mail to an account about itself, unless there were too many.
func mayMail(ctx context.Context, tx *pg.Tx, to principal.Owner) (bool, error) {
	if err := tx.Lock(ctx, "mails of "+string(to.Type), to.ID); err != nil { // what is told at the same time is counted, too
		return false, err
	}
	mailed, err := tx.Exec(ctx, `
		INSERT INTO account_mail (owner_type, owner_id) SELECT $1, $2
		WHERE (SELECT count(*) FROM account_mail WHERE owner_type = $1 AND owner_id = $2 AND at > now() - interval '1 hour') < $3`, to.Type, to.ID, mostMails)
	if err != nil {
		return false, fmt.Errorf("count an account's mails: %w", err)
	}
	return mailed.RowsAffected() > 0, nil
}

// changed says what the caller did, who has this name where no key says.
func changed(ctx context.Context, name string, changes []string) mail.AccountChanged {
	if p := principal.From(ctx).Principal; p != nil {
		name = p.Name
	}
	return mail.AccountChanged{Changes: changes, By: name, At: time.Now().UTC().Truncate(time.Second), IP: address(ctx).String()}
}
