package identity

import (
	"context"
	"fmt"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/settings"
)

// bound is what a key can do at most, whatever its owner holds; nil: all of that. It is never widened, but for permissions
// that are new, where it covered all earlier ones.
type bound = *principal.Grants

// within is the narrower of two bounds.
func within(a, b bound) bound {
	if a == nil {
		return b
	}
	if b == nil {
		return a
	}
	both := *a & *b
	return &both
}

// parseBound reads what boundNames wrote.
func parseBound(names *[]string) bound {
	if names == nil {
		return nil
	}
	grants := principal.ParseGrants(*names)
	return &grants
}

func boundNames(b bound) *[]string {
	if b == nil {
		return nil
	}
	names := b.Names()
	return &names
}

// boundOf is the bound of a key that the caller makes for owner or edits: as narrow as it was and as the calling key's
// own. Who gives somebody else's account a key, by its value or its owner, knows a key that would rise with that
// account: it can do no more than he can now.
func (c caller) boundOf(was bound, owner principal.Owner, gives bool) bound {
	is := within(was, c.bound)
	if gives && owner != c.owner {
		is = within(is, &c.grants)
	}
	return is
}

// mayLast refuses that a key lasts longer than the one that it is made or edited with.
func (c caller) mayLast(expires *rest.Timestamp) error {
	if c.expires == nil || expires != nil && !expires.After(*c.expires) {
		return nil
	}
	return problem.Member(
		"/expires_at",
		"out_of_range",
		"can be %s at the latest, when the calling key expires",
		c.expires.UTC().Format(time.RFC3339),
	)
}

// mayHaveAnother refuses an account more keys than it may have. It is called under lockAccounts.
func (s *Service) mayHaveAnother(ctx context.Context, tx *pg.Tx, owner principal.Owner) error {
	most := settings.KeysPerOwner.In(s.settings.Values())
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
