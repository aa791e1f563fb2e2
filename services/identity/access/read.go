package access

import (
	"context"
	"slices"

	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
)

// MayRead tells whether the caller may read the keys of this owner.
func MayRead(ctx context.Context, owner principal.Owner) bool {
	caller := principal.From(ctx).Principal
	return caller.Owner == owner || caller.May(PermissionOver(owner.Type), permission.Read)
}

// ReadableOwners returns the condition for rows of owners that the caller may read: its own, and those of the types whose
// permission it holds. A list of one owner's rows, and one of all rows, can follow an index.
func ReadableOwners(ctx context.Context) []pg.Condition {
	caller := principal.From(ctx).Principal
	types := []principal.OwnerType{principal.Admin, principal.Client, principal.Integration}
	readable := slices.DeleteFunc(
		slices.Clone(types),
		func(t principal.OwnerType) bool { return !caller.May(PermissionOver(t), permission.Read) },
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
