package login

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/ironplane/ironplane/pkg/auth/lockout"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/services/identity/person"
	"github.com/ironplane/ironplane/services/identity/session"
)

// checkPassword compares a password, and returns the account's person. The error and the time are the same for an unknown name, an
// account without a password, a disabled account and a wrong password.
func (s *Logins) checkPassword(ctx context.Context, b *keyRequest) (p person.Person, err error) {
	t := b.accountType()
	if p, err = s.People.Find(ctx, t, b.Email, b.Username); err != nil {
		return person.Person{}, err
	}
	guess := lockout.Guess{
		Name:        guessName(p, t, b.Email, b.Username),
		Address:     principal.FromContext(ctx).IP,
		KnownDevice: s.Sessions.IsKnownDevice(p, b.Device),
	}
	b.knownDevice = guess.KnownDevice
	hash := p.Hash
	if hash == "" {
		hash = s.Hasher.DummyHash()
	}
	compare := func() (bool, error) {
		matches, err := s.Hasher.Matches(ctx, b.Password, hash)
		return matches && p.Exists() && !p.Disabled && p.Hash != "", err
	}
	matches, err := s.Lockouts.Try(ctx, guess, func() (bool, error) {
		if guess.KnownDevice {
			return compare()
		}
		return s.Passwords.Do(ctx, guess.Address, compare)
	})
	if err != nil {
		return person.Person{}, fmt.Errorf("compare a password: %w", err)
	}
	if matches {
		err := s.rehash(ctx, &p, b.Password)
		return p, err
	}
	if err := s.DB.InTx(ctx, func(tx *pg.Tx) error { return storeAttempt(ctx, tx, attempt{kind: refusedLogin, person: p}) }); err != nil {
		return person.Person{}, err
	}
	return person.Person{}, session.ErrNotSignedIn()
}

// guessName returns the name by which guesses at an account are counted. It is the account that was found, however its name is
// written. An unknown name is hashed, because people sometimes type their password as the name. Only the name that Find looks up
// counts: another member would give each guess a count of its own.
func guessName(p person.Person, t principal.OwnerType, email, username string) string {
	if p.Exists() {
		return "login to " + p.Owner.URL()
	}
	kind, name := "email", email
	if email == "" {
		kind, name = "username", username
	}
	sum := sha256.Sum256([]byte(fmt.Sprintf("%s\x00%s\x00%s", t, kind, strings.ToLower(name))))
	return hex.EncodeToString(sum[:16])
}

// rehash hashes the password again if its hash has outdated parameters.
func (s *Logins) rehash(ctx context.Context, p *person.Person, password secret.String) error {
	if !s.Hasher.IsOutdated(p.Hash) {
		return nil
	}
	hash, err := s.Hasher.Hash(ctx, password)
	if problem.Is(err, problem.Unavailable) { // the next login tries again
		return nil
	}
	if err != nil {
		return err
	}
	err = s.DB.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("it is the same password")
		if p.Owner.Type == principal.Client {
			return s.People.RehashClient(ctx, tx, *p, secret.New(hash))
		}
		changed, err := tx.Exec(ctx, "UPDATE admin SET password_hash = $3 WHERE id = $1 AND password_hash = $2", p.ID, p.Hash, hash)
		if err == nil && changed.RowsAffected() == 1 {
			p.Hash = hash
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("rehash a password: %w", err)
	}
	return nil
}
