package install

import (
	"context"
	"fmt"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/services/pxe/reference"
)

// start assigns slots after an install was created or restarted, takes the IP entity's address from earlier installs,
// and deletes the discovery of the machine.
func (s *Installs) start(ctx context.Context, tx *pg.Tx, id int64) error {
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
		return fmt.Errorf("delete the discovered machine: %w", err)
	}
	if err := s.claimAddress(ctx, tx, id); err != nil {
		return err
	}
	return touchSharedMACs(ctx, tx, id)
}

// claimAddress takes the address of an install's IP entity from the machines that were installed with it before.
func (s *Installs) claimAddress(ctx context.Context, tx *pg.Tx, id int64) error {
	return releaseAddresses(ctx, tx, "id <> $1 AND host_entity_id = (SELECT host_entity_id FROM install WHERE id = $1)", id)
}

// releaseEntity takes the address of an IP entity from the machines that were installed with it, except those of a
// client (0: no exception). It cancels the other clients' own installs.
func (s *Installs) releaseEntity(ctx context.Context, tx *pg.Tx, entity, client int64) error {
	const others = "host_entity_id = $1 AND client_id IS DISTINCT FROM $2"
	_, err := tx.Exec(ctx, "UPDATE install SET owner_left = true WHERE id IN (SELECT id FROM install WHERE "+others+
		" AND NOT owner_left ORDER BY id FOR UPDATE)", entity, client)
	if err != nil {
		return fmt.Errorf("note that IP entity %d has passed to another owner: %w", entity, err)
	}
	if err := s.cancelReinstalls(ctx, tx, "The IP entity was released.", others, entity, client); err != nil {
		return err
	}
	return releaseAddresses(ctx, tx, others, entity, client)
}

// releaseAddresses makes DHCP stop offering an address to the machines of installs that have ended and meet an SQL
// condition.
func releaseAddresses(ctx context.Context, tx *pg.Tx, condition string, args ...any) error {
	_, err := tx.Exec(
		ctx,
		"UPDATE install SET address_left = true, revision = nextval('install_revision') WHERE id IN (SELECT id FROM install WHERE "+condition+
			" AND NOT address_left AND NOT "+reference.InstallUnfinished+" ORDER BY id FOR UPDATE)",
		args...)
	if err != nil {
		return fmt.Errorf("release the addresses of machines: %w", err)
	}
	return nil
}

// touchSharedMACs raises the revision of the other installs that share a MAC address with this one. So agents learn
// which install has the address now.
func touchSharedMACs(ctx context.Context, tx *pg.Tx, id int64) error {
	_, err := tx.Exec(ctx, `WITH others AS (
			SELECT id FROM install WHERE id <> $1 AND id IN (SELECT install_id FROM install_mac WHERE mac IN (SELECT mac FROM install_mac WHERE install_id = $1)) ORDER BY id FOR UPDATE)
		UPDATE install SET revision = nextval('install_revision') WHERE id IN (SELECT id FROM others)`, id)
	if err != nil {
		return fmt.Errorf("raise the revision of installs that share a MAC address with install %d: %w", id, err)
	}
	return nil
}

// cancel ends an install that has not ended.
func (s *Installs) cancel(ctx context.Context, tx *pg.Tx, id int64) (i Install, err error) {
	var status string
	if err := tx.QueryRow(ctx, "SELECT status FROM install WHERE id = $1 FOR UPDATE", id).Scan(&status); err != nil {
		return i, err
	}
	if isFinished(status) {
		return i, problem.New(problem.Conflict, "Install %d has already ended: it is %s.", id, status)
	}
	if err := s.setStatus(ctx, tx, id, Cancelled, ""); err != nil {
		return i, err
	}
	return View.Get(ctx, tx, id)
}

// failForDeletedEntity fails the unfinished installs of a deleted IP entity, and releases its addresses.
func (s *Installs) failForDeletedEntity(ctx context.Context, tx *pg.Tx, entity int64) error {
	var ids []int64
	if err := tx.QueryRow(
		ctx,
		"SELECT coalesce(array_agg(id), '{}') FROM (SELECT id FROM install WHERE host_entity_id = $1 AND "+
			reference.InstallUnfinished+" ORDER BY id FOR UPDATE) i",
		entity,
	).
		Scan(&ids); err != nil {
		return fmt.Errorf("find installs with IP entity %d: %w", entity, err)
	}
	for _, id := range ids {
		if err := s.setStatus(ctx, tx, id, Failed, "The IP entity was deleted."); err != nil {
			return err
		}
	}
	return s.releaseEntity(ctx, tx, entity, 0)
}
