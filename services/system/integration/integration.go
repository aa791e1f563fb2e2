// Package integration keeps integrations: other programs that use the API, and their permissions.
package integration

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/keycache"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/events"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/runtime/mesh"
)

// Integration is another program that uses the API, such as a billing system.
type Integration struct {
	rest.Versioned
	ID          int64  `json:"id" db:"id"`
	Name        string `json:"name" db:"name"`
	Clients     int64  `json:"clients" db:"clients" recorded:"false" doc:"The number of clients."`
	Keys        int64  `json:"keys" db:"keys" recorded:"false" doc:"The number of API keys."`
	Servers     int64  `json:"servers" db:"servers" recorded:"false" doc:"The number of servers of the clients, within a few seconds."`
	Permissions int64  `json:"permissions" db:"permissions" recorded:"false" doc:"The number of permissions. Read and write count separately."`
	Disabled    bool   `json:"disabled" db:"disabled" ext:"true" doc:"Whether the integration's keys are refused."`
	Detaching   bool   `json:"detaching" db:"detaching" ext:"true" doc:"Whether the integration is being deleted. It is detached from its clients first; clients has the number of the remaining ones."`
}

// integrationBody is the body that creates or edits an integration.
type integrationBody struct {
	Name     string  `json:"name" db:"name" required:"create" example:"Shop" doc:"The integration's name. It must be unique, regardless of case."`
	Subject  *string `json:"subject" db:"subject" example:"Your order" doc:"Stored, but not shown."`
	Body     *string `json:"body" db:"body" max:"65536" lines:"true" example:"It is ready." doc:"Stored, but not shown."`
	Disabled bool    `json:"disabled" db:"disabled" ext:"true" example:"false" doc:"whether all keys are refused, as if they were revoked, until it is taken back"`
}

// Integrations implements the operations on integrations.
type Integrations struct {
	db      *pg.DB
	peers   mesh.Peers
	entries *keycache.Store
	leases  *events.Leases // of integrations that are being deleted
}

// New returns the integrations in a database. entries holds what gateways know of them. Before an integration is deleted,
// peers are asked whether they still refer to it.
func New(db *pg.DB, entries *keycache.Store, peers mesh.Peers) *Integrations {
	return &Integrations{db: db, peers: peers, entries: entries, leases: &events.Leases{
		DB:    db,
		Peers: peers,
		Type:  "integration",
		Noun:  "integration",
		Table: "integration",
		Users: []string{"clients"},
	}}
}

// Routes returns the documented operations.
func (s *Integrations) Routes() []rest.Route { return append(s.integrations(), s.permissions()...) }

// Internal returns the routes for the gateway and other services.
func (s *Integrations) Internal() []rest.Route {
	return []rest.Route{
		s.entryRoute(),
		events.RefRoute(s.db, "integration", "integration", "jsonb_build_object('grants', permissions)", "clients", "identity"),
	}
}

// deleteIntegrations is the request to delete integrations.
type deleteIntegrations struct {
	IDs    rest.IDs `path:"*"`
	Match  rest.IfMatch
	Detach bool `query:"detach" ext:"true" doc:"true: delete the integration although it has clients. It is first detached from them, which may take a while."`
}

func (s *Integrations) integrations() []rest.Route {
	all := rest.Resource[Integration, integrationBody]{
		Path:        "/integration",
		ID:          "integration_id",
		Noun:        "integration",
		Retry:       rest.RetryRefused,
		EditExample: `{"name": "Web shop"}`,
		Guard:       guard.Has(permission.SystemIntegrations),
		OwnGuard:    guard.HasOrSelf(permission.SystemIntegrations, principal.Integration),
		Table:       "integration",
		View:        "integration_view",
		List: rest.ListOptions{
			Search:  rest.SearchIn("search"),
			Sorts:   map[string]string{"name": "name"},
			Filters: map[string]string{"disabled": "disabled", "name": "name"},
		},
		Without:      rest.Deleting,
		Check:        s.check,
		BeforeDelete: s.takeLeases,
		Delete:       s.delete,
	}.Collection()
	return append(all.Routes(), rest.Mutation[deleteIntegrations, rest.Message]{
		Method:  http.MethodDelete,
		Path:    "/integration/{integration_id}",
		Guard:   guard.Has(permission.SystemIntegrations),
		Name:    "deleteIntegration",
		Summary: "Delete an integration",
		Effect:  rest.Effect{Logs: rest.LogsItem, Retry: rest.RetryRefused},
		Do: func(ctx context.Context, tx *pg.Tx, req deleteIntegrations) (rest.Message, error) {
			if !req.Detach {
				return all.Remove(ctx, tx, req.IDs, req.Match)
			}
			integrations, err := all.Hold(ctx, tx, req.IDs, req.Match)
			if err == nil {
				err = s.detachAll(ctx, tx, integrations)
			}
			return rest.Message{Message: req.IDs.Label("Integration") + " will be deleted once it is detached from all clients."}, err
		},
	})
}

// check refuses edits by callers who lack a permission of the integration, and removes the gateways' entry.
func (s *Integrations) check(ctx context.Context, tx *pg.Tx, id int64, before, _ *integrationBody) error {
	if before == nil {
		return nil
	}
	s.revoke(tx, id)
	return mayWrite(ctx, tx, id)
}

// takeLeases takes deletion leases. It fails if one of the integrations has clients.
func (s *Integrations) takeLeases(ctx context.Context, tx *pg.Tx, integrations []Integration) error {
	var ids []int64
	for _, i := range integrations {
		if err := mayWrite(ctx, tx, i.ID); err != nil {
			return err
		}
		if i.Detaching {
			return problem.New(problem.Conflict, "Integration %d is already being deleted.", i.ID)
		}
		ids = append(ids, i.ID)
	}
	return s.leases.Acquire(ctx, tx, ids)
}

// delete revokes the integration's keys, which identity deletes when it hears of the deletion.
func (s *Integrations) delete(ctx context.Context, tx *pg.Tx, i *Integration) error {
	s.revoke(tx, i.ID)
	_, err := tx.Exec(ctx, "DELETE FROM integration WHERE id = $1", i.ID)
	return err
}

// mayWrite returns an error unless the caller may write to integrations and holds every permission of this one, so that
// callers cannot gain permissions through an integration.
func mayWrite(ctx context.Context, tx *pg.Tx, id int64) error {
	if err := guard.Has(permission.SystemIntegrations).Check(principal.FromContext(ctx), permission.Write, 0); err != nil {
		return err
	}
	if principal.FromContext(ctx).Principal.Acting {
		return problem.New(problem.Forbidden, "Acting sessions and sessions from a link cannot change integrations. Sign in directly.")
	}
	var names []string
	if err := tx.QueryRow(ctx, "SELECT permissions FROM integration WHERE id = $1 FOR UPDATE", id).Scan(&names); err != nil {
		return fmt.Errorf("read the permissions of integration %d: %w", id, err)
	}
	return guard.CheckGrantable(principal.FromContext(ctx).Principal.Grants, principal.ParseGrants(names), "The account holds")
}

// entryRoute returns the route that tells gateways about an integration. It also stores the entry in Redis, where gateways
// look first.
func (s *Integrations) entryRoute() rest.Route {
	return rest.Read[rest.Item, keycache.Owner]{Path: "/internal/owner/integration/{integration_id}", Guard: guard.Peers(principal.Gateway),
		Do: func(ctx context.Context, req rest.Item) (keycache.Owner, error) {
			return keycache.Fill(ctx, s.entries, entryName(req.ID), func(ctx context.Context) (owner keycache.Owner, err error) {
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

func entryName(id int64) string {
	return keycache.OwnerName(principal.Owner{Type: principal.Integration, ID: id})
}

// revoke removes the gateways' entry of an integration once tx is committed.
func (s *Integrations) revoke(tx *pg.Tx, id int64) {
	tx.Wake(keycache.Revoked)
	tx.AfterCommit(func(ctx context.Context) error { return s.entries.Remove(ctx, entryName(id)) })
}
