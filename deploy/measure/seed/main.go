// Seed fills a stopped installation with rows like those of a hosting company, to try or measure Ironplane at that size.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/deploy/measure/seed/rows"
	"github.com/ironplane/ironplane/pkg/devservers"
	"github.com/ironplane/ironplane/pkg/postgres/pool"
	"github.com/ironplane/ironplane/pkg/runtime/process"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/services/identity"
	"github.com/ironplane/ironplane/services/identity/admin"
)

const (
	startTimeout = 2 * time.Minute
	fillTimeout  = 2 * time.Hour
)

func main() {
	process.Main(func(ctx context.Context) error {
		entities := count(10_000)
		flags := flag.NewFlagSet("seed", flag.ContinueOnError)
		flags.Usage = func() {
			fmt.Fprint(
				flags.Output(),
				"Usage: seed [flags]\n\nFills the data of a stopped standalone, or the database at DATABASE_URL if that is set.\n\n",
			)
			flags.PrintDefaults()
		}
		flags.Var(&entities, "rows", "the number of IP entities, such as 10k, 1M or 10M; other items are in proportion")
		data := flags.String("data", "./data", "the data `folder`; created if it does not exist")
		number := flags.Uint64("seed", 1, "the `number` that the random rows depend on")
		if err := flags.Parse(os.Args[1:]); err != nil {
			if errors.Is(err, flag.ErrHelp) {
				return nil
			}
			return err
		}
		if flags.NArg() > 0 {
			return fmt.Errorf("unexpected argument %q: see -help for the flags", flags.Arg(0))
		}
		return fill(ctx, *data, secret.New(os.Getenv("DATABASE_URL")), rows.Options{
			Entities: int(entities), Seed: *number, MasterKey: secret.New(os.Getenv("IRONPLANE_MASTER_KEY")), Progress: os.Stderr})
	})
}

// fill migrates the database and writes the rows. It refuses to run beside a standalone.
func fill(ctx context.Context, data string, admin secret.String, o rows.Options) (err error) {
	starting, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if admin.IsZero() {
		var postgres *devservers.Postgres
		if postgres, admin, err = product.StartPostgres(starting, data); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, postgres.Stop(context.WithoutCancel(ctx))) }()
	}
	claim, err := product.NewClaim(starting, admin)
	if err != nil {
		return err
	}
	defer claim.Close(context.WithoutCancel(ctx))
	urls, err := product.Bootstrap(starting, admin, data)
	if err != nil {
		return err
	}
	if o.MasterKey.IsZero() {
		if err := claim.WithConnection(starting, func(conn *pgx.Conn) (err error) {
			o.MasterKey, err = product.EnsureMasterKey(starting, data, conn)
			return err
		}); err != nil {
			return err
		}
	}
	if err := product.Migrate(starting, urls); err != nil {
		return err
	}
	if err := createFirstAdmin(starting, urls[identity.Name]); err != nil {
		return err
	}
	filling, cancel := context.WithTimeout(ctx, fillTimeout)
	defer cancel()
	return rows.Fill(filling, urls, o)
}

// createFirstAdmin creates the first admin with an API key. It runs before the seeded admins, whose keys are unknown.
func createFirstAdmin(ctx context.Context, url secret.String) error {
	db, err := pool.Open(ctx, url.Reveal(), 1, pool.Options{})
	if err != nil {
		return err
	}
	defer db.Close()
	key, created, err := admin.CreateFirst(ctx, db.DB)
	if created {
		fmt.Printf("The first admin's key, which is shown only now:\n\n  %s\n\n", key.Reveal())
	}
	return err
}

// count is a flag's number that may end in k or M.
type count int

func (c *count) String() string { return strconv.Itoa(int(*c)) }

func (c *count) Set(text string) error {
	digits, unit := text, 1
	for suffix, n := range map[string]int{"k": 1000, "M": 1_000_000} {
		if strings.HasSuffix(text, suffix) {
			digits, unit = strings.TrimSuffix(text, suffix), n
		}
	}
	n, err := strconv.Atoi(digits)
	if err != nil || n < 1 || n > rows.MaxEntities/unit {
		return fmt.Errorf("must be a number up to %dM, such as 10k or 1M", rows.MaxEntities/1_000_000)
	}
	*c = count(n * unit)
	return nil
}
