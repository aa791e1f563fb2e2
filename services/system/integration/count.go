package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/events"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
)

// Count updates how many clients and keys each integration has from changes of other services.
func Count(ctx context.Context, tx *pg.Tx, changes []events.Event) error {
	clients, keys := map[int64]int64{}, map[int64]int64{}
	for _, e := range changes {
		if e.Part != "" {
			continue
		}
		var counts map[int64]int64
		var integration func(json.RawMessage) (int64, error)
		switch e.Kind {
		case "client":
			counts, integration = clients, clientIntegration
		case "auth.key":
			counts, integration = keys, keyIntegration
		default:
			continue
		}
		before, err := integration(e.Before)
		if err != nil {
			return fmt.Errorf("decode the item before change %d: %w", e.Seq, err)
		}
		after, err := integration(e.After)
		if err != nil {
			return fmt.Errorf("decode the item after change %d: %w", e.Seq, err)
		}
		counts[before]--
		counts[after]++
	}
	for column, counts := range map[string]map[int64]int64{"clients": clients, "keys": keys} {
		for id, n := range counts {
			if id == 0 || n == 0 {
				continue
			}
			_, err := tx.Exec(ctx, `
				INSERT INTO integration_count AS n (id, `+column+`) SELECT id, $2 FROM integration WHERE id = $1
				ON CONFLICT (id) DO UPDATE SET `+column+` = n.`+column+` + EXCLUDED.`+column, id, n)
			if err != nil {
				return fmt.Errorf("count the %s of integration %d: %w", column, id, err)
			}
		}
	}
	return nil
}

// clientIntegration returns the id of a client's integration; 0: none.
func clientIntegration(text json.RawMessage) (int64, error) {
	var client struct {
		Integration struct {
			ID int64 `json:"id"`
		} `json:"integration"`
	}
	err := unmarshal(text, &client)
	return client.Integration.ID, err
}

// keyIntegration returns the id of the integration that owns a key; 0: none.
func keyIntegration(text json.RawMessage) (int64, error) {
	var key struct {
		Owner struct {
			URL string `json:"url"`
		} `json:"owner"`
	}
	err := unmarshal(text, &key)
	if owner, ok := principal.ParseOwner(key.Owner.URL); ok && owner.Type == principal.Integration {
		return owner.ID, err
	}
	return 0, err
}

// unmarshal decodes one side of a change. Created items have no side before, and deleted items have none after.
func unmarshal(text json.RawMessage, to any) error {
	if text == nil {
		return nil
	}
	return json.Unmarshal(text, to)
}

// Servers is the number of servers of an integration's clients.
type Servers struct {
	Integration int64 `json:"integration"`
	Servers     int64 `json:"servers"`
}

// askTimeout is how long the clients service may take to count.
const askTimeout = 5 * time.Second

// CountServers asks the clients service how many servers the clients of each integration have. While that service is away, the counts
// stay as they are.
func (s *Integrations) CountServers(ctx context.Context) error {
	var found []Servers
	asking, cancel := s.peers.Limit(ctx, askTimeout)
	defer cancel()
	if s.peers.Ask(asking, "clients", "/internal/integration-servers", &found) != nil {
		return nil // the service is away, or of an earlier version: the next call asks again
	}
	ids, counts := make([]int64, len(found)), make([]int64, len(found))
	for i, one := range found {
		ids[i], counts[i] = one.Integration, one.Servers
	}
	return s.db.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("counts are not recorded")
		_, err := tx.Exec(ctx, `
			WITH counted AS (SELECT i.id, coalesce(c.servers, 0) AS servers FROM integration i
				LEFT JOIN unnest($1::bigint[], $2::bigint[]) c (id, servers) ON c.id = i.id ORDER BY i.id)
			INSERT INTO integration_count AS n (id, servers) SELECT id, servers FROM counted
			ON CONFLICT (id) DO UPDATE SET servers = EXCLUDED.servers WHERE n.servers <> EXCLUDED.servers`,
			ids, counts)
		if err != nil {
			return fmt.Errorf("store the servers of integrations: %w", err)
		}
		return nil
	})
}
