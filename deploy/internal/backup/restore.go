package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/services/system"
)

// Target is the installation that a restore writes.
type Target struct {
	Installation
	// Marker is a file that exists while a restore is not finished. It names the archive, so that the same restore can run again
	// although the database has data by then.
	Marker         string
	WriteMasterKey func(secret.String) error
	// Bootstrap creates missing roles and schemas, and returns the URL of each schema by the service's name.
	Bootstrap func(context.Context) (map[string]secret.String, error)
	Reconcile product.ReconcileConfig
	Settings  service.Settings
}

// Restore replaces the installation's data by the archive's. No service may run meanwhile. A restore that was cut off can run again.
func (a *Archive) Restore(ctx context.Context, t Target, settingsTo string, screen io.Writer) error {
	masterKey, err := a.masterKey(t)
	if err != nil {
		return err
	}
	if err := a.checkStore(t); err != nil {
		return err
	}
	conn, err := connect(ctx, t.Admin)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if err := a.checkDatabase(ctx, conn, t); err != nil {
		return err
	}
	a.printVersion(screen)
	if err := writeFile(t.Marker, strings.NewReader(a.id), nil); err != nil {
		return fmt.Errorf("begin the restore: %w", err)
	}
	if !t.KeyIsSet {
		if err := t.WriteMasterKey(masterKey); err != nil {
			return fmt.Errorf("write the master key: %w", err)
		}
	}
	urls, err := a.restoreDatabase(ctx, conn, t)
	if err != nil {
		return err
	}
	if err := a.restoreStore(ctx, t.Store); err != nil {
		return fmt.Errorf("restore the store: %w", err)
	}
	if err := a.restoreSettings(t.Installation.Settings, settingsTo, screen); err != nil {
		return fmt.Errorf("restore the settings: %w", err)
	}
	if err := product.Reconcile(ctx, urls, t.Reconcile, screen); err != nil {
		return err
	}
	if err := verify(ctx, t, masterKey, screen); err != nil {
		return err
	}
	for _, missing := range a.Elsewhere {
		fmt.Fprintf(screen, "The archive does not have %s. Restore that, too.\n", missing)
	}
	return os.Remove(t.Marker)
}

// masterKey returns the key that opens the archive's data.
func (a *Archive) masterKey(t Target) (secret.String, error) {
	if a.parts[masterKeyName] == nil {
		if !t.KeyIsSet {
			return secret.String{}, errors.New("the archive does not have the master key; set IRONPLANE_MASTER_KEY to it")
		}
		return t.MasterKey, nil
	}
	text, err := a.text(masterKeyName)
	if err != nil {
		return secret.String{}, err
	}
	if !t.KeyIsSet {
		return secret.New(text), nil
	}
	for key := range strings.SplitSeq(text, ",") { // after a change of keys there are several
		if !slices.Contains(strings.Split(t.MasterKey.Reveal(), ","), key) {
			return secret.String{}, errors.New("IRONPLANE_MASTER_KEY lacks the archive's master key; unset it, or set it to the key of the backup")
		}
	}
	return t.MasterKey, nil
}

// checkStore returns an error if there is no folder for the files of the store.
func (a *Archive) checkStore(t Target) error {
	if a.hasStore() && (t.Store == "" || strings.HasPrefix(t.Store, bucketScheme)) {
		return errors.New("the archive has the files of the store; set IRONPLANE_STORE to the folder for them")
	}
	return nil
}

// checkDatabase returns an error if services use the database, or if it has data that may not be replaced.
func (a *Archive) checkDatabase(ctx context.Context, conn *pgx.Conn, t Target) error {
	schemas, err := findSchemas(ctx, conn)
	if err != nil {
		return err
	}
	var owners, used []string
	for _, s := range schemas {
		owners = append(owners, s.owner)
		if !s.isEmpty {
			used = append(used, s.service)
		}
	}
	var running []string
	err = conn.QueryRow(
		ctx,
		"SELECT coalesce(array_agg(DISTINCT usename::text), '{}') FROM pg_stat_activity "+
			"WHERE datname = current_database() AND usename = ANY ($1) AND pid <> pg_backend_pid()",
		owners,
	).Scan(&running)
	if err != nil {
		return fmt.Errorf("look for services that run: %w", err)
	}
	if len(running) > 0 {
		return fmt.Errorf("stop all services first: the database has sessions of %s", strings.Join(running, ", "))
	}
	begun, err := os.ReadFile(t.Marker)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if len(used) > 0 && !t.Replace && string(begun) != a.id {
		return fmt.Errorf(
			"the database has data of %s; set IRONPLANE_RESTORE_REPLACE=true to delete it, and put the backup in its place",
			strings.Join(used, ", "),
		)
	}
	return nil
}

// printVersion says where the archive is from, and whether schemas are newer than this program.
func (a *Archive) printVersion(screen io.Writer) {
	fmt.Fprintf(screen, "The backup is of %s, by version %s.\n", a.Created.Format("2006-01-02 15:04:05 MST"), a.Version)
	for _, d := range product.Services {
		if d.Migrations == nil {
			continue
		}
		var newest int64
		files, _ := fs.Glob(d.Migrations, "migrations/*.sql")
		for _, file := range files {
			number, _, _ := strings.Cut(path.Base(file), "_")
			n, _ := strconv.ParseInt(number, 10, 64)
			newest = max(newest, n)
		}
		if a.Schemas[d.Name] > newest {
			fmt.Fprintf(screen, "The schema of %s is newer than this program: %d, not %d. Upgrade soon.\n", d.Name, a.Schemas[d.Name], newest)
		}
	}
}

// restoreDatabase replaces the services' schemas.
func (a *Archive) restoreDatabase(ctx context.Context, conn *pgx.Conn, t Target) (map[string]secret.String, error) {
	for _, name := range product.Names() {
		if _, err := conn.Exec(ctx, "DROP SCHEMA IF EXISTS "+pgx.Identifier{name}.Sanitize()+" CASCADE"); err != nil {
			return nil, fmt.Errorf("drop the schema %s: %w", name, err)
		}
	}
	urls, err := t.Bootstrap(ctx)
	if err != nil {
		return nil, err
	}
	schemas, err := findSchemas(ctx, conn)
	if err != nil {
		return nil, err
	}
	for _, s := range schemas {
		part := a.parts[dumpName(s.service)]
		if part == nil { // the service is newer than the backup
			continue
		}
		if err := load(ctx, t.Admin, s, io.NewSectionReader(part, 0, part.Size())); err != nil {
			return nil, fmt.Errorf("restore the schema %s: %w", s.service, err)
		}
	}
	return urls, nil
}

// verify checks that the master key opens the restored data, and that the log was not altered.
func verify(ctx context.Context, t Target, masterKey secret.String, screen io.Writer) error {
	if err := product.CheckSchemas(ctx, t.Admin, masterKey); err != nil {
		return err
	}
	box, err := system.Definition.NewBox(masterKey)
	if err != nil {
		return err
	}
	db, err := product.OpenSchema(ctx, t.Admin, system.Name)
	if err != nil {
		return err
	}
	defer db.Close()
	return system.Verify(ctx, service.Deps{DB: db.DB, Box: box, Settings: t.Settings}, screen)
}

// names returns the names of the archive's parts in a folder, in order.
func (a *Archive) names(folder string) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(a.parts)) {
		if strings.HasPrefix(name, folder) {
			names = append(names, name)
		}
	}
	return names
}
