package admin

import (
	"context"
	"fmt"
	"strings"
	"unicode"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
)

// isUsernameRune reports whether a username may have this character.
func isUsernameRune(r rune) bool {
	return unicode.In(r, unicode.L, unicode.N) || strings.ContainsRune("._@+-", r)
}

// maxUsernameBase bounds the first part of a username, in bytes, so that a number fits behind it.
const maxUsernameBase = 54

// freeUsername returns the part of email before the @, followed by the smallest number that makes it unique.
func freeUsername(ctx context.Context, tx *pg.Tx, email string) (username string, err error) {
	base, _, _ := strings.Cut(email, "@")
	base = strings.Map(func(r rune) rune {
		if isUsernameRune(r) {
			return r
		}
		return '-'
	}, base)
	base = strings.ToValidUTF8(base[:min(len(base), maxUsernameBase)], "")
	err = tx.QueryRow(ctx, `
		SELECT name FROM (SELECT $1 || CASE n WHEN 1 THEN '' ELSE n::text END AS name, n
			FROM generate_series(1, 1 + (SELECT count(*) FROM admin WHERE lower(username) LIKE lower($2) || '%')) n) candidate
		WHERE lower(name) NOT IN (SELECT lower(username) FROM admin)
		ORDER BY n LIMIT 1`, base, strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`).Replace(base)).Scan(&username)
	if err != nil {
		return "", fmt.Errorf("find a free username: %w", err)
	}
	return username, nil
}
