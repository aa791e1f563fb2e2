// Seed fills an installation that is not running with rows such as a hosting company has: to try Ironplane, and to
// measure it, at that size.
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
	startTime = 2 * time.Minute
	fillTime  = 2 * time.Hour
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
		flags.Var(&entities, "rows", "how many IP entities there are to be, such as 10k, 1M or 10M; all else is in proportion")
		data := flags.String("data", "./data", "the `folder` of the data; a new one is made")
		number := flags.Uint64("seed", 1, "another `number` makes other rows")
		if err := flags.Parse(os.Args[1:]); err != nil {
			if errors.Is(err, flag.ErrHelp) {
				return nil
			}
			return err
		}
		if flags.NArg() > 0 {
			return fmt.Errorf("what is %q? All settings are flags: see -help", flags.Arg(0))
		}
		return fill(ctx, *data, secret.New(os.Getenv("DATABASE_URL")), rows.Options{
			Entities: int(entities), Seed: *number, MasterKey: secret.New(os.Getenv("IRONPLANE_MASTER_KEY")), Progress: os.Stderr})
	})
}

func fill(ctx context.Context, data string, admin secret.String, o rows.Options) (err error) {
	starting, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	if admin.IsZero() {
		var postgres *devservers.Postgres
		if postgres, admin, err = product.StartPostgres(starting, data); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, postgres.Stop(context.WithoutCancel(ctx))) }()
	}
	alone, err := product.NewClaim(starting, admin)
	if err != nil {
		return err
	}
	defer alone.Close(context.WithoutCancel(ctx))
	urls, err := product.Bootstrap(starting, admin, data)
	if err != nil {
		return err
	}
	if o.MasterKey.IsZero() {
		if err := alone.WithConnection(starting, func(conn *pgx.Conn) (err error) {
			o.MasterKey, err = product.EnsureMasterKey(starting, data, conn)
			return err
		}); err != nil {
			return err
		}
	}
	if err := product.Migrate(starting, urls); err != nil {
		return err
	}
	if err := makeFirstAdmin(starting, urls[identity.Name]); err != nil {
		return err
	}
	filling, cancel := context.WithTimeout(ctx, fillTime)
	defer cancel()
	return rows.Fill(filling, urls, o)
}

// makeFirstAdmin comes before the admins that nobody has a key of.
func makeFirstAdmin(ctx context.Context, url secret.String) error {
	db, err := pool.Open(ctx, url.Reveal(), 1, nil)
	if err != nil {
		return err
	}
	defer db.Close()
	key, made, err := admin.CreateFirst(ctx, db.DB)
	if made {
		fmt.Printf("The first admin's key, which is shown this once:\n\n  %s\n\n", key.Reveal())
	}
	return err
}

// count is a number that may end in k or M.
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
		return fmt.Errorf("it is a number up to %dM, such as 10k or 1M", rows.MaxEntities/1_000_000)
	}
	*c = count(n * unit)
	return nil
}
