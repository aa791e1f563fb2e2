package network

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/rest"
)

// machineAddress tells the pxe service the address, mask, gateway, VLAN and owner of an IP entity, or null if it does not exist.
func (s *Service) machineAddress() rest.Route {
	return rest.Read[rest.Item, json.RawMessage]{
		Path:  "/internal/machine-address/{entity_id}",
		Guard: guard.Peers("pxe"),
		Do: func(ctx context.Context, req rest.Item) (found json.RawMessage, err error) {
			err = s.db.QueryRow(ctx, `
			SELECT jsonb_build_object(
				'v4', CASE WHEN v4_first IS NOT NULL THEN jsonb_build_object('first', host(v4_first), 'bits', v4_bits, 'mask', coalesce(v4_bits, v4_mask), 'gateway', host(v4_router)) END,
				'v6', CASE WHEN v6_first IS NOT NULL THEN jsonb_build_object('first', host(v6_first), 'bits', v6_bits, 'mask', v6_bits, 'gateway', host(v6_router)) END,
				'vlan', vlan, 'owner', jsonb_build_object('id', coalesce((SELECT owner_id FROM ip_assignment WHERE entity_id = e.id), 0)), 'group', jsonb_build_object('id', g.id, 'name', g.name, 'dhcp_server', g.pxe_dhcp_server_id))
			FROM ip_entity e JOIN ip_group g ON g.id = e.group_id WHERE e.id = $1`, req.ID).Scan(&found)
			switch {
			case errors.Is(err, pgx.ErrNoRows):
				return json.RawMessage("null"), nil
			case err != nil:
				return nil, fmt.Errorf("read the address of IP entity %d: %w", req.ID, err)
			}
			return found, nil
		},
	}
}
