package clients

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/keycache"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
)

// suspender is who suspends a client, or lifts a suspension. All admins are one suspender, and so is the client's integration.
type suspender struct {
	kind     string // admin, integration or reseller
	reseller *int64 // the client above, if kind is reseller
}

func (s *Service) suspensionRoutes() []rest.Route {
	suspend := func(verb, summary, doc string, do func(context.Context, *pg.Tx, rest.Item) (ViewedClient, error)) rest.Route {
		return rest.Mutation[rest.Item, ViewedClient]{
			Method:    http.MethodPost,
			Path:      "/client/{client_id}/" + verb,
			Guard:     guard.HasOrReseller(permission.UsersClients),
			Name:      verb + "Client",
			Summary:   summary,
			Extension: true,
			Doc:       doc,
			Effect:    rest.Effect{Logs: rest.LogsEach, Retry: rest.RetrySafe, ViewPath: "/client/{client_id}"},
			Do:        do,
		}
	}
	return []rest.Route{
		suspend("suspend", "Suspend a client",
			"All keys and sessions of the client and of its sub clients are refused from then on. Admins, the client's integration and "+
				"each reseller above it suspend separately: the client is suspended until each has lifted its own suspension.",
			func(ctx context.Context, tx *pg.Tx, req rest.Item) (ViewedClient, error) {
				return s.setSuspended(ctx, tx, req.ID, true)
			}),
		suspend("unsuspend", "Lift a suspension of a client",
			"Lifts the suspension by admins if the caller is an admin, by the client's integration if it is that, and by the caller if it "+
				"is a reseller. `suspended_by` of the answer names those that remain. If only others have suspended the client, it is a 403.",
			func(ctx context.Context, tx *pg.Tx, req rest.Item) (ViewedClient, error) {
				return s.setSuspended(ctx, tx, req.ID, false)
			}),
	}
}

// setSuspended suspends a client for the caller, or lifts the caller's suspension.
func (s *Service) setSuspended(ctx context.Context, tx *pg.Tx, id int64, suspended bool) (ViewedClient, error) {
	by, err := findSuspender(ctx, tx, id)
	if err != nil {
		return ViewedClient{}, err
	}
	changed, err := s.changeSuspension(ctx, tx, id, by, suspended)
	if err != nil {
		return ViewedClient{}, err
	}
	if !changed {
		tx.Unrecorded("the suspension is as requested")
	} else if err := raiseVersion(ctx, tx, id); err != nil {
		return ViewedClient{}, err
	}
	return visibleClients.Get(ctx, tx, id, whereVisible(ctx))
}

func raiseVersion(ctx context.Context, tx *pg.Tx, id int64) error {
	_, err := tx.Exec(ctx, "UPDATE client SET version = version + 1 WHERE id = $1", id)
	if err != nil {
		err = fmt.Errorf("count the change of client %d: %w", id, err)
	}
	return err
}

// findSuspender returns as whom the caller suspends a client, or an error if it may not. It locks the client's row. A client
// suspends the accounts that it reaches by links of its own, which reading by a super link is not.
func findSuspender(ctx context.Context, tx *pg.Tx, id int64) (by suspender, err error) {
	if caller := callingClient(ctx); caller != 0 {
		if caller == id {
			return by, problem.New(problem.Forbidden, "A client cannot suspend itself, or lift its own suspension.")
		}
		var isAbove bool
		err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM client_reach WHERE ancestor = $1 AND descendant = $2)", caller, id).Scan(&isAbove)
		if err != nil {
			return by, fmt.Errorf("look for the link to client %d: %w", id, err)
		}
		if !isAbove {
			return by, errNotReached(ctx, tx, id)
		}
		by = suspender{kind: "reseller", reseller: &caller}
	} else if _, isIntegration := callingIntegration(ctx); isIntegration {
		by = suspender{kind: "integration"}
	} else {
		by = suspender{kind: "admin"}
	}
	if err := tx.QueryRow(ctx, "SELECT id FROM client WHERE id = $1 FOR UPDATE", id).Scan(&id); err != nil {
		return by, err
	}
	return by, checkIntegrationOwns(ctx, tx, id)
}

// errNotReached returns the error for a client that would suspend an account which is not its sub client: a 403 if it may know of
// the account, else a 404.
func errNotReached(ctx context.Context, q pg.Querier, id int64) error {
	var n int
	err := q.QueryRow(ctx, "SELECT count(*) FROM client_seen WHERE viewer = $1 AND id = $2", callingClient(ctx), id).Scan(&n)
	if err == nil && n > 0 {
		return problem.New(problem.Forbidden, "A client can suspend only sub clients that it has created, or that the operator gave it.")
	}
	return errors.Join(err, pgx.ErrNoRows)
}

// changeSuspension adds or removes a suspension of a client whose row is locked, and reports whether there was anything to do.
// It ends the keys and sessions of all clients that are suspended by it, and records it. The caller raises the client's version.
func (s *Service) changeSuspension(ctx context.Context, tx *pg.Tx, id int64, by suspender, suspended bool) (changed bool, err error) {
	if err := lockLinks(ctx, tx); err != nil { // no sub clients come or go meanwhile
		return false, err
	}
	before, err := readSuspension(ctx, tx, id)
	if err != nil {
		return false, err
	}
	sql := "DELETE FROM suspension WHERE client_id = $1 AND kind = $2 AND reseller_id IS NOT DISTINCT FROM $3::bigint"
	if suspended {
		sql = "INSERT INTO suspension (client_id, kind, reseller_id) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING"
	}
	done, err := tx.Exec(ctx, sql, id, by.kind, by.reseller)
	if err != nil {
		return false, fmt.Errorf("change the suspension of client %d: %w", id, err)
	}
	if done.RowsAffected() == 0 {
		if !suspended {
			return false, before.errOthers(id)
		}
		return false, nil
	}
	after, err := readSuspension(ctx, tx, id)
	if err != nil {
		return false, err
	}
	targets, err := s.revokeAll(ctx, tx, id)
	if err != nil {
		return false, err
	}
	affected := len(targets)
	before.Affected, after.Affected = nil, &affected
	action := pg.Action("unsuspended")
	if suspended {
		action = "suspended"
	}
	targets[0].Version++
	tx.Record(pg.Record{Kind: "client", Action: action, Targets: targets[:min(affected, maxAffectedTargets)], Before: before, After: after})
	return true, nil
}

// maxAffectedTargets is how many of the clients that a suspension affects its record names.
const maxAffectedTargets = 100

// suspendedQuery names clients.
type suspendedQuery struct {
	Clients string `query:"clients" max:"12000"` // ids as a JSON array
}

// suspendedRoute returns the route by which pxe asks which of some clients are suspended, or below one that is.
func (s *Service) suspendedRoute() rest.Route {
	return rest.Read[suspendedQuery, []int64]{
		Path:  "/internal/suspended",
		Guard: guard.Peers("pxe"),
		Do: func(ctx context.Context, req suspendedQuery) ([]int64, error) {
			var clients []int64
			if err := json.Unmarshal([]byte(req.Clients), &clients); err != nil {
				return nil, fmt.Errorf("parse the clients' ids: %w", err)
			}
			rows, err := s.db.Query(ctx, "SELECT id FROM client_view WHERE id = ANY ($1) AND suspended ORDER BY id", clients)
			if err != nil {
				return nil, fmt.Errorf("read which clients are suspended: %w", err)
			}
			return pgx.AppendRows([]int64{}, rows, pgx.RowTo[int64])
		},
	}
}

// suspension is a client's suspension, as records show it.
type suspension struct {
	Disabled    bool     `json:"disabled"`
	SuspendedBy []string `json:"suspended_by"`
	Suspended   bool     `json:"suspended"`
	Affected    *int     `json:"affected,omitempty"` // how many clients the change concerns: the client and its sub clients
}

func readSuspension(ctx context.Context, q pg.Querier, id int64) (found suspension, err error) {
	err = q.QueryRow(ctx, "SELECT disabled, suspended_by, suspended FROM client_view WHERE id = $1", id).
		Scan(&found.Disabled, &found.SuspendedBy, &found.Suspended)
	if err != nil {
		err = fmt.Errorf("read the suspension of client %d: %w", id, err)
	}
	return found, err
}

// errOthers returns the refusal for a caller that lifts a suspension which is not its own, or nil if there is none.
func (s suspension) errOthers(id int64) error {
	names := map[string]string{"admin": "an admin", "integration": "its integration", "reseller": "a reseller"}
	switch {
	case s.Disabled && len(s.SuspendedBy) == 1:
		return problem.New(problem.Forbidden, "Client %d was suspended by %s, who alone can lift that.", id, names[s.SuspendedBy[0]])
	case s.Disabled:
		return problem.New(problem.Forbidden, "Client %d was suspended by others. Each of them can lift only its own suspension.", id)
	case s.Suspended:
		return problem.New(problem.Conflict, "Client %d is not suspended itself: a client above it is.", id)
	}
	return nil
}

// revokeAll removes the entries of a client and of all clients below it, so that gateways ask again whether they are suspended. It
// returns these clients as targets of a record, the client first. The caller holds the lock on links.
func (s *Service) revokeAll(ctx context.Context, tx *pg.Tx, id int64) (targets []pg.Target, err error) {
	rows, err := tx.Query(ctx, `
		SELECT id, name, version FROM client WHERE id = $1 OR id IN (SELECT descendant FROM client_reach WHERE ancestor = $1) ORDER BY id <> $1, id`, id)
	if err != nil {
		return nil, fmt.Errorf("find the clients below client %d: %w", id, err)
	}
	target := pg.Target{Type: "client", Noun: "client"}
	var names []string
	_, err = pgx.ForEachRow(rows, []any{&target.ID, &target.Name, &target.Version}, func() error {
		targets, names = append(targets, target), append(names, entryName(target.ID))
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("find the clients below client %d: %w", id, err)
	}
	tx.Wake(keycache.Revoked)
	tx.AfterCommit(func(ctx context.Context) error { return s.entries.Remove(ctx, names...) })
	return targets, nil
}

// editSuspension applies the member disabled of an edit, and sets it to what is then stored.
func (s *Service) editSuspension(ctx context.Context, tx *pg.Tx, id int64, before, b *clientBody) error {
	if b.Disabled == before.Disabled {
		return nil
	}
	by, err := findSuspender(ctx, tx, id)
	if err == nil {
		_, err = s.changeSuspension(ctx, tx, id, by, b.Disabled)
	}
	if err != nil {
		return err
	}
	return tx.QueryRow(ctx, "SELECT disabled FROM client WHERE id = $1", id).Scan(&b.Disabled)
}

// endReach deletes links by which clients reach a client and those below it. Their entries are removed, because sessions in which
// others act for them end. The suspensions by clients that no longer reach them end too, and are recorded.
func (s *Service) endReach(ctx context.Context, tx *pg.Tx, id int64, remove func() error) error {
	targets, err := s.revokeAll(ctx, tx, id)
	if err != nil {
		return err
	}
	ids := make([]int64, len(targets))
	for i, t := range targets {
		ids[i] = t.ID
	}
	rows, err := tx.Query(ctx, "SELECT DISTINCT client_id FROM suspension WHERE kind = 'reseller' AND client_id = ANY ($1) ORDER BY 1", ids)
	if err != nil {
		return fmt.Errorf("find the suspensions by resellers: %w", err)
	}
	suspended, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return fmt.Errorf("find the suspensions by resellers: %w", err)
	}
	before := map[int64]suspension{}
	for _, id := range suspended {
		if before[id], err = readSuspension(ctx, tx, id); err != nil {
			return err
		}
	}
	if err := remove(); err != nil {
		return err
	}
	for _, id := range suspended {
		if err := recordLifted(ctx, tx, id, before[id]); err != nil {
			return err
		}
	}
	return nil
}

// recordLifted records that no reseller suspends a client any more, if that is so. A client that was deleted needs no record.
func recordLifted(ctx context.Context, tx *pg.Tx, id int64, before suspension) error {
	target := pg.Target{Type: "client", Noun: "client", ID: id}
	err := tx.QueryRow(ctx, `
		UPDATE client SET version = version + 1 WHERE id = $1 AND NOT EXISTS (SELECT FROM suspension WHERE client_id = $1 AND kind = 'reseller')
		RETURNING name, version`, id).Scan(&target.Name, &target.Version)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("count the change of client %d: %w", id, err)
	}
	after, err := readSuspension(ctx, tx, id)
	tx.Record(pg.Record{Kind: "client", Action: "unsuspended", Targets: []pg.Target{target}, Before: before, After: after})
	return err
}
