package access

import (
	"context"
	"slices"

	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
)

// CanRead reports whether the caller may read the keys of this owner.
func CanRead(ctx context.Context, owner principal.Owner) bool {
	caller := principal.FromContext(ctx).Principal
	return caller.Owner == owner || caller.Holds(PermissionFor(owner.Type), permission.Read)
}

// ReadableOwners returns the condition for rows whose owner the caller may read: its own rows, and those of the owner types that
// its permissions cover. The condition keeps a list of one owner's rows, and a list of all rows, on an index.
func ReadableOwners(ctx context.Context) []pg.Condition {
	caller := principal.FromContext(ctx).Principal
	types := []principal.OwnerType{principal.Admin, principal.Client, principal.Integration}
	readable := slices.DeleteFunc(
		slices.Clone(types),
		func(t principal.OwnerType) bool { return !caller.Holds(PermissionFor(t), permission.Read) },
	)
	own := pg.Condition{SQL: "owner_type = $1 AND owner_id = $2", Args: []any{caller.Owner.Type, caller.Owner.ID}}
	switch len(readable) {
	case 0:
		return []pg.Condition{own}
	case len(types):
		return nil
	default:
		return []pg.Condition{{SQL: own.SQL + " OR owner_type = ANY($3)", Args: append(own.Args, readable)}}
	}
}
