package pool

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Budget is how many connections to a database a process may come to open: by each role, and by all together.
type Budget struct {
	Roles map[string]int
	All   int
}

// Shortage says, in a sentence, where a limit of the database leaves less than the budget; nothing where none does. Of what
// others have open right now, the server's and the database's limits leave the rest.
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
		return "", fmt.Errorf("read the limits of connections: %w", err)
	}
	var short []string
	for _, role := range slices.Sorted(maps.Keys(limits)) {
		if limits[role] < b.Roles[role] {
			short = append(short, fmt.Sprintf("the role %s may have %d, and needs %d", role, limits[role], b.Roles[role]))
		}
	}
	if database >= 0 && database-usedInDatabase < b.All {
		short = append(short, fmt.Sprintf("the database allows %d, of which others have %d", database, usedInDatabase))
	}
	if server-used < b.All {
		short = append(
			short,
			fmt.Sprintf("the server allows %d (max_connections without what is reserved), of which others have %d", server, used),
		)
	}
	if len(short) == 0 {
		return "", nil
	}
	return fmt.Sprintf(
		"Too few connections to the database may be opened: this process may need %d, and %s. Requests will fail under load.",
		b.All,
		strings.Join(short, "; "),
	), nil
}

// Shortage is that of the pool's own budget.
func (p *Pool) Shortage(ctx context.Context) (string, error) {
	config := p.connections.Config()
	maxConnections := int(config.MaxConns)
	return Budget{Roles: map[string]int{config.ConnConfig.User: maxConnections}, All: maxConnections}.Shortage(ctx, p.DB)
}
