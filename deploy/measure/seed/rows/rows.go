// Package rows fills the product's databases with rows like those of an installation of a given size.
package rows

import (
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/services/clients"
	"github.com/ironplane/ironplane/services/identity"
	"github.com/ironplane/ironplane/services/network"
	"github.com/ironplane/ironplane/services/pxe"
)

// MaxEntities is the largest number of entities for which the seed's address space is large enough.
const MaxEntities = 50_000_000

// Options describe the rows. The same options create the same rows, except for encrypted values.
type Options struct {
	Entities  int // everything else is in proportion
	Seed      uint64
	MasterKey secret.String
	Progress  io.Writer
}

// Fill writes rows into the services' migrated schemas. urls are the database URLs by service. Admins may exist, but no clients,
// IP groups or port speeds. If a service fails, its schema stays as it was.
func Fill(ctx context.Context, urls map[string]secret.String, o Options) error {
	if o.Entities < 1 || o.Entities > MaxEntities {
		return fmt.Errorf("seed %d IP entities: the number must be between 1 and %d", o.Entities, MaxEntities)
	}
	for _, part := range []struct {
		service string
		fill    func(context.Context, *loader) error
	}{{clients.Name, fillClients}, {network.Name, fillNetwork}, {identity.Name, fillIdentity}, {pxe.Name, fillPXE}} {
		if err := fillService(ctx, urls[part.service], o, part.fill); err != nil {
			return fmt.Errorf("seed %s: %w", part.service, err)
		}
	}
	return nil
}

// fillService fills one service's schema in one transaction, and then updates the statistics of its tables.
func fillService(ctx context.Context, url secret.String, o Options, fill func(context.Context, *loader) error) error {
	conn, err := pgx.Connect(ctx, url.Reveal())
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	tx, err := conn.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	l := &loader{Options: o, tx: tx}
	if err := fill(ctx, l); err != nil {
		return err
	}
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	for _, table := range l.filled {
		if err := l.logDuration("analyze "+table, func() error {
			_, err := conn.Exec(ctx, "VACUUM (ANALYZE) "+pgx.Identifier{table}.Sanitize())
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

// loader writes the rows of one service in a transaction.
type loader struct {
	Options
	tx     pgx.Tx
	filled []string // the tables
}

// groups returns the number of IP groups. Each group is a site.
func (l *loader) groups() int { return max(5, int(math.Sqrt(float64(l.Entities)))) }

// random returns the random source of a table. Each table has its own, so that changes to one do not affect others.
func (l *loader) random(table uint64) *rand.Rand { return rand.New(rand.NewPCG(l.Seed, table)) }

// maxID returns the largest id of a table.
func (l *loader) maxID(ctx context.Context, table string) (id int64, err error) {
	err = l.tx.QueryRow(ctx, "SELECT coalesce(max(id), 0) FROM "+pgx.Identifier{table}.Sanitize()).Scan(&id)
	return id, err
}

// copy writes the rows 0 to n-1, and prints its progress. It skips a row if the function row returns nil for it.
func (l *loader) copy(ctx context.Context, table string, columns []string, n int, row func(i int) []any) error {
	started, shown, i := time.Now(), time.Now(), 0
	rows := pgx.CopyFromFunc(func() ([]any, error) {
		for i < n {
			values := row(i)
			i++
			if time.Since(shown) > 10*time.Second {
				shown = time.Now()
				fmt.Fprintf(l.Progress, "%s: %d of %d\n", table, i, n)
			}
			if values != nil {
				return values, nil
			}
		}
		return nil, nil
	})
	copied, err := l.tx.CopyFrom(ctx, pgx.Identifier{table}, columns, rows)
	if err != nil {
		return fmt.Errorf("copy into %s: %w", table, err)
	}
	l.filled = append(l.filled, table)
	fmt.Fprintf(l.Progress, "%s: %d rows in %v\n", table, copied, time.Since(started).Round(time.Millisecond))
	return nil
}

// setSequence lets the table's next id follow the written ones.
func (l *loader) setSequence(ctx context.Context, table string) error {
	_, err := l.tx.Exec(ctx, "SELECT setval(pg_get_serial_sequence($1, 'id'), max(id)) FROM "+pgx.Identifier{table}.Sanitize(), table)
	return err
}

// logDuration runs a step, and prints how long it took.
func (l *loader) logDuration(step string, do func() error) error {
	started := time.Now()
	if err := do(); err != nil {
		return fmt.Errorf("%s: %w", step, err)
	}
	fmt.Fprintf(l.Progress, "%s: %v\n", step, time.Since(started).Round(time.Millisecond))
	return nil
}
