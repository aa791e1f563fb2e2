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

// CheckCreate refuses a caller that may not create this lasting key.
func (s *Service) CheckCreate(ctx context.Context, tx *pg.Tx, b *Body) error {
	c, err := access.LockCaller(ctx, tx)
	if err != nil {
		return err
	}
	b.setDefaultOwner(c.Owner)
	if err := s.checkOwner(ctx, tx, c, b.Account()); err != nil {
		return err
	}
	return checkImport(c, b)
}

// checkImport refuses a caller that may not choose a key's value. Such keys have no checksum, so gateways have to look up every
// unknown value once an installation has one.
func checkImport(c access.Caller, body *Body) error {
	if needed := access.PermissionFor(body.Account().Type); !body.Key.IsZero() && !c.Grants.Holds(principal.Grant(needed, permission.Write)) {
		return problem.New(problem.Forbidden, "The key lacks %s write, which it needs to choose a key's value.", needed)
	}
	return nil
}

// Check refuses a key that the caller may not create or edit, and sets the columns that are not in the body.
func (s *Service) Check(ctx context.Context, tx *pg.Tx, id int64, before, b *Body) error {
	c, err := access.ReadCaller(ctx, tx)
	if err != nil {
		return err
	}
	if before == nil {
		err = s.checkNew(ctx, tx, c, b)
	} else {
		err = s.checkEdited(ctx, tx, c, id, before, b)
	}
	if err != nil || b.Key.IsZero() {
		return err
	}
	hash := apikey.Hash(b.Key.Reveal())
	b.Hash, b.Imported = hash[:], apikey.DetectFormat(b.Key.Reveal()) == apikey.Imported
	return nil
}

// checkNew refuses a new key that the caller may not create, and sets the columns that are not in the body.
func (s *Service) checkNew(ctx context.Context, tx *pg.Tx, c access.Caller, b *Body) error {
	b.setDefaultOwner(c.Owner)
	b.Kind = Lasting
	if b.ExpiresAt == nil && c.Latest != nil {
		b.ExpiresAt = &rest.Timestamp{Time: *c.Latest}
	}
	if err := checkExpiry(c, b.ExpiresAt); err != nil {
		return err
	}
	if err := checkCallerNetworks(c, b); err != nil {
		return err
	}
	if err := s.People.NotifyLater(
		ctx,
		tx,
		person.Notice{Owner: b.Account(), Changes: []string{fmt.Sprintf("An API key was created: %q.", b.Name)}},
	); err != nil {
		return err
	}
	b.Bound, b.Maker = access.BoundNames(c.NarrowBound(nil, b.Account(), true)), c.MakerOf(b.Account())
	if b.Key.IsZero() {
		b.Key = apikey.New()
	} else {
		Revoke(tx, s.Entries, changedEntries(b.Key)...)
	}
	return s.checkKeyCount(ctx, tx, b.Account())
}

// checkEdited refuses an edit that the caller may not make, and sets the key's bound.
func (s *Service) checkEdited(ctx context.Context, tx *pg.Tx, c access.Caller, id int64, before, b *Body) error {
	if err := s.Rules.CheckWriteKeys(ctx, tx, c, before.Account()); err != nil {
		return err
	}
	if before.Kind != Lasting {
		return problem.New(problem.Forbidden, "A session's key cannot be edited. Renew or delete it instead.")
	}
	moved := b.Account() != before.Account()
	if moved {
		if err := s.checkOwner(ctx, tx, c, b.Account()); err != nil {
			return err
		}
		if err := s.checkKeyCount(ctx, tx, b.Account()); err != nil {
			return err
		}
	}
	addsKey := moved || !b.Key.IsZero() // the account gets a key that it did not have
	if addsKey {
		b.Maker = c.MakerOf(b.Account())
	}
	if addsKey || !sameTime(b.ExpiresAt, before.ExpiresAt) {
		if err := checkExpiry(c, b.ExpiresAt); err != nil {
			return err
		}
	}
	changesNetworks := !slices.Equal(b.Networks, before.Networks) || !slices.Equal(b.SessionNetworks, before.SessionNetworks)
	if addsKey || changesNetworks {
		if err := checkCallerNetworks(c, b); err != nil {
			return err
		}
	}
	b.Bound = before.Bound
	oldBound := access.ParseBound(before.Bound)
	bound := c.NarrowBound(oldBound, b.Account(), addsKey)
	if oldBound == nil || *bound != *oldBound { // an unchanged bound keeps the names that only a newer version knows
		b.Bound = access.BoundNames(bound)
	}
	// The entries of the old value, of the new one, and of sessions that have the key's networks are stale.
	stale := append(changedEntries(b.Key), EntryName(before.Hash))
	if changesNetworks {
		names, err := entryNames(ctx, tx, "made_with = $1", id)
		if err != nil {
			return err
		}
		stale = append(stale, names...)
	}
	Revoke(tx, s.Entries, stale...)
	return checkImport(c, b)
}

func sameTime(a, b *rest.Timestamp) bool {
	return a == nil && b == nil || a != nil && b != nil && a.Equal(b.Time)
}

// deleteKey deletes a key, and the sessions that were created with it.
func (s *Service) deleteKey(ctx context.Context, tx *pg.Tx, key *APIKey) error {
	c, err := access.ReadCaller(ctx, tx)
	if err != nil {
		return err
	}
	if err := s.Rules.CheckWriteKeys(ctx, tx, c, principal.Owner{Type: key.Owner.Type, ID: key.Owner.ID}); err != nil {
		return err
	}
	ended, err := End(ctx, tx, "id = $1", key.ID)
	Revoke(tx, s.Entries, ended...)
	return err
}

// changedEntries returns the names of the Redis entries that a key's new value makes stale. It returns nil if the value is zero.
func changedEntries(value secret.String) []string {
	if value.IsZero() {
		return nil
	}
	hash := apikey.Hash(value.Reveal())
	names := []string{EntryName(hash[:])}
	if apikey.DetectFormat(value.Reveal()) == apikey.Imported {
		names = append(names, keycache.ImportsName)
	}
	return names
}

// checkOwner refuses an owner that the caller may not create keys for. It keeps the owner from being deleted until the key is
// stored.
func (s *Service) checkOwner(ctx context.Context, tx *pg.Tx, c access.Caller, owner principal.Owner) error {
	if c.Owner == owner {
		return nil
	}
	if !access.CanRead(ctx, owner) {
		return problem.New(problem.Forbidden, "The key lacks %s write.", access.PermissionFor(owner.Type))
	}
	if err := s.Rules.Hold(ctx, tx, owner); err != nil {
		return err
	}
	return s.Rules.CheckWrite(ctx, tx, c, owner)
}

// checkExpiry refuses a key that outlives the calling key.
func checkExpiry(c access.Caller, expires *rest.Timestamp) error {
	if c.Latest == nil || expires != nil && !expires.After(*c.Latest) {
		return nil
	}
	return problem.Member(
		"/expires_at",
		"out_of_range",
		"must be %s at the latest, when the calling key expires",
		c.Latest.UTC().Format(time.RFC3339),
	)
}

// checkKeyCount refuses a key if the account has as many as it may have. It is called under access.Lock.
func (s *Service) checkKeyCount(ctx context.Context, tx *pg.Tx, owner principal.Owner) error {
	maxKeys := settings.KeysPerOwner.In(s.Settings.Values())
	if maxKeys == 0 {
		return nil
	}
	var count int
	err := tx.QueryRow(ctx, "SELECT count(*) FROM api_key WHERE owner_type = $1 AND owner_id = $2 AND kind = 'lasting'", owner.Type, owner.ID).
		Scan(&count)
	if err != nil {
		return fmt.Errorf("count the keys of %s: %w", owner.URL(), err)
	}
	if count >= maxKeys {
		return problem.Member("/owner", "too_many", "has %d API keys, and may have at most %d", count, maxKeys)
	}
	return nil
}

// Insert creates a key without a caller, such as for the command line.
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
