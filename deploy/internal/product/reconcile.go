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

// ReconcileConfig are the settings of the command `restored`.
type ReconcileConfig struct {
	Whole    bool   `env:"IRONPLANE_RESTORED_WHOLE" default:"false" doc:"for restored: whether the whole database was restored in another way than from a dump, such as to a point in time"`
	TakeBack Answer `env:"IRONPLANE_TAKE_BACK" doc:"for restored: yes revokes again the keys, permissions and accounts that the restore brought back, no leaves them"`
}

// Answer is "yes", "no", or empty.
type Answer string

// UnmarshalText reads the answer from a variable.
func (a *Answer) UnmarshalText(text []byte) error {
	if *a = Answer(text); *a != "" && *a != "yes" && *a != "no" {
		return errors.New(`must be "yes" or "no"`)
	}
	return nil
}

// errUndecided asks the operator for a decision about what the restore brought back.
var errUndecided = errors.New(
	"nothing was changed; set IRONPLANE_TAKE_BACK=yes to revoke the above again, or IRONPLANE_TAKE_BACK=no to leave it as restored",
)

// Reconcile migrates the schemas, and reconciles the restored ones with the others. It prints the changes that the log has and
// they lack. No service may run meanwhile.
func Reconcile(ctx context.Context, urls map[string]secret.String, c ReconcileConfig, screen io.Writer) error {
	if err := Migrate(ctx, urls); err != nil {
		return err
	}
	schemas := map[string]*pg.DB{}
	for name, url := range urls {
		db, err := pool.Open(ctx, url.Reveal(), 1, pool.Options{})
		if err != nil {
			return fmt.Errorf("open the schema of %s: %w", name, err)
		}
		defer db.Close()
		schemas[name] = db.DB
	}
	names, err := findRestored(ctx, schemas, c.Whole)
	if err != nil {
		return err
	}
	if len(names) == 0 {
		return errors.New(
			"no schema was restored from a dump; if the whole database was restored in another way, set IRONPLANE_RESTORED_WHOLE=true",
		)
	}
	all, found := make([]restored, len(names)), 0
	for n, name := range names {
		if all[n], err = examine(ctx, schemas, name, screen); err != nil {
			return fmt.Errorf("examine %s: %w", name, err)
		}
		found += len(all[n].undone)
	}
	if found > 0 && c.TakeBack == "" {
		return errUndecided
	}
	for _, r := range all {
		if err := r.reconcile(ctx, schemas, c.TakeBack == "yes", screen); err != nil {
			return fmt.Errorf("reconcile %s: %w", r.name, err)
		}
	}
	return alignMaintenance(ctx, schemas)
}

// restored is a schema that was restored.
type restored struct {
	name string
	*history
	undone []service.RestoredAccess // the revocations that the restore undid
}

// findRestored returns the names of the restored schemas: all of them if whole is set.
func findRestored(ctx context.Context, schemas map[string]*pg.DB, whole bool) (names []string, err error) {
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

// examine finds out what the restore of a schema undid, and prints it. It changes nothing.
func examine(ctx context.Context, schemas map[string]*pg.DB, name string, screen io.Writer) (r restored, err error) {
	r.name = name
	if r.history, err = findHistory(ctx, schemas, name); err != nil {
		return r, err
	}
	d := Services[slices.Index(Names(), name)]
	if d.FindRestored == nil {
		return r, nil
	}
	lost, err := findLost(ctx, schemas, d, r.lostAfter)
	if err != nil {
		return r, err
	}
	if r.undone, err = d.FindRestored(ctx, schemas[name], lost); err != nil {
		return r, err
	}
	for _, b := range r.undone {
		fmt.Fprintf(screen, "%s. The restore undid this.\n", b.Description)
	}
	return r, nil
}

// reconcile begins the schema's new history and, if takeBack is set, revokes again what the restore brought back. It leaves the
// last admin alone, and prints that.
func (r *restored) reconcile(ctx context.Context, schemas map[string]*pg.DB, takeBack bool, screen io.Writer) error {
	left := []string{}
	err := schemas[r.name].InTx(principal.NewContext(ctx, &principal.Call{RequestID: "restored"}), func(tx *pg.Tx) error {
		if err := r.begin(ctx, tx); err != nil || !takeBack {
			return err
		}
		left = left[:0]
		for _, b := range r.undone {
			switch err := b.Revoke(ctx, tx); {
			case errors.Is(err, restore.ErrLastAdmin):
				left = append(left, fmt.Sprintf("%s: %v.\n", b.Description, err))
			case err != nil:
				return fmt.Errorf("revoke again, because %s: %w", b.Description, err)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if takeBack && len(r.undone) > 0 {
		fmt.Fprintf(screen, "%d of these were revoked again.\n", len(r.undone)-len(left))
	}
	for _, line := range left {
		fmt.Fprint(screen, line)
	}
	fmt.Fprintf(screen, "%s is reconciled: it has its changes up to %d, and continues after %d.\n", r.name, r.lostAfter, r.began)
	return r.printLost(ctx, schemas[system.Name], r.name, screen)
}

// findLost returns the revoking changes that a service lost: those that the log has after the service's last change, and
// changes of accounts that other services' references know.
func findLost(
	ctx context.Context,
	schemas map[string]*pg.DB,
	d service.Definition,
	lostAfter int64,
) (lost []service.LostChange, err error) {
	rows, err := schemas[system.Name].Query(
		ctx,
		"SELECT type, targets::text, changes::text FROM log WHERE source = $1 AND seq > $2 AND type = ANY ($3) ORDER BY id",
		d.Name,
		lostAfter,
		d.RevocationTypes,
	)
	if err != nil {
		return nil, fmt.Errorf("read the lost changes: %w", err)
	}
	var kind, targets, changes string
	if _, err := pgx.ForEachRow(rows, []any{&kind, &targets, &changes}, func() error {
		var items []pg.Target
		l := service.LostChange{Type: kind}
		err := errors.Join(json.Unmarshal([]byte(targets), &items), json.Unmarshal([]byte(changes), &l.Changes))
		if err != nil || len(items) == 0 {
			return err
		}
		l.ID, l.Version = items[0].ID, items[0].Version
		lost = append(lost, l)
		return nil
	}); err != nil {
		return nil, fmt.Errorf("read the lost changes: %w", err)
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

// maxPrinted is how many lost changes are printed.
const maxPrinted = 1000

// printLost prints the changes that the log has after the service's last one.
func (h *history) printLost(ctx context.Context, log *pg.DB, source string, screen io.Writer) error {
	const fromLog = " FROM log WHERE source = $1 AND seq > $2 AND seq <> ALL ($3)"
	kept := slices.AppendSeq([]int64{}, maps.Values(h.kept))
	var lost int
	if err := log.QueryRow(ctx, "SELECT count(*)"+fromLog, source, h.lostAfter, kept).Scan(&lost); err != nil || lost == 0 {
		return err
	}
	fmt.Fprintf(screen, "Lost changes that the log has: %d\n", lost)
	rows, err := log.Query(
		ctx,
		"SELECT id, at, description, coalesce(user_name, '')"+fromLog+" ORDER BY id LIMIT $4",
		source,
		h.lostAfter,
		kept,
		maxPrinted,
	)
	if err != nil {
		return fmt.Errorf("read the lost changes from the log: %w", err)
	}
	var id int64
	var at time.Time
	var description, user string
	_, err = pgx.ForEachRow(rows, []any{&id, &at, &description, &user}, func() error {
		_, err := fmt.Fprintf(screen, "  item %d, %s, %s: %s\n", id, at.UTC().Format(time.DateTime), user, description)
		return err
	})
	if err == nil && lost > maxPrinted {
		_, err = fmt.Fprintf(screen, "  and %d more\n", lost-maxPrinted)
	}
	return err
}
