package pool

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// minVersion is the oldest version of Postgres that will do, as server_version_num has it.
const minVersion = 150000

// CheckRights fails where a service's role would not find or could not change the schema of this name, and says all that is
// wrong.
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
		return fmt.Errorf("read the role's rights: %w", err)
	}
	var problems []error
	reportIf := func(is bool, text string, args ...any) {
		if is {
			problems = append(problems, fmt.Errorf(text, args...))
		}
	}
	reportIf(version < minVersion, "the server is PostgreSQL %d, and has to be %d or later", version/10000, minVersion/10000)
	reportIf(readOnly, "the database takes no changes: it is read-only, or a standby")
	reportIf(
		found != schema,
		"the role %s does not find the schema %s first by its search_path: is it in the URL (?search_path=%[2]s,ext), is the schema there, "+
			"and may the role use it?",
		role,
		schema,
	)
	reportIf(found == schema && !creates, "the role %s may not make tables in the schema %s, which it should own", role, schema)
	reportIf(!trigrams, "the role %s does not find the extension pg_trgm in its search_path (schema ext)", role)
	reportIf(!scalars, "the role %s does not find the extension btree_gist in its search_path (schema ext)", role)
	reportIf(len(foreign) > 0, "the role %s does not own all of the schema %s: %s…", role, schema, strings.Join(foreign, ", "))
	return errors.Join(problems...)
}
