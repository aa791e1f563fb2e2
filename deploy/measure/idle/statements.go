package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

var logged = regexp.MustCompile(`^(\S*) \S+LOG:  (?:statement|execute [^:]*): (.*)`)

// listStatements lets PostgreSQL log all statements for a period, and prints how often each role ran each statement.
func (i *installation) listStatements(ctx context.Context, conn *pgx.Conn, period time.Duration) error {
	for _, sql := range []string{
		"ALTER SYSTEM SET log_statement = 'all'",
		"ALTER SYSTEM SET log_line_prefix = '%u %d@'",
		"SELECT pg_reload_conf()",
	} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("log statements: %w", err)
		}
	}
	path := filepath.Join(i.folder, "postgres", "postgres.log")
	before, err := os.Stat(path)
	if err != nil {
		return err
	}
	if err := rest(ctx, period); err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, "ALTER SYSTEM RESET ALL"); err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, "SELECT pg_reload_conf()"); err != nil {
		return err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	counts := map[string]int{}
	for line := range strings.Lines(string(text[before.Size():])) {
		if found := logged.FindStringSubmatch(strings.TrimSpace(line)); found != nil {
			statement := strings.Join(strings.Fields(found[2]), " ")
			counts[found[1]+": "+statement[:min(len(statement), 110)]]++
		}
	}
	var all []string
	for statement := range counts {
		all = append(all, statement)
	}
	slices.SortFunc(all, func(a, b string) int { return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b)) })
	fmt.Printf("statements a second, of %v:\n", period)
	for _, statement := range all {
		fmt.Printf("  %6.2f  %s\n", float64(counts[statement])/period.Seconds(), statement)
	}
	return nil
}
