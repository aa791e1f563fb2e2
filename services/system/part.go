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

// Part is a part that servers are built from.
type Part struct {
	rest.Versioned
	ID        int64    `json:"id" db:"id"`
	Name      string   `json:"name" db:"name"`
	BillingID *string  `json:"billing_id,omitempty" db:"billing_id"`
	PartType  rest.Ref `json:"part_type" db:"part_type_" doc:"The part's type."`
}

// partBody is the body that creates or edits a part.
type partBody struct {
	Name      string         `json:"name" db:"name" required:"create,edit" example:"32 GB DDR5"`
	BillingID *string        `json:"billing_id" db:"billing_id" required:"edit" example:"RAM-32"`
	PartType  rest.RefOrName `json:"part_type" db:"part_type" required:"create,edit" example:"mem" doc:"The name or id of a part type. When a part is created, a new name creates a part type. Names are in lower case."`
}

// Resolve puts the part type into lower case.
func (b *partBody) Resolve(*problem.Fields) {
	b.PartType = rest.RefOrName(strings.ToLower(string(b.PartType)))
}

// partQuery are the filters of the list. Callers must send both, but may leave them empty.
type partQuery struct {
	PartType string `query:"part_type" required:"true" doc:"The name or id of a part type. Empty: parts of all types."`
	Q        string `query:"q" required:"true" doc:"Only parts whose name or billing id contains this text, regardless of case. Empty: all parts."`
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

// filterByPartType returns the condition for a part type, which the query names by name or id.
func filterByPartType(_ context.Context, q partQuery) ([]pg.Condition, error) {
	if q.PartType == "" {
		return nil, nil
	}
	id, _ := strconv.ParseInt(q.PartType, 10, 64)
	return []pg.Condition{
		{SQL: "part_type = (SELECT name FROM part_type WHERE name = lower($1) OR id = $2)", Args: []any{q.PartType, id}},
	}, nil
}

// resolvePartType replaces the part type's id by its name. For a new part, it creates a part type if the name is new.
func resolvePartType(ctx context.Context, tx *pg.Tx, _ int64, before, body *partBody) error {
	where, key := "name = $1", any(body.PartType)
	if id, ok := body.PartType.ID(); ok {
		where, key = "id = $1", id
	} else if before == nil {
		if _, err := tx.Exec(ctx, "INSERT INTO part_type (name) VALUES ($1) ON CONFLICT (name) DO NOTHING", key); err != nil {
			return fmt.Errorf("create a part type: %w", err)
		}
	}
	err := tx.QueryRow(ctx, "SELECT name FROM part_type WHERE "+where, key).Scan(&body.PartType)
	if errors.Is(err, pgx.ErrNoRows) {
		return problem.Member("/part_type", "not_found", "is not the name or id of a part type")
	}
	return err
}
