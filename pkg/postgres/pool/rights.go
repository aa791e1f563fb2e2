package pool

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// minVersion is the oldest supported version of Postgres, in the form of server_version_num.
const minVersion = 150000

// CheckRights fails if a service's role cannot find or change the schema of this name. The error lists all reasons.
func (p *Pool) CheckRights(ctx context.Context, schema string) error {
	var version int
	var found, role string
	var readOnly, creates, trigrams, scalars bool
	var foreign []string
	err := p.QueryRow(ctx, `
		SELECT current_setting('server_version_num')::int, coalesce(current_schema(), ''), current_user, current_setting('transaction_read_only')::bool,
			coalesce(has_schema_privilege(current_schema(), 'CREATE'), false), to_regtype('gtrgm') IS NOT NULL, to_regtype('gbtreekey16') IS NOT NULL,
			ARRAY(SELECT relname::text FROM pg_class WHERE relnamespace = to_regnamespace($1) AND relkind IN ('r', 'v', 'S') AND NOT pg_has_role(relowner, 'USAGE') ORDER BY relname LIMIT 5)`,
		schema).Scan(&version, &found, &role, &readOnly, &creates, &trigrams, &scalars, &foreign)
	if err != nil {
		return fmt.Errorf("read the privileges of the role: %w", err)
	}
	var problems []error
	reportIf := func(is bool, text string, args ...any) {
		if is {
			problems = append(problems, fmt.Errorf(text, args...))
		}
	}
	reportIf(version < minVersion, "the server is PostgreSQL %d, but Ironplane needs %d or later", version/10000, minVersion/10000)
	reportIf(readOnly, "the database is read-only, or a standby")
	reportIf(
		found != schema,
		"the schema %[2]s is not first in the search_path of the role %[1]s: run setup bootstrap, or check that the schema exists, "+
			"that the role may use it, and ALTER ROLE %[1]s SET search_path = %[2]s, ext",
		role,
		schema,
	)
	reportIf(found == schema && !creates, "the role %s cannot create tables in the schema %s: make it the schema's owner", role, schema)
	reportIf(!trigrams, "the extension pg_trgm is not in the search_path of the role %s: create it in the schema ext", role)
	reportIf(!scalars, "the extension btree_gist is not in the search_path of the role %s: create it in the schema ext", role)
	reportIf(
		len(foreign) > 0,
		"the role %s does not own everything in the schema %s, such as %s: change their owner",
		role,
		schema,
		strings.Join(foreign, ", "),
	)
	return errors.Join(problems...)
}
