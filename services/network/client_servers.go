package network

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
)

type clientsAsked struct {
	Clients string `query:"clients" max:"10000"` // their ids as JSON, five hundred
}

// clientServers answers the clients service of how many servers the IP entities of clients are, in the order asked.
func (s *Service) clientServers() rest.Route {
	return rest.Read[clientsAsked, []int64]{
		Path:  "/internal/client-servers",
		Guard: guard.Peers("clients"),
		Do: func(ctx context.Context, req clientsAsked) ([]int64, error) {
			var clients []int64
			if err := json.Unmarshal([]byte(req.Clients), &clients); err != nil {
				return nil, fmt.Errorf("read which clients: %w", err)
			}
			rows, err := s.db.Query(ctx, `
			SELECT CASE WHEN EXISTS (SELECT FROM ip_owner_of_before b WHERE b.owner_id = c.id) THEN -1
				ELSE (SELECT count(DISTINCT server_id) FROM ip_assignment a WHERE a.owner_id = c.id AND NOT a.owner_missing) END
			FROM unnest($1::bigint[]) WITH ORDINALITY c (id, n) ORDER BY n`, clients)
			if err != nil {
				return nil, fmt.Errorf("count the servers of clients: %w", err)
			}
			var count int64
			counts := make([]int64, 0, len(clients))
			_, err = pgx.ForEachRow(rows, []any{&count}, func() error {
				if counts = append(counts, count); count < 0 {
					return problem.New(problem.Unavailable, "Which of the owners of before are clients is being found out.")
				}
				return nil
			})
			return counts, err
		},
	}
}
