package network

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/mail"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
)

type clientsRequest struct {
	Clients string `query:"clients" max:"10000"` // ids as a JSON array, at most 500
}

// clientServers tells the clients service how many servers use the IP entities of each client, in the order of the ids.
func (s *Service) clientServers() rest.Route {
	return rest.Read[clientsRequest, []int64]{
		Path:  "/internal/client-servers",
		Guard: guard.Peers("clients"),
		Do: func(ctx context.Context, req clientsRequest) ([]int64, error) {
			var clients []int64
			if err := json.Unmarshal([]byte(req.Clients), &clients); err != nil {
				return nil, fmt.Errorf("parse the clients' ids: %w", err)
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
					return problem.New(problem.Unavailable, "The owners of older IP entities are still being looked up. Try again in a minute.")
				}
				return nil
			})
			return counts, err
		},
	}
}

// clientAddresses tells the clients and system services what mails say of a client's IP entities.
func (s *Service) clientAddresses() rest.Route {
	type request struct {
		Client int64 `query:"client"`
	}
	return rest.Read[request, mail.ForClient]{
		Path:  mail.ClientAddressesPath,
		Guard: guard.Peers("clients", "system"),
		Do: func(ctx context.Context, req request) (found mail.ForClient, err error) {
			err = s.db.QueryRow(ctx, `
				WITH own AS (
					SELECT e.full_ip, e.first_address, e.owner_server_name AS server FROM ip_entity_view e
					WHERE e.owner_id = $1 AND NOT e.owner_missing ORDER BY e.id LIMIT $2)
				SELECT ARRAY(SELECT full_ip FROM own ORDER BY first_address), ARRAY(SELECT DISTINCT server FROM own WHERE server IS NOT NULL ORDER BY server)`,
				req.Client, maxMailed).Scan(&found.Addresses, &found.Servers)
			if err != nil {
				err = fmt.Errorf("read the IP entities of client %d: %w", req.Client, err)
			}
			return found, err
		},
	}
}

// maxMailed is how many IP entities a mail names.
const maxMailed = 100
