package pool

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/postgres/pgerror"
)

// errInvalidURL does not quote the URL, because it contains a password.
var errInvalidURL = errors.New(
	"the database URL is not like postgres://name:password@host:5432/database. In a password, write @ as %40, / as %2F, : as " +
		"%3A and % as %25",
)

// Connect opens a single connection to a database, outside of any pool.
func Connect(ctx context.Context, url string) (*pgx.Conn, error) {
	if err := checkURL(url); err != nil {
		return nil, err
	}
	conn, err := pgx.Connect(ctx, url)
	return conn, pgerror.ExplainConnect(err)
}

// parseURL returns the configuration of a connection to a URL.
func parseURL(url string) (*pgx.ConnConfig, error) {
	if err := checkURL(url); err != nil {
		return nil, err
	}
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("read the database URL: %w", err)
	}
	return config, nil
}

// checkURL fails if the URL cannot be parsed. It also fails if a part of the password would be parsed as the host or the
// database, because errors show those.
func checkURL(url string) error {
	config, err := pgx.ParseConfig(url)
	isURL := strings.Contains(url, "://")
	if err != nil || isURL && (strings.Count(url, "@") > 1 || strings.Contains(config.Database, "@")) {
		return errInvalidURL
	}
	return nil
}
