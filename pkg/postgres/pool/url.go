package pool

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"
)

// errInvalidURL does not say what there is instead, as there is a password in it.
var errInvalidURL = errors.New(
	"the database URL is none such as postgres://name:password@host:5432/database; in a password, @ is written %40, / %2F, : %3A and % %25",
)

// Connect connects to a database for once, outside of any pool.
func Connect(ctx context.Context, url string) (*pgx.Conn, error) {
	if err := checkURL(url); err != nil {
		return nil, err
	}
	return pgx.Connect(ctx, url)
}

// checkURL refuses what cannot be read, and where a part of the password would be taken for the host's name or the
// database's, which errors show.
func checkURL(url string) error {
	config, err := pgx.ParseConfig(url)
	isURL := strings.Contains(url, "://")
	if err != nil || isURL && (strings.Count(url, "@") > 1 || strings.Contains(config.Database, "@")) {
		return errInvalidURL
	}
	return nil
}
