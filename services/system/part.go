package system

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
)

// Part is something that servers are built of.
type Part struct {
	rest.Versioned
	ID        int64    `json:"id" db:"id"`
	Name      string   `json:"name" db:"name"`
	BillingID *string  `json:"billing_id,omitempty" db:"billing_id"`
	PartType  rest.Ref `json:"part_type" db:"part_type_"`
}

type partBody struct {
	Name      string         `json:"name" db:"name" required:"create,edit" example:"32 GB DDR5"`
	BillingID *string        `json:"billing_id" db:"billing_id" required:"edit" example:"RAM-32"`
	PartType  rest.RefOrName `json:"part_type" db:"part_type" required:"create,edit" example:"mem" doc:"a part type's name, in lower case, or id; a new name on create makes a part type"`
}

// Resolve spells the part type as it is stored.
func (b *partBody) Resolve(*problem.Fields) {
	b.PartType = rest.RefOrName(strings.ToLower(string(b.PartType)))
}

// partQuery is what the documented list requires. Either may be empty.
type partQuery struct {
	PartType string `query:"part_type" required:"true" doc:"A part type's name or id. Empty: parts of all types."`
	Q        string `query:"q" required:"true" doc:"Only parts whose name or billing id has this in it, without case. Empty: all."`
}

func (s *Service) partRoutes() []rest.Route {
	listing := rest.List[partQuery, Part]{
		Path:    "/part",
		Guard:   guard.Has(permission.ServerSettings),
		Name:    "listParts",
		Summary: "List computer parts",
		View:    "part_view",
		Where:   filterByPartType,
		Options: rest.ListOptions{
			Search:  rest.SearchIn("search"),
			Sorts:   map[string]string{"name": "name"},
			Filters: map[string]string{"billing_id": "billing_id", "name": "name"},
		},
	}
	return append([]rest.Route{listing}, rest.Resource[Part, partBody]{
		Path: "/part", ID: "part_id", Noun: "computer part", Without: rest.Listing,
		Guard: guard.Has(permission.ServerSettings), Table: "part", View: "part_view", Retry: rest.RetryRefused,
		EditExample: `{"name": "64 GB DDR5", "billing_id": "RAM-64", "part_type": {"id": 2}}`,
		Check:       resolvePartType,
	}.Routes()...)
}

func filterByPartType(_ context.Context, q partQuery) ([]pg.Condition, error) {
	if q.PartType == "" {
		return nil, nil
	}
	id, _ := strconv.ParseInt(q.PartType, 10, 64)
	return []pg.Condition{
		{SQL: "part_type = (SELECT name FROM part_type WHERE name = lower($1) OR id = $2)", Args: []any{q.PartType, id}},
	}, nil
}

// resolvePartType puts the part type's name in place of its id. A new part makes a part type of a new name.
func resolvePartType(ctx context.Context, tx *pg.Tx, _ int64, before, body *partBody) error {
	where, key := "name = $1", any(body.PartType)
	if id, ok := body.PartType.ID(); ok {
		where, key = "id = $1", id
	} else if before == nil {
		if _, err := tx.Exec(ctx, "INSERT INTO part_type (name) VALUES ($1) ON CONFLICT (name) DO NOTHING", key); err != nil {
			return fmt.Errorf("make part type: %w", err)
		}
	}
	err := tx.QueryRow(ctx, "SELECT name FROM part_type WHERE "+where, key).Scan(&body.PartType)
	if errors.Is(err, pgx.ErrNoRows) {
		return problem.Member("/part_type", "not_found", "names something that does not exist")
	}
	return err
}
