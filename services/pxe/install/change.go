package install

import (
	"context"
	"fmt"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/services/pxe/reference"
)

// begin has an install that was just written go on, if there is room for it. What was known of its machine is known no more.
func (s *Installs) begin(ctx context.Context, tx *pg.Tx, id int64) error {
	var fileServer *int64
	if err := tx.QueryRow(ctx, "SELECT file_server_id FROM install WHERE id = $1", id).Scan(&fileServer); err != nil {
		return fmt.Errorf("read install %d: %w", id, err)
	}
	if fileServer != nil {
		if err := lockSlots(ctx, tx, *fileServer); err != nil {
			return err
		}
		if err := grant(ctx, tx, []int64{*fileServer}); err != nil {
			return err
		}
	}
	if _, err := tx.Exec(ctx, "DELETE FROM discovery WHERE name IN (SELECT mac FROM install_mac WHERE install_id = $1)", id); err != nil {
		return fmt.Errorf("forget what was discovered: %w", err)
	}
	if err := s.takeAddress(ctx, tx, id); err != nil {
		return err
	}
	return touchOthers(ctx, tx, id)
}

// takeAddress has those that were installed with an install's IP entity before leave its address.
func (s *Installs) takeAddress(ctx context.Context, tx *pg.Tx, id int64) error {
	return leave(ctx, tx, "id <> $1 AND host_entity_id = (SELECT host_entity_id FROM install WHERE id = $1)", id)
}

// entityLeft has the machines that were installed with an IP entity leave its address, but for those of a client: 0 is nobody.
func (s *Installs) entityLeft(ctx context.Context, tx *pg.Tx, entity, client int64) error {
	return leave(ctx, tx, "host_entity_id = $1 AND client_id IS DISTINCT FROM $2", entity, client)
}

// leave has agents give the machines of some of the installs that have ended no address any more.
func leave(ctx context.Context, tx *pg.Tx, which string, args ...any) error {
	_, err := tx.Exec(
		ctx,
		"UPDATE install SET address_left = true, revision = nextval('install_revision') WHERE id IN (SELECT id FROM install WHERE "+which+
			" AND NOT address_left AND NOT "+reference.InstallUnderWay+" ORDER BY id FOR UPDATE)",
		args...)
	if err != nil {
		return fmt.Errorf("have machines leave their addresses: %w", err)
	}
	return nil
}

// touchOthers has agents be told anew of the other installs that have a MAC address of this one: it takes some, or leaves some.
func touchOthers(ctx context.Context, tx *pg.Tx, id int64) error {
	_, err := tx.Exec(ctx, `WITH others AS (
			SELECT id FROM install WHERE id <> $1 AND id IN (SELECT install_id FROM install_mac WHERE mac IN (SELECT mac FROM install_mac WHERE install_id = $1)) ORDER BY id FOR UPDATE)
		UPDATE install SET revision = nextval('install_revision') WHERE id IN (SELECT id FROM others)`, id)
	if err != nil {
		return fmt.Errorf("touch what else has a MAC address of install %d: %w", id, err)
	}
	return nil
}

// cancel ends an install.
func (s *Installs) cancel(ctx context.Context, tx *pg.Tx, id int64) (i Install, err error) {
	var status string
	if err := tx.QueryRow(ctx, "SELECT status FROM install WHERE id = $1 FOR UPDATE", id).Scan(&status); err != nil {
		return i, err
	}
	if ended(status) {
		return i, problem.New(problem.Conflict, "Install %d has ended: it is %s.", id, status)
	}
	if err := s.become(ctx, tx, id, Cancelled, ""); err != nil {
		return i, err
	}
	return View.Get(ctx, tx, id)
}

// entityGone fails the installs of an IP entity that is gone.
func (s *Installs) entityGone(ctx context.Context, tx *pg.Tx, entity int64) error {
	var ids []int64
	if err := tx.QueryRow(
		ctx,
		"SELECT coalesce(array_agg(id), '{}') FROM (SELECT id FROM install WHERE host_entity_id = $1 AND "+
			reference.InstallUnderWay+" ORDER BY id FOR UPDATE) i",
		entity,
	).
		Scan(&ids); err != nil {
		return fmt.Errorf("look for installs with IP entity %d: %w", entity, err)
	}
	for _, id := range ids {
		if err := s.become(ctx, tx, id, Failed, "Its IP entity is gone."); err != nil {
			return err
		}
	}
	return s.entityLeft(ctx, tx, entity, 0)
}
