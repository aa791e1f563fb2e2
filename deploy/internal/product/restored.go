package product

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/events"
	"github.com/ironplane/ironplane/pkg/pg"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/services/system"
)

// TakeUp takes up the schemas that were restored from a dump; all of them where whole says that the database was put back
// in another way, which leaves no trace in it. Nothing runs on them meanwhile. It says what they lack that the log has.
func TakeUp(ctx context.Context, admin secret.String, whole bool, screen io.Writer) error {
	schemas := map[string]*pg.DB{}
	for _, name := range Names() {
		db, err := OpenSchema(ctx, admin, name)
		if err != nil {
			return err
		}
		defer db.Close()
		schemas[name] = db.DB
	}
	restored, err := restoredOf(ctx, schemas, whole)
	if err != nil {
		return err
	}
	if len(restored) == 0 {
		return errors.New("no schema was restored from a dump; where the whole database was put back in another way, say so with IRONPLANE_RESTORED_WHOLE=true")
	}
	highest, err := highestID(ctx, schemas)
	if err != nil {
		return err
	}
	for _, d := range restored {
		known := events.Known{ID: highest}
		for _, reader := range schemas {
			of, err := events.KnownOf(ctx, reader, d.Name)
			if err != nil {
				return err
			}
			known.Histories, known.Seq = append(known.Histories, of.Histories...), max(known.Seq, of.Seq)
		}
		lost, err := events.TakeUp(ctx, schemas[d.Name], known)
		if err != nil {
			return fmt.Errorf("%s: %w", d.Name, err)
		}
		if _, err := fmt.Fprintf(screen, "%s is taken up: it has its changes up to %d, and goes on behind %d.\n", d.Name, lost.After, lost.Began); err != nil {
			return err
		}
		if err := printLost(ctx, schemas[system.Name], d.Name, lost.After, screen); err != nil {
			return err
		}
	}
	return nil
}

func restoredOf(ctx context.Context, schemas map[string]*pg.DB, whole bool) (restored []service.Definition, err error) {
	for _, d := range Services {
		err := events.Intact(ctx, schemas[d.Name])
		if err != nil && !errors.Is(err, events.ErrRestored) {
			return nil, fmt.Errorf("%s: %w", d.Name, err)
		}
		if whole || err != nil {
			restored = append(restored, d)
		}
	}
	return restored, nil
}

// highestID is the highest one that any schema knows of an item of another.
func highestID(ctx context.Context, schemas map[string]*pg.DB) (highest int64, err error) {
	for _, d := range Services {
		query := "SELECT coalesce(max(id), 0) FROM ref"
		if d.Name == system.Name {
			query = "SELECT coalesce(max(target_id), 0) FROM log_target WHERE type NOT LIKE 'event/%'"
		}
		var id int64
		if err := schemas[d.Name].QueryRow(ctx, query).Scan(&id); err != nil {
			return 0, fmt.Errorf("look for the highest id in %s: %w", d.Name, err)
		}
		highest = max(highest, id)
	}
	return highest, nil
}

// mostLost is how many lost changes are printed.
const mostLost = 1000

// printLost prints what the log has of a service behind its last change.
func printLost(ctx context.Context, log *pg.DB, source string, after int64, screen io.Writer) error {
	var lost int
	if err := log.QueryRow(ctx, "SELECT count(*) FROM log WHERE source = $1 AND seq > $2", source, after).Scan(&lost); err != nil || lost == 0 {
		return err
	}
	fmt.Fprintf(screen, "%d of its changes are in the log, and lost to it:\n", lost)
	rows, err := log.Query(ctx, "SELECT id, at, description, coalesce(user_name, '') FROM log WHERE source = $1 AND seq > $2 ORDER BY id LIMIT $3", source, after, mostLost)
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
