package pool

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Budget is the largest number of connections that a process may open: by role, and in total.
type Budget struct {
	Roles map[string]int
	All   int
}

// Shortage returns a sentence that names each limit of the database below the budget, or "" if there is none. Connections
// that others hold right now count against the limits of the server and of the database.
func (b Budget) Shortage(ctx context.Context, q interface {
	QueryRow(ctx context.Context, sql string, arguments ...any) pgx.Row
}) (string, error) {
	var server, database, used, usedInDatabase int
	limits := map[string]int{}
	err := q.QueryRow(ctx, `
		WITH taken AS (SELECT datname FROM pg_stat_activity WHERE backend_type = 'client backend' AND usename <> ALL($1) AND usename <> current_user)
		SELECT current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int - coalesce(current_setting('reserved_connections', true)::int, 0),
			(SELECT datconnlimit FROM pg_database WHERE datname = current_database()),
			(SELECT count(*) FROM taken), (SELECT count(*) FROM taken WHERE datname = current_database()),
			(SELECT coalesce(jsonb_object_agg(rolname, rolconnlimit), '{}') FROM pg_roles WHERE rolname = ANY($1) AND rolconnlimit >= 0)`,
		slices.Collect(maps.Keys(b.Roles))).Scan(&server, &database, &used, &usedInDatabase, &limits)
	if err != nil {
		return "", fmt.Errorf("read the connection limits: %w", err)
	}
	var short []string
	for _, role := range slices.Sorted(maps.Keys(limits)) {
		if limits[role] < b.Roles[role] {
			short = append(short, fmt.Sprintf("the role %s allows %d of the %d that it needs", role, limits[role], b.Roles[role]))
		}
	}
	if database >= 0 && database-usedInDatabase < b.All {
		short = append(short, fmt.Sprintf("the database allows %d, and other processes hold %d", database, usedInDatabase))
	}
	if server-used < b.All {
		short = append(
			short,
			fmt.Sprintf("the server allows %d (max_connections without the reserved ones), and other processes hold %d", server, used),
		)
	}
	if len(short) == 0 {
		return "", nil
	}
	return fmt.Sprintf(
		"The database allows too few connections: this process may open %d, but %s. Requests will fail under load. Raise the "+
			"limit (of roles: IRONPLANE_ROLE_CONNECTIONS of setup bootstrap), or lower IRONPLANE_CONNECTIONS.",
		b.All,
		strings.Join(short, "; "),
	), nil
}

// Shortage returns the Budget.Shortage of the pool's own connections.
func (p *Pool) Shortage(ctx context.Context) (string, error) {
	config := p.connections.Config()
	maxConnections := int(config.MaxConns)
	return Budget{Roles: map[string]int{config.ConnConfig.User: maxConnections}, All: maxConnections}.Shortage(ctx, p.DB)
}
