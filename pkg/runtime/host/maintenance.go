package host

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/runtime/maintenance"
	"github.com/ironplane/ironplane/pkg/service"
)

//go:embed migrations/*.sql
var ownMigrations embed.FS

// maintenanceInterval is how often an instance reads whether maintenance is on. The command that switches it reaches the database
// alone, so nothing wakes the instance.
const maintenanceInterval = 2 * time.Second

// MaintenanceState is what a schema has stored of maintenance. The zero value is that of a schema in which it was never switched.
type MaintenanceState struct {
	Active bool
	Since  time.Time
	Reason string
}

// Status returns the state as instances use it; nil: maintenance is off.
func (s MaintenanceState) Status() *maintenance.Status {
	if !s.Active {
		return nil
	}
	return &maintenance.Status{Since: s.Since, Reason: s.Reason, By: maintenance.BySwitch}
}

// ReadMaintenance returns the state that a schema has stored.
func ReadMaintenance(ctx context.Context, q pg.Querier) (s MaintenanceState, err error) {
	err = q.QueryRow(ctx, "SELECT active, since, reason FROM maintenance").Scan(&s.Active, &s.Since, &s.Reason)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return s, fmt.Errorf("read whether maintenance is on: %w", err)
	}
	s.Since = s.Since.UTC()
	return s, nil
}

// StoreMaintenance stores a state in a schema. Instances follow within a few seconds.
func StoreMaintenance(ctx context.Context, tx *pg.Tx, s MaintenanceState) error {
	_, err := tx.Exec(ctx, `
		INSERT INTO maintenance (active, since, reason) VALUES ($1, $2, $3)
		ON CONFLICT (one) DO UPDATE SET active = EXCLUDED.active, since = EXCLUDED.since, reason = EXCLUDED.reason`,
		s.Active, s.Since, s.Reason)
	if err != nil {
		return fmt.Errorf("store whether maintenance is on: %w", err)
	}
	return nil
}

// newSwitch returns the switch of an instance, with the state that the schema has stored, and the task that follows it. The instance
// keeps the last state while the database is away.
func newSwitch(ctx context.Context, db *pg.DB, file maintenance.File) (*maintenance.Switch, service.Task, error) {
	s := &maintenance.Switch{File: file}
	follow := func(ctx context.Context) error {
		stored, err := ReadMaintenance(ctx, db)
		if err == nil {
			s.Set(stored.Status())
		}
		return err
	}
	return s, service.Every(maintenanceInterval, "follow-maintenance", follow), follow(ctx)
}
