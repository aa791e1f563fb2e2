package product

import (
	"context"
	"fmt"
	"strings"
)

// Connections that an installation in one process opens besides those of the services' pools: its claim, what migrates, and
// a command that is run meanwhile.
const otherConnections = 6

// CheckConnections says, in a sentence, where a limit of the database is less than what the services may open; else nothing.
func (c *Claim) CheckConnections(ctx context.Context) (short string, err error) {
	var roles []string
	for _, name := range Names() {
		roles = append(roles, rolePrefix(c.admin)+name)
	}
	needed := connections*len(Services) + otherConnections
	var server, database int
	var few []string
	err = c.Conn.QueryRow(ctx, `
		SELECT current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int - coalesce(current_setting('reserved_connections', true)::int, 0),
			(SELECT datconnlimit FROM pg_database WHERE datname = current_database()),
			ARRAY(SELECT format('the role %s %s', rolname, rolconnlimit) FROM pg_roles WHERE rolname = ANY($1) AND rolconnlimit BETWEEN 0 AND $2 ORDER BY rolname)`,
		roles, connections-1).Scan(&server, &database, &few)
	if err != nil {
		return "", fmt.Errorf("read the limits of connections: %w", err)
	}
	if server < needed {
		few = append(few, fmt.Sprintf("the server %d (max_connections without what is reserved)", server))
	}
	if database >= 0 && database < needed {
		few = append(few, fmt.Sprintf("the database %d", database))
	}
	if len(few) == 0 {
		return "", nil
	}
	return fmt.Sprintf("Too few connections to the database may be opened: up to %d are needed, %d by each service, and %s allows no more. Requests will fail under load.",
		needed, connections, strings.Join(few, ", ")), nil
}
