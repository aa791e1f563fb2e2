package keys

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/apikey"
	"github.com/ironplane/ironplane/pkg/auth/keycache"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/settings"
	"github.com/ironplane/ironplane/services/identity/access"
	"github.com/ironplane/ironplane/services/identity/person"
)

// MayCreate refuses a caller that may not make this lasting key.
func (s *Service) MayCreate(ctx context.Context, tx *pg.Tx, b *Body) error {
	c, err := access.Locked(ctx, tx)
	if err != nil {
		return err
	}
	b.belongTo(c.Owner)
	if err := s.mayOwn(ctx, tx, c, b.Account()); err != nil {
		return err
	}
	return mayImport(c, b)
}

// mayImport refuses a caller that may not bring a key's value along. An installation with such keys has to look up more of them.
func mayImport(c access.Caller, body *Body) error {
	if needed := access.PermissionOver(body.Account().Type); !body.Key.IsZero() && !c.Grants.Holds(principal.Grant(needed, permission.Write)) {
		return problem.New(problem.Forbidden, "The key lacks %s write, without which none can be brought along.", needed)
	}
	return nil
}

// Check refuses a key that the caller may not make or edit, and sets the columns that the caller does not send.
func (s *Service) Check(ctx context.Context, tx *pg.Tx, _ int64, before, b *Body) error {
	c, err := access.Of(ctx, tx)
	if err != nil {
		return err
	}
	if before == nil {
		err = s.checkNew(ctx, tx, c, b)
	} else {
		err = s.checkEdited(ctx, tx, c, before, b)
	}
	if err != nil || b.Key.IsZero() {
		return err
	}
	hash := apikey.Hash(b.Key.Reveal())
	b.Hash, b.Imported = hash[:], apikey.FormatOf(b.Key.Reveal()) == apikey.Imported
	return nil
}

func (s *Service) checkNew(ctx context.Context, tx *pg.Tx, c access.Caller, b *Body) error {
	b.belongTo(c.Owner)
	b.Kind = Lasting
	if b.ExpiresAt == nil && c.Latest != nil {
		b.ExpiresAt = &rest.Timestamp{Time: *c.Latest}
	}
	if err := mayLast(c, b.ExpiresAt); err != nil {
		return err
	}
	if err := mayComeFrom(c, b); err != nil {
		return err
	}
	if err := s.People.NotifyLater(
		ctx,
		tx,
		person.Notice{Owner: b.Account(), Changes: []string{fmt.Sprintf("An API key was made: %q.", b.Name)}},
	); err != nil {
		return err
	}
	b.Bound = access.BoundNames(c.BoundOf(nil, b.Account(), true))
	if b.Key.IsZero() {
		b.Key = apikey.New()
	} else {
		Revoke(tx, s.Entries, announced(b.Key)...)
	}
	return s.mayHaveAnother(ctx, tx, b.Account())
}

func (s *Service) checkEdited(ctx context.Context, tx *pg.Tx, c access.Caller, before, b *Body) error {
	if err := s.Rules.MayWriteKeys(ctx, tx, c, before.Account()); err != nil {
		return err
	}
	if before.Kind != Lasting {
		return problem.New(problem.Forbidden, "A session's key is not edited: it is renewed or deleted.")
	}
	moved := b.Account() != before.Account()
	if moved {
		if err := s.mayOwn(ctx, tx, c, b.Account()); err != nil {
			return err
		}
		if err := s.mayHaveAnother(ctx, tx, b.Account()); err != nil {
			return err
		}
	}
	gives := moved || !b.Key.IsZero() // the account gets a key that it did not have
	if gives || !sameTime(b.ExpiresAt, before.ExpiresAt) {
		if err := mayLast(c, b.ExpiresAt); err != nil {
			return err
		}
	}
	if gives || !slices.Equal(b.Networks, before.Networks) {
		if err := mayComeFrom(c, b); err != nil {
			return err
		}
	}
	b.Bound = before.Bound
	was := access.ParseBound(before.Bound)
	if is := c.BoundOf(was, b.Account(), gives); was == nil || *is != *was { // else it keeps what only a newer version knows
		b.Bound = access.BoundNames(is)
	}
	// The gateways forget the key's old value and its new one.
	Revoke(tx, s.Entries, append(announced(b.Key), EntryName(before.Hash))...)
	return mayImport(c, b)
}

func sameTime(a, b *rest.Timestamp) bool {
	return a == nil && b == nil || a != nil && b != nil && a.Equal(b.Time)
}

func (s *Service) deleteKey(ctx context.Context, tx *pg.Tx, key *APIKey) error {
	c, err := access.Of(ctx, tx)
	if err != nil {
		return err
	}
	if err := s.Rules.MayWriteKeys(ctx, tx, c, principal.Owner{Type: key.Owner.Type, ID: key.Owner.ID}); err != nil {
		return err
	}
	ended, err := End(ctx, tx, "id = $1", key.ID)
	Revoke(tx, s.Entries, ended...)
	return err
}

// announced returns the names of the gateways' entries that a new value makes out of date; nil where the value is zero.
func announced(value secret.String) []string {
	if value.IsZero() {
		return nil
	}
	hash := apikey.Hash(value.Reveal())
	names := []string{EntryName(hash[:])}
	if apikey.FormatOf(value.Reveal()) == apikey.Imported {
		names = append(names, keycache.ImportsName)
	}
	return names
}

// mayOwn refuses an owner for whom the caller may not make a key, and keeps the owner from being deleted until the key is made.
func (s *Service) mayOwn(ctx context.Context, tx *pg.Tx, c access.Caller, owner principal.Owner) error {
	if c.Owner == owner {
		return nil
	}
	if !access.MayRead(ctx, owner) {
		return problem.New(problem.Forbidden, "The key lacks %s write.", access.PermissionOver(owner.Type))
	}
	if err := s.Rules.Hold(ctx, tx, owner); err != nil {
		return err
	}
	return s.Rules.MayWrite(ctx, tx, c, owner)
}

// mayLast refuses a key that lasts longer than the calling key.
func mayLast(c access.Caller, expires *rest.Timestamp) error {
	if c.Latest == nil || expires != nil && !expires.After(*c.Latest) {
		return nil
	}
	return problem.Member(
		"/expires_at",
		"out_of_range",
		"can be %s at the latest, when the calling key expires",
		c.Latest.UTC().Format(time.RFC3339),
	)
}

// mayHaveAnother refuses an account more keys than it may have. It is called under access.Lock.
func (s *Service) mayHaveAnother(ctx context.Context, tx *pg.Tx, owner principal.Owner) error {
	most := settings.KeysPerOwner.In(s.Settings.Values())
	if most == 0 {
		return nil
	}
	var has int
	err := tx.QueryRow(ctx, "SELECT count(*) FROM api_key WHERE owner_type = $1 AND owner_id = $2 AND kind = 'lasting'", owner.Type, owner.ID).
		Scan(&has)
	if err != nil {
		return fmt.Errorf("count the keys of %s: %w", owner.URL(), err)
	}
	if has >= most {
		return problem.Member("/owner", "too_many", "has %d API keys, and can have no more than %d", has, most)
	}
	return nil
}

// Insert makes a key where there is no caller, as on the command line.
func Insert(ctx context.Context, tx *pg.Tx, name string, value secret.String, owner principal.Owner) error {
	hash := apikey.Hash(value.Reveal())
	var id int64
	err := tx.QueryRow(
		ctx, "INSERT INTO api_key (name, owner_type, owner_id, hash) VALUES ($1, $2, $3, $4) RETURNING id", name, owner.Type, owner.ID, hash[:],
	).
		Scan(&id)
	if err != nil {
		return fmt.Errorf("create an API key: %w", err)
	}
	key, err := View.Get(ctx, tx, id)
	if err != nil {
		return fmt.Errorf("read API key %d after it was created: %w", id, err)
	}
	tx.Record(pg.Record{Kind: "auth.key", Action: pg.Created, After: secret.Marked(key, "key"),
		Targets: []pg.Target{Target(&key)}})
	return nil
}
