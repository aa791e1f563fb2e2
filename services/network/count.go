package network

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
)

const (
	// foldInterval is the shortest time between two folds of changes into the counts. Readers add up what is not folded.
	foldInterval = time.Second
	// maxFolded is the number of changes that one transaction folds.
	maxFolded = 10_000
	// maxFreeFolded is the same for free entities: each reads up to two chunks of 1,024 addresses.
	maxFreeFolded = 1000
)

// foldSQL moves deltas into the counts. Only one transaction runs it at a time, so the counts do not change meanwhile.
const foldSQL = `
	WITH deltas AS (
		DELETE FROM ip_group_delta WHERE id IN (SELECT id FROM ip_group_delta ORDER BY id LIMIT $1) RETURNING *),
	server_deltas AS (
		DELETE FROM ip_group_server_delta WHERE id IN (SELECT id FROM ip_group_server_delta ORDER BY id LIMIT $1) RETURNING *),
	servers AS (
		SELECT group_id, server_id, coalesce(s.entities, 0) AS before, coalesce(s.entities, 0) + d.entities AS after
		FROM (SELECT group_id, server_id, sum(entities)::bigint AS entities FROM server_deltas GROUP BY group_id, server_id) d
		LEFT JOIN ip_group_server_count s USING (group_id, server_id)),
	servers_kept AS (
		INSERT INTO ip_group_server_count AS s SELECT group_id, server_id, after FROM servers WHERE after <> 0
		ON CONFLICT (group_id, server_id) DO UPDATE SET entities = EXCLUDED.entities),
	servers_dropped AS (
		DELETE FROM ip_group_server_count s USING servers d WHERE (s.group_id, s.server_id) = (d.group_id, d.server_id) AND d.after = 0),
	groups AS (
		SELECT group_id, coalesce(c.entities, 0) + d.entities AS entities, coalesce(c.servers, 0) + d.servers AS servers
		FROM (
			SELECT group_id, sum(entities)::bigint AS entities, sum(servers)::bigint AS servers FROM (
				SELECT group_id, entities, 0 AS servers FROM deltas
				UNION ALL
				SELECT group_id, 0, (after > 0)::int - (before > 0)::int FROM servers) each
			GROUP BY group_id) d
		LEFT JOIN ip_group_count c USING (group_id)),
	groups_kept AS (
		INSERT INTO ip_group_count AS c SELECT * FROM groups WHERE (entities, servers) <> (0, 0)
		ON CONFLICT (group_id) DO UPDATE SET entities = EXCLUDED.entities, servers = EXCLUDED.servers),
	groups_dropped AS (
		DELETE FROM ip_group_count c USING groups d WHERE c.group_id = d.group_id AND (d.entities, d.servers) = (0, 0))
	SELECT greatest((SELECT count(*) FROM deltas), (SELECT count(*) FROM server_deltas))`

// foldFreeSQL moves deltas of free entities into their count, and reads the chunks that they name again. A delta becomes
// visible together with its change, so the chunks include at least all folded changes.
const foldFreeSQL = `
	WITH deltas AS (
		DELETE FROM ip_free_delta WHERE id IN (SELECT id FROM ip_free_delta ORDER BY id LIMIT $1) RETURNING *),
	groups AS (
		SELECT group_id, coalesce(c.free, 0) + d.free AS free
		FROM (SELECT group_id, sum(free)::bigint AS free FROM deltas GROUP BY group_id) d LEFT JOIN ip_free_count c USING (group_id)),
	groups_kept AS (
		INSERT INTO ip_free_count AS c SELECT * FROM groups WHERE free <> 0
		ON CONFLICT (group_id) DO UPDATE SET free = EXCLUDED.free),
	groups_dropped AS (
		DELETE FROM ip_free_count c USING groups d WHERE c.group_id = d.group_id AND d.free = 0),
	chunks AS (
		SELECT c.group_id, c.chunk, l.first, l.bits
		FROM (SELECT group_id, v4_chunk AS chunk FROM deltas UNION SELECT group_id, v6_chunk FROM deltas) c
		LEFT JOIN LATERAL largest_free(c.group_id, c.chunk) l ON true WHERE c.chunk IS NOT NULL),
	chunks_kept AS (
		INSERT INTO ip_free_chunk AS c SELECT * FROM chunks WHERE bits IS NOT NULL
		ON CONFLICT (group_id, chunk) DO UPDATE SET first = EXCLUDED.first, bits = EXCLUDED.bits),
	chunks_dropped AS (
		DELETE FROM ip_free_chunk c USING chunks d WHERE (c.group_id, c.chunk) = (d.group_id, d.chunk) AND d.bits IS NULL)
	SELECT count(*) FROM deltas`

// foldHeldSQL moves deltas of reserved and quarantined entities into their counts.
const foldHeldSQL = `
	WITH deltas AS (
		DELETE FROM ip_held_delta WHERE id IN (SELECT id FROM ip_held_delta ORDER BY id LIMIT $1) RETURNING *),
	groups AS (
		SELECT group_id, coalesce(c.reserved, 0) + d.reserved AS reserved, coalesce(c.quarantined, 0) + d.quarantined AS quarantined
		FROM (SELECT group_id, sum(reserved)::bigint AS reserved, sum(quarantined)::bigint AS quarantined FROM deltas GROUP BY group_id) d
		LEFT JOIN ip_held_count c USING (group_id)),
	groups_kept AS (
		INSERT INTO ip_held_count AS c SELECT * FROM groups WHERE (reserved, quarantined) <> (0, 0)
		ON CONFLICT (group_id) DO UPDATE SET reserved = EXCLUDED.reserved, quarantined = EXCLUDED.quarantined),
	groups_dropped AS (
		DELETE FROM ip_held_count c USING groups d WHERE c.group_id = d.group_id AND (d.reserved, d.quarantined) = (0, 0))
	SELECT count(*) FROM deltas`

// FoldCounts adds the pending deltas to the groups' counts. Readers see the same sums before and after.
func (s *Service) FoldCounts(ctx context.Context) error {
	return errors.Join(s.fold(ctx, foldSQL, maxFolded), s.fold(ctx, foldFreeSQL, maxFreeFolded), s.fold(ctx, foldHeldSQL, maxFolded))
}

// fold runs a statement that folds up to limit rows until it finds fewer. Another instance that is folding makes it return at once.
func (s *Service) fold(ctx context.Context, sql string, limit int) error {
	for folded := limit; folded == limit; {
		folded = 0
		err := s.db.InTx(ctx, func(tx *pg.Tx) error {
			tx.Unrecorded("folding changes no count")
			locked, err := tx.Exec(ctx, "SELECT FROM folding FOR UPDATE SKIP LOCKED")
			if err != nil || locked.RowsAffected() == 0 { // another instance is folding
				return err
			}
			return tx.QueryRow(ctx, sql, limit).Scan(&folded)
		})
		if err != nil {
			return fmt.Errorf("fold counts: %w", err)
		}
	}
	return nil
}
