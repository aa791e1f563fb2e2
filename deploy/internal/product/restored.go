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

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/events"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/postgres/pool"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/services/identity/restore"
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
var errCameBack = errors.New(
	"nothing is done yet: say with IRONPLANE_TAKE_BACK=yes that the above is taken away again, or with IRONPLANE_TAKE_BACK=no that it is left",
)

// TakeUp brings the schemas up to date and takes up those that were restored. Nothing runs on them meanwhile. It says
// what they lack that the log has.
func TakeUp(ctx context.Context, urls map[string]secret.String, c RestoredConfig, screen io.Writer) error {
	if err := Migrate(ctx, urls); err != nil {
		return err
	}
	schemas := map[string]*pg.DB{}
	for name, url := range urls {
		db, err := pool.Open(ctx, url.Reveal(), 1, nil)
		if err != nil {
			return fmt.Errorf("open the schema of %s: %w", name, err)
		}
		defer db.Close()
		schemas[name] = db.DB
	}
	names, err := restoredOf(ctx, schemas, c.Whole)
	if err != nil {
		return err
	}
	if len(names) == 0 {
		return errors.New(
			"no schema was restored from a dump; where the whole database was put back in another way, say so with IRONPLANE_RESTORED_WHOLE=true",
		)
	}
	all, found := make([]restored, len(names)), 0
	for n, name := range names {
		if all[n], err = look(ctx, schemas, name, screen); err != nil {
			return fmt.Errorf("look at %s: %w", name, err)
		}
		found += len(all[n].back)
	}
	if found > 0 && c.TakeBack == "" {
		return errCameBack
	}
	for _, r := range all {
		if err := r.takeUp(ctx, schemas, c.TakeBack == "yes", screen); err != nil {
			return fmt.Errorf("take up %s: %w", r.name, err)
		}
	}
	return nil
}

// restored is a schema that was restored.
type restored struct {
	name string
	*history
	back []service.RestoredAccess
}

func restoredOf(ctx context.Context, schemas map[string]*pg.DB, whole bool) (names []string, err error) {
	for _, name := range Names() {
		_, err := events.CurrentHistory(ctx, schemas[name])
		if err != nil && !errors.Is(err, events.ErrRestored) {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if whole || err != nil {
			names = append(names, name)
		}
	}
	return names, nil
}

// look says what came back with a schema, and changes nothing.
func look(ctx context.Context, schemas map[string]*pg.DB, name string, screen io.Writer) (r restored, err error) {
	r.name = name
	if r.history, err = historyOf(ctx, schemas, name); err != nil {
		return r, err
	}
	d := Services[slices.Index(Names(), name)]
	if d.FindRestored == nil {
		return r, nil
	}
	lost, err := lostOf(ctx, schemas, d, r.lostAfter)
	if err != nil {
		return r, err
	}
	if r.back, err = d.FindRestored(ctx, schemas[name], lost); err != nil {
		return r, err
	}
	for _, b := range r.back {
		fmt.Fprintf(screen, "%s, and is back as it was.\n", b.Description)
	}
	return r, nil
}

func (r *restored) takeUp(ctx context.Context, schemas map[string]*pg.DB, takeBack bool, screen io.Writer) error {
	left := []string{}
	err := schemas[r.name].InTx(principal.With(ctx, &principal.Call{RequestID: "restored"}), func(tx *pg.Tx) error {
		if err := r.begin(ctx, tx); err != nil || !takeBack {
			return err
		}
		left = left[:0]
		for _, b := range r.back {
			switch err := b.Revoke(ctx, tx); {
			case errors.Is(err, restore.ErrLastAdmin):
				left = append(left, fmt.Sprintf("%s: %v.\n", b.Description, err))
			case err != nil:
				return fmt.Errorf("take back that %s: %w", b.Description, err)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if takeBack && len(r.back) > 0 {
		fmt.Fprintf(screen, "%d of these are taken away again.\n", len(r.back)-len(left))
	}
	for _, what := range left {
		fmt.Fprint(screen, what)
	}
	fmt.Fprintf(screen, "%s is taken up: it has its changes up to %d, and goes on behind %d.\n", r.name, r.lostAfter, r.began)
	return r.printLost(ctx, schemas[system.Name], r.name, screen)
}

// lostOf is what a service has lost of the changes that take something away: as the log has them behind the last one that
// the service has, and of accounts that others refer to, as those know them.
func lostOf(ctx context.Context, schemas map[string]*pg.DB, d service.Definition, lostAfter int64) (lost []service.LostChange, err error) {
	rows, err := schemas[system.Name].Query(
		ctx,
		"SELECT type, targets::text, changes::text FROM log WHERE source = $1 AND seq > $2 AND type = ANY ($3) ORDER BY id",
		d.Name,
		lostAfter,
		d.RevocationTypes,
	)
	if err != nil {
		return nil, fmt.Errorf("read what was taken away: %w", err)
	}
	var kind, targets, changes string
	if _, err := pgx.ForEachRow(rows, []any{&kind, &targets, &changes}, func() error {
		var of []pg.Target
		l := service.LostChange{Type: kind}
		if err := errors.Join(json.Unmarshal([]byte(targets), &of), json.Unmarshal([]byte(changes), &l.Changes)); err != nil || len(of) == 0 {
			return err
		}
		l.ID, l.Version = of[0].ID, of[0].Version
		lost = append(lost, l)
		return nil
	}); err != nil {
		return nil, fmt.Errorf("read what was taken away: %w", err)
	}
	for name, db := range schemas {
		rows, err := db.Query(
			ctx,
			"SELECT type || CASE WHEN gone THEN '.deleted' ELSE '.edited' END, id, version FROM ref WHERE type || '.deleted' = ANY ($1)",
			d.RevocationTypes,
		)
		if err != nil {
			return nil, fmt.Errorf("read which accounts %s knows: %w", name, err)
		}
		var l service.LostChange
		if _, err := pgx.ForEachRow(rows, []any{&l.Type, &l.ID, &l.Version}, func() error {
			lost = append(lost, l)
			return nil
		}); err != nil {
			return nil, fmt.Errorf("read which accounts %s knows: %w", name, err)
		}
	}
	return lost, nil
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
	rows, err := log.Query(
		ctx,
		"SELECT id, at, description, coalesce(user_name, '')"+which+" ORDER BY id LIMIT $4",
		source,
		h.lostAfter,
		kept,
		mostLost,
	)
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
