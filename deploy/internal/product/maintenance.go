package product

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/runtime/host"
	"github.com/ironplane/ironplane/pkg/runtime/maintenance"
	"github.com/ironplane/ironplane/pkg/runtime/process"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/services/system"
)

// Maintenance is what the commands of maintenance work on.
type Maintenance struct {
	Reason string             // for callers
	Files  []maintenance.File // those of the processes on this machine
	// AsAdministrator calls do with the URL of the installation's database.
	AsAdministrator func(ctx context.Context, do func(ctx context.Context, admin secret.String) error) error
	Screen          io.Writer
}

// MaintenanceCommands returns the commands of a program that switch maintenance. read is called after the configuration is read.
func MaintenanceCommands(read func() Maintenance) []process.Command {
	return []process.Command{
		{
			Name:    "maintenance-on",
			Summary: "let all instances of all services refuse changes and pause jobs until maintenance-off",
			Run:     func(ctx context.Context) error { return read().turn(ctx, true) },
		},
		{Name: "maintenance-off", Summary: "end the maintenance", Run: func(ctx context.Context) error { return read().turn(ctx, false) }},
		{Name: "maintenance-status", Summary: "print whether maintenance is on, since when and why", Run: func(ctx context.Context) error {
			return read().print(ctx)
		}},
		{
			Name:    "maintenance-file-on",
			Summary: "begin maintenance for the processes of this machine alone, by a file; it also works while the database is replaced",
			Run: func(context.Context) error {
				m := read()
				return m.forEachFile(func(f maintenance.File) error { return f.Begin(m.Reason) })
			},
		},
		{Name: "maintenance-file-off", Summary: "remove that file", Run: func(context.Context) error {
			return read().forEachFile(maintenance.File.End)
		}},
	}
}

// forEachFile calls do with each file, also after an error.
func (m Maintenance) forEachFile(do func(maintenance.File) error) (failed error) {
	for _, file := range m.Files {
		failed = errors.Join(failed, do(file))
	}
	return failed
}

// turn switches maintenance on or off, and prints what follows.
func (m Maintenance) turn(ctx context.Context, on bool) error {
	err := m.AsAdministrator(ctx, func(ctx context.Context, admin secret.String) error {
		return SwitchMaintenance(ctx, admin, on, m.Reason)
	})
	if err != nil {
		return err
	}
	if on {
		fmt.Fprintln(m.Screen, "Maintenance is on. All instances follow within 3 seconds. What they have begun ends within 30 seconds.")
		return nil
	}
	fmt.Fprintln(m.Screen, "Maintenance is off. All instances follow within 3 seconds.")
	m.printFiles()
	return nil
}

// print prints the state of the switch and of the files.
func (m Maintenance) print(ctx context.Context) error {
	err := m.AsAdministrator(ctx, func(ctx context.Context, admin secret.String) error {
		states, err := readMaintenance(ctx, admin)
		if err != nil {
			return err
		}
		newest, differ := newestMaintenance(states)
		if !differ {
			fmt.Fprintf(m.Screen, "Maintenance is %s.\n", describeMaintenance(newest.Status()))
			return nil
		}
		for _, name := range Names() {
			fmt.Fprintf(m.Screen, "Maintenance of %s is %s.\n", name, describeMaintenance(states[name].Status()))
		}
		fmt.Fprintln(m.Screen, "The services differ: run maintenance-on or maintenance-off again.")
		return nil
	})
	m.printFiles()
	return err
}

// printFiles prints the files that keep up maintenance whatever the switch says.
func (m Maintenance) printFiles() {
	for _, file := range m.Files {
		if status := file.Status(); status != nil {
			fmt.Fprintf(m.Screen, "The file %s says that maintenance is %s. The command maintenance-file-off removes it.\n",
				file, describeMaintenance(status))
		}
	}
}

func describeMaintenance(status *maintenance.Status) string {
	if status == nil {
		return "off"
	}
	return fmt.Sprintf("on since %s, with the reason %q", status.Since.UTC().Format(time.RFC3339), status.Reason)
}

// SwitchMaintenance switches maintenance on or off for all instances of all services. It tries all schemas, also after an error, and
// can run again.
func SwitchMaintenance(ctx context.Context, admin secret.String, on bool, reason string) error {
	wanted := host.MaintenanceState{Active: on, Since: time.Now().UTC().Truncate(time.Microsecond)}
	if on {
		wanted.Reason = maintenance.Reason(reason)
	}
	return inEachSchema(ctx, admin, func(name string, db *pg.DB) error {
		return db.InTx(principal.NewContext(ctx, &principal.Call{RequestID: "maintenance"}), func(tx *pg.Tx) error {
			before, err := host.ReadMaintenance(ctx, tx)
			if err != nil {
				return err
			}
			tx.Unrecorded("the system service records it for all services")
			after := wanted
			if before.Active == after.Active {
				after.Since = before.Since // the reason alone is new
			}
			if before == after {
				return nil
			}
			if name == system.Name {
				tx.Record(maintenanceRecord(before, after))
			}
			return host.StoreMaintenance(ctx, tx, after)
		})
	})
}

// maintenanceRecord returns the record of a switch for the log.
func maintenanceRecord(before, after host.MaintenanceState) pg.Record {
	type item struct {
		Active bool   `json:"active"`
		Reason string `json:"reason,omitempty"`
	}
	action := pg.Edited
	switch {
	case before.Active == after.Active:
	case after.Active:
		action = "began"
	default:
		action = "ended"
	}
	return pg.Record{Kind: "system", Part: "maintenance", Action: action,
		Before: item{before.Active, before.Reason}, After: item{after.Active, after.Reason}}
}

// readMaintenance returns the states that the schemas have stored, by the service's name.
func readMaintenance(ctx context.Context, admin secret.String) (map[string]host.MaintenanceState, error) {
	states := map[string]host.MaintenanceState{}
	err := inEachSchema(ctx, admin, func(name string, db *pg.DB) (err error) {
		states[name], err = host.ReadMaintenance(ctx, db)
		return err
	})
	return states, err
}

const undefinedTable = "42P01" // a code of PostgreSQL

// inEachSchema calls do with the schema of each service, as the administrator.
func inEachSchema(ctx context.Context, admin secret.String, do func(name string, db *pg.DB) error) (failed error) {
	for _, name := range Names() {
		db, err := OpenSchema(ctx, admin, name)
		if err == nil {
			err = do(name, db.DB)
			db.Close()
		}
		if refused, ok := errors.AsType[*pgconn.PgError](err); ok && refused.Code == undefinedTable {
			err = errors.New("its schema is older than this program: migrate it first, or use maintenance-file-on")
		}
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", name, err))
		}
	}
	return failed
}

// newestMaintenance returns the state that was stored last, and whether another schema has another one.
func newestMaintenance(states map[string]host.MaintenanceState) (newest host.MaintenanceState, differ bool) {
	for _, state := range states {
		if state.Since.After(newest.Since) {
			newest = state
		}
	}
	for _, state := range states {
		differ = differ || state.Active != newest.Active || state.Reason != newest.Reason
	}
	return newest, differ
}

// alignMaintenance stores the newest state in all schemas: a restored one has that of its backup.
func alignMaintenance(ctx context.Context, schemas map[string]*pg.DB) error {
	states := map[string]host.MaintenanceState{}
	for name, db := range schemas {
		var err error
		if states[name], err = host.ReadMaintenance(ctx, db); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	newest, differ := newestMaintenance(states)
	if !differ {
		return nil
	}
	for name, db := range schemas {
		err := db.InTx(ctx, func(tx *pg.Tx) error {
			tx.Unrecorded("the log has the state already")
			return host.StoreMaintenance(ctx, tx, newest)
		})
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}
