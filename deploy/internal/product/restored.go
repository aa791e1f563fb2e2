package product

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/events"
	"github.com/ironplane/ironplane/pkg/pg"
	"github.com/ironplane/ironplane/pkg/principal"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/process/pool"
	"github.com/ironplane/ironplane/services/identity"
	"github.com/ironplane/ironplane/services/system"
)

// RestoredConfig is what the command that takes up what was restored is told.
type RestoredConfig struct {
	Whole    bool   `env:"IRONPLANE_RESTORED_WHOLE" default:"false" doc:"for restored: whether the whole database was put back otherwise than from a dump, as to a point in time"`
	TakeBack Answer `env:"IRONPLANE_TAKE_BACK" doc:"for restored: yes takes keys, permissions and accounts away again that had been taken away and came back, no leaves them"`
}

// Answer is yes, no, or none.
type Answer string

// UnmarshalText reads it.
func (a *Answer) UnmarshalText(text []byte) error {
	if *a = Answer(text); *a != "" && *a != "yes" && *a != "no" {
		return errors.New("it is neither yes nor no")
	}
	return nil
}

// errCameBack says that somebody has to decide.
var errCameBack = errors.New("nothing is done yet: say with IRONPLANE_TAKE_BACK=yes that the above is taken away again, or with IRONPLANE_TAKE_BACK=no that it is left")

// TakeUp brings the schemas up to date and takes up those that were restored. Nothing runs on them meanwhile. It says
// what they lack that the log has.
func TakeUp(ctx context.Context, urls map[string]secret.String, c RestoredConfig, screen io.Writer) error {
	if err := Migrate(ctx, urls); err != nil {
		return err
	}
	schemas := map[string]*pg.DB{}
	for name, url := range urls {
		db, err := pool.Open(ctx, url.Reveal(), 1)
		if err != nil {
			return fmt.Errorf("open the schema of %s: %w", name, err)
		}
		defer db.Close()
		schemas[name] = db.DB
	}
	restored, err := restoredOf(ctx, schemas, c.Whole)
	if err != nil {
		return err
	}
	if len(restored) == 0 {
		return errors.New("no schema was restored from a dump; where the whole database was put back in another way, say so with IRONPLANE_RESTORED_WHOLE=true")
	}
	for _, name := range restored {
		if err := takeUp(ctx, schemas, name, c.TakeBack, screen); err != nil {
			return fmt.Errorf("take up %s: %w", name, err)
		}
	}
	return nil
}

func restoredOf(ctx context.Context, schemas map[string]*pg.DB, whole bool) (restored []string, err error) {
	for _, name := range Names() {
		_, err := events.History(ctx, schemas[name])
		if err != nil && !errors.Is(err, events.ErrRestored) {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if whole || err != nil {
			restored = append(restored, name)
		}
	}
	return restored, nil
}

func takeUp(ctx context.Context, schemas map[string]*pg.DB, name string, takeBack Answer, screen io.Writer) error {
	h, err := historyOf(ctx, schemas, name)
	if err != nil {
		return err
	}
	var back []identity.CameBack
	if name == identity.Name {
		if back, err = cameBack(ctx, schemas, h.lostAfter); err != nil {
			return err
		}
		for _, b := range back {
			fmt.Fprintf(screen, "%s, and is back as it was.\n", b.What)
		}
		if len(back) > 0 && takeBack == "" {
			return errCameBack
		}
	}
	left := []string{}
	err = schemas[name].InTx(principal.With(ctx, &principal.Call{RequestID: "restored"}), func(tx *pg.Tx) error {
		if err := h.begin(ctx, tx); err != nil || takeBack != "yes" {
			return err
		}
		left = left[:0]
		for _, b := range back {
			switch err := b.Take(ctx, tx); {
			case errors.Is(err, identity.ErrLastAdmin):
				left = append(left, fmt.Sprintf("%s: %v.\n", b.What, err))
			case err != nil:
				return fmt.Errorf("take back that %s: %w", b.What, err)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if takeBack == "yes" && len(back) > 0 {
		fmt.Fprintf(screen, "%d of these are taken away again.\n", len(back)-len(left))
	}
	for _, what := range left {
		fmt.Fprint(screen, what)
	}
	fmt.Fprintf(screen, "%s is taken up: it has its changes up to %d, and goes on behind %d.\n", name, h.lostAfter, h.began)
	return h.printLost(ctx, schemas[system.Name], name, screen)
}

// cameBack is what the log has as taken away of keys and accounts behind identity's last change, and is there again.
func cameBack(ctx context.Context, schemas map[string]*pg.DB, lostAfter int64) ([]identity.CameBack, error) {
	rows, err := schemas[system.Name].Query(ctx, "SELECT type, targets::text, changes::text FROM log WHERE source = $1 AND seq > $2 AND type = ANY ($3) ORDER BY id",
		identity.Name, lostAfter, identity.LoggedTypes())
	if err != nil {
		return nil, fmt.Errorf("read what was taken away: %w", err)
	}
	var taken identity.TakenAway
	var kind, targets, changes string
	if _, err := pgx.ForEachRow(rows, []any{&kind, &targets, &changes}, func() error {
		var of []pg.Target
		var what identity.Logged
		if err := errors.Join(json.Unmarshal([]byte(targets), &of), json.Unmarshal([]byte(changes), &what)); err != nil || len(of) == 0 {
			return err
		}
		return taken.Note(kind, of[0].ID, what)
	}); err != nil {
		return nil, fmt.Errorf("read what was taken away: %w", err)
	}
	return taken.CameBack(ctx, schemas[identity.Name])
}

// mostLost is how many lost changes are printed.
const mostLost = 1000

// printLost prints what the log has of a service behind its last change.
func (h *history) printLost(ctx context.Context, log *pg.DB, source string, screen io.Writer) error {
	const which = " FROM log WHERE source = $1 AND seq > $2 AND seq <> ALL ($3)"
	kept := slices.AppendSeq([]int64{}, maps.Values(h.kept))
	var lost int
	if err := log.QueryRow(ctx, "SELECT count(*)"+which, source, h.lostAfter, kept).Scan(&lost); err != nil || lost == 0 {
		return err
	}
	fmt.Fprintf(screen, "%d of its changes are in the log, and lost to it:\n", lost)
	rows, err := log.Query(ctx, "SELECT id, at, description, coalesce(user_name, '')"+which+" ORDER BY id LIMIT $4", source, h.lostAfter, kept, mostLost)
	if err != nil {
		return fmt.Errorf("read what is lost: %w", err)
	}
	var id int64
	var at time.Time
	var description, user string
	_, err = pgx.ForEachRow(rows, []any{&id, &at, &description, &user}, func() error {
		_, err := fmt.Fprintf(screen, "  item %d, %s, %s: %s\n", id, at.UTC().Format(time.DateTime), user, description)
		return err
	})
	if err == nil && lost > mostLost {
		_, err = fmt.Fprintf(screen, "  and %d more\n", lost-mostLost)
	}
	return err
}
