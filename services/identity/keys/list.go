package keys

import (
	"context"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/services/identity/access"
)

// listQuery is the query of a list of keys.
type listQuery struct {
	Unused int64 `query:"unused_days" min:"1" max:"36500" doc:"Only keys without an end of their own that were neither created nor used within this many days."`
}

// listRoute returns the operation that lists keys.
func (s *Service) listRoute() rest.Route {
	return rest.List[listQuery, APIKey]{
		Path:    "/auth/key",
		Guard:   guard.AnyKey,
		Name:    "listAPIKeys",
		Summary: "List API keys",
		Doc:     "Lists the keys that the caller may read.",
		View:    "api_key_view",
		Where: func(ctx context.Context, q listQuery) ([]pg.Condition, error) {
			where := readableKeys(ctx)
			if q.Unused > 0 {
				where = append(
					where,
					pg.Condition{SQL: "kind = 'lasting' AND coalesce(last_used_at, created_at) < now() - $1 * interval '1 day'", Args: []any{q.Unused}},
				)
			}
			return where, nil
		},
		Options: rest.ListOptions{
			Search:  rest.SearchIn("search"),
			Sorts:   map[string]string{"name": "name"},
			Filters: map[string]string{"name": "name", "owner": "owner_url", "owner_type": "owner_type", "owner_id": "owner_id"},
		},
	}
}

// readableKeys returns the condition for keys that the caller may read. Acting sessions are not listed.
func readableKeys(ctx context.Context) []pg.Condition {
	return append(access.ReadableOwners(ctx), pg.Condition{SQL: "kind <> 'acting'"})
}
