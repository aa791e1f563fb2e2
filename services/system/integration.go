package system

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/keycache"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
)

// Integration is another program that works with this installation, such as a billing system.
type Integration struct {
	rest.Versioned
	ID          int64  `json:"id" db:"id"`
	Name        string `json:"name" db:"name"`
	Clients     int64  `json:"clients" db:"clients" counted:"true" doc:"how many it has"`
	Keys        int64  `json:"keys" db:"keys" counted:"true" doc:"how many it has"`
	Permissions int64  `json:"permissions" db:"permissions" doc:"how many it has, whether to read or to write"`
	Disabled    bool   `json:"disabled" db:"disabled" ext:"true" doc:"whether all keys are refused, as if they were revoked, until it is taken back"`
	Detaching   bool   `json:"detaching" db:"detaching" ext:"true" doc:"whether it is being deleted, and taken from its clients before: clients says how many are left"`
}

type integrationBody struct {
	Name     string  `json:"name" db:"name" required:"create" example:"Shop" doc:"no other one has it, in either case"`
	Subject  *string `json:"subject" db:"subject" example:"Your order" doc:"kept, and not shown"`
	Body     *string `json:"body" db:"body" max:"65536" example:"It is ready." doc:"kept, and not shown"`
	Disabled bool    `json:"disabled" db:"disabled" ext:"true" example:"false" doc:"whether all keys are refused, as if they were revoked, until it is taken back"`
}

func (s *Service) integrations() []rest.Route {
	return rest.Resource[Integration, integrationBody]{
		DB:       s.db,
		Path:     "/integration",
		ID:       "integration_id",
		Noun:     "integration",
		Again:    rest.AgainRefused,
		Edited:   `{"name": "Web shop"}`,
		Guard:    guard.Has(permission.SystemIntegrations),
		OwnGuard: guard.HasOrSelf(permission.SystemIntegrations, principal.Integration),
		Table:    "integration",
		View:     "integration_view",
		By: rest.By{
			Search:  rest.SearchIn("search"),
			Sorts:   map[string]string{"name": "name"},
			Filters: map[string]string{"disabled": "disabled", "name": "name"},
		},
		Check:  s.checkIntegration,
		Close:  s.closeIntegrations,
		Detach: s.detachIntegrations,
		Delete: s.deleteIntegration,
	}.Routes()
}

func (s *Service) checkIntegration(ctx context.Context, tx *pg.Tx, id int64, before, _ *integrationBody) error {
	if before == nil {
		return nil
	}
	s.revoke(tx, id)
	return mayWriteIntegration(ctx, tx, id)
}

// closeIntegrations refuses while there are clients of one of them.
func (s *Service) closeIntegrations(ctx context.Context, tx *pg.Tx, integrations []Integration) error {
	var ids []int64
	for _, i := range integrations {
		if err := mayWriteIntegration(ctx, tx, i.ID); err != nil {
			return err
		}
		if i.Detaching {
			return problem.New(problem.Conflict, "Integration %d is being deleted, and taken from its clients before.", i.ID)
		}
		ids = append(ids, i.ID)
	}
	return s.closing.Close(ctx, tx, ids)
}

// deleteIntegration revokes the integration's keys, which their owner then deletes.
func (s *Service) deleteIntegration(ctx context.Context, tx *pg.Tx, i *Integration) error {
	s.revoke(tx, i.ID)
	_, err := tx.Exec(ctx, "DELETE FROM integration WHERE id = $1", i.ID)
	return err
}

// mayWriteIntegration says whether the caller may write to integrations, and holds all that this one holds: nobody lifts
// himself.
func mayWriteIntegration(ctx context.Context, tx *pg.Tx, id int64) error {
	if err := guard.Has(permission.SystemIntegrations).Check(principal.From(ctx), permission.Write, 0); err != nil {
		return err
	}
	if principal.From(ctx).Principal.Acting {
		return problem.New(problem.Forbidden, "A session of somebody who acts for the account, or followed a link, writes to no integration.")
	}
	var names []string
	if err := tx.QueryRow(ctx, "SELECT permissions FROM integration WHERE id = $1 FOR UPDATE", id).Scan(&names); err != nil {
		return fmt.Errorf("read the permissions of integration %d: %w", id, err)
	}
	return guard.MayGive(principal.From(ctx).Principal.Grants, principal.ParseGrants(names), "The account holds")
}

// integrationEntry answers the gateway's question about an integration, and leaves the answer where it looks first.
func (s *Service) integrationEntry() rest.Route {
	return rest.Read[rest.Item, keycache.Owner]{Path: "/internal/owner/integration/{integration_id}", Guard: guard.Peers(principal.Gateway),
		Do: func(ctx context.Context, req rest.Item) (keycache.Owner, error) {
			return keycache.Fill(ctx, s.entries, integrationName(req.ID), func(ctx context.Context) (owner keycache.Owner, err error) {
				var names []string
				err = s.db.QueryRow(ctx, "SELECT NOT disabled AND NOT detaching, name, permissions FROM integration WHERE id = $1", req.ID).
					Scan(&owner.Active, &owner.Name, &names)
				if errors.Is(err, pgx.ErrNoRows) {
					return keycache.Owner{}, nil
				}
				owner.Grants = principal.ParseGrants(names)
				return owner, err
			})
		}}
}

func integrationName(id int64) string {
	return keycache.OwnerName(principal.Owner{Type: principal.Integration, ID: id})
}

// revoke removes, with the commit of tx, what the gateways believe of an integration.
func (s *Service) revoke(tx *pg.Tx, id int64) {
	tx.AfterCommit(func(ctx context.Context) error { return s.entries.Remove(ctx, integrationName(id)) })
}
