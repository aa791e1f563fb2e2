package clients

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/rest"
)

// describeUse says how many clients an integration has, or returns nothing if it has none. An integration with clients cannot be
// deleted.
func describeUse(ctx context.Context, q pg.Querier, integration int64) (has string, err error) {
	err = q.QueryRow(ctx, `
		SELECT CASE n WHEN 0 THEN '' WHEN 1 THEN 'has 1 client' ELSE 'has ' || n || ' clients' END
		FROM (SELECT count(*) AS n FROM client WHERE integration_id = $1) counted`, integration).Scan(&has)
	return has, err
}

// clearIntegration removes a deleted integration, and the billing ids, from all its clients.
func clearIntegration(ctx context.Context, tx *pg.Tx, id int64, name string) error {
	for {
		if detached, err := detachClients(ctx, tx, id, name); err != nil || detached == 0 {
			return err
		}
	}
}

// detachBatch is how many clients are detached in one unit of work, so that edits of them do not wait long.
const detachBatch = 100

// detachClients removes an integration, and the billing ids, from some of its clients. It returns how many.
func detachClients(ctx context.Context, tx *pg.Tx, id int64, name string) (detached int64, err error) {
	rows, err := tx.Query(ctx, `
		WITH had AS (SELECT id, billing_id FROM client WHERE integration_id = $1 ORDER BY id LIMIT $2 FOR UPDATE)
		UPDATE client c SET integration_id = NULL, billing_id = NULL, version = version + 1 FROM had WHERE c.id = had.id
		RETURNING c.id, c.name, c.version, had.billing_id`, id, detachBatch)
	if err != nil {
		return 0, fmt.Errorf("clear integration %d: %w", id, err)
	}
	var target pg.Target
	var billing *int64
	tag, err := pgx.ForEachRow(rows, []any{&target.ID, &target.Name, &target.Version, &billing}, func() error {
		target.Type, target.Noun = "client", "client"
		before := map[string]any{"integration": rest.Ref{ID: id, Name: name}}
		if billing != nil {
			before["billing_id"] = *billing
		}
		tx.Record(pg.Record{Kind: "client", Action: pg.Edited, Targets: []pg.Target{target}, Before: before, After: struct{}{}})
		return nil
	})
	return tag.RowsAffected(), err
}
