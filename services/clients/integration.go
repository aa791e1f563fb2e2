package clients

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
)

// callingIntegration returns the caller's id, if the caller is an integration.
func callingIntegration(ctx context.Context) (int64, bool) {
	caller := principal.FromContext(ctx).Principal.Owner
	return caller.ID, caller.Type == principal.Integration
}

// errForeign returns the refusal for an integration that changes a client of somebody else.
func errForeign() error {
	return problem.New(problem.Forbidden, "An integration can change only its own clients, and links between them.")
}

// checkIntegrationOwns returns a 403 for an integration that one of these clients does not belong to. The clients exist, and stay
// the integration's until the unit of work ends.
func checkIntegrationOwns(ctx context.Context, q pg.Querier, clients ...int64) error {
	integration, isIntegration := callingIntegration(ctx)
	if !isIntegration {
		return nil
	}
	const sql = "SELECT count(*) FROM (SELECT FROM client WHERE id = ANY ($1) AND integration_id = $2 ORDER BY id FOR SHARE) own"
	var own int
	if err := q.QueryRow(ctx, sql, clients, integration).Scan(&own); err != nil {
		return fmt.Errorf("count the integration's own clients: %w", err)
	}
	if own < len(clients) {
		return errForeign()
	}
	return nil
}

// describeUse says how many clients an integration has, or returns nothing if it has none. An integration with clients cannot be
// deleted.
func describeUse(ctx context.Context, q pg.Querier, integration int64) (has string, err error) {
	err = q.QueryRow(ctx, `
		SELECT CASE n WHEN 0 THEN '' WHEN 1 THEN 'has 1 client' ELSE 'has ' || n || ' clients' END
		FROM (SELECT count(*) AS n FROM client WHERE integration_id = $1) counted`, integration).Scan(&has)
	return has, err
}

// clearIntegration removes a deleted integration, and the billing ids, from all its clients.
func (s *Service) clearIntegration(ctx context.Context, tx *pg.Tx, id int64, name string) error {
	for {
		if detached, err := s.detachClients(ctx, tx, id, name); err != nil || detached == 0 {
			return err
		}
	}
}

// detachBatch is how many clients are detached in one unit of work, so that edits of them do not wait long.
const detachBatch = 100

// detachClients removes an integration, and the billing ids, from some of its clients. It returns how many.
func (s *Service) detachClients(ctx context.Context, tx *pg.Tx, id int64, name string) (detached int64, err error) {
	rows, err := tx.Query(ctx, `
		WITH had AS (SELECT id, billing_id FROM client WHERE integration_id = $1 ORDER BY id LIMIT $2 FOR UPDATE)
		UPDATE client c SET integration_id = NULL, billing_id = NULL, version = version + 1 FROM had WHERE c.id = had.id
		RETURNING c.id, c.name, c.version, had.billing_id`, id, detachBatch)
	if err != nil {
		return 0, fmt.Errorf("clear integration %d: %w", id, err)
	}
	var target pg.Target
	var billing *int64
	var entries []string
	tag, err := pgx.ForEachRow(rows, []any{&target.ID, &target.Name, &target.Version, &billing}, func() error {
		target.Type, target.Noun = "client", "client"
		entries = append(entries, entryName(target.ID))
		before := map[string]any{"integration": rest.Ref{ID: id, Name: name}}
		if billing != nil {
			before["billing_id"] = *billing
		}
		tx.Record(pg.Record{Kind: "client", Action: pg.Edited, Targets: []pg.Target{target}, Before: before, After: struct{}{}})
		return nil
	})
	if len(entries) > 0 {
		tx.AfterCommit(func(ctx context.Context) error { return s.entries.Remove(ctx, entries...) })
	}
	return tag.RowsAffected(), err
}
