package network

import (
	"context"
	"fmt"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
)

// The statuses of an IP entity. Only available ones are allocated.
const (
	available   = "available"
	assigned    = "assigned"
	reserved    = "reserved"    // set aside, as its note says
	quarantined = "quarantined" // released, and available again from available_at on
)

// checkEntity refuses a new owner that is no client, and a status that the entity cannot change to. It sets the body's
// status to the one that the entity gets.
func (s *Service) checkEntity(ctx context.Context, tx *pg.Tx, id int64, before, b *ipEntityBody) error {
	if before == nil {
		before = &ipEntityBody{Status: available}
	}
	b.before = before
	if b.Owner.ID == nil {
		return b.checkUnassigned(before)
	}
	if err := b.checkAssigned(ctx, id, before); err != nil {
		return err
	}
	if before.Owner.ID != nil && *before.Owner.ID == *b.Owner.ID {
		return nil
	}
	return s.clients.Hold(ctx, tx, *b.Owner.ID, "/owner/id")
}

// checkAssigned checks the status of a body with an owner. A status that says what it was before was only sent back.
func (b *ipEntityBody) checkAssigned(ctx context.Context, id int64, before *ipEntityBody) error {
	if b.Status != "" && b.Status != assigned && b.Status != before.Status {
		return problem.Member("/status", "conflict", "cannot be %s where owner is set: leave it out", b.Status)
	}
	if b.Note != nil && !isSame(b.Note, before.Note) {
		return problem.Member("/note", "conflict", "can only be set for a reserved IP entity")
	}
	if before.Status == reserved && !isAdmin(ctx) {
		return problem.New(problem.Forbidden, "IP entity %d is reserved. Only an admin can assign it.", id)
	}
	b.Status, b.Note = assigned, nil
	return nil
}

// checkUnassigned checks the status and the note of a body without an owner.
func (b *ipEntityBody) checkUnassigned(before *ipEntityBody) error {
	switch from, to := before.Status, b.Status; {
	case from == assigned && (to == assigned || to == ""): // its ownership ends
		b.Status = available
	case to == "":
		b.Status = from
	case to == from, from == available && to == reserved, from == reserved && to == available, from == quarantined && to == available:
	case to == assigned:
		return problem.Member("/status", "conflict", "follows from owner: send owner to assign the IP entity")
	case to == quarantined:
		return problem.Member("/status", "conflict", "cannot be set to quarantined: an IP entity is quarantined when it is released")
	case from == assigned:
		return problem.Member("/status", "conflict", "cannot be %s while the IP entity is assigned: release it first", to)
	default:
		return problem.Member("/status", "conflict", "cannot change from %s to %s: set it to available first", from, to)
	}
	if b.Status == reserved || b.Note == nil {
		return nil
	}
	if !isSame(b.Note, before.Note) {
		return problem.Member("/note", "conflict", "can only be set for a reserved IP entity")
	}
	b.Note = nil
	return nil
}

func isSame(a, b *string) bool { return a == b || a != nil && b != nil && *a == *b }

// isAdmin reports whether the caller is an admin, rather than an integration or a client.
func isAdmin(ctx context.Context) bool {
	p := principal.FromContext(ctx).Principal
	return p != nil && p.Owner.Type == principal.Admin
}

const (
	// assignSQL sets the owner. A reservation or a quarantine ends with it.
	assignSQL = `
		INSERT INTO ip_assignment AS a (entity_id, group_id, owner_id, server_id, server_name) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (entity_id) DO UPDATE SET owner_id = EXCLUDED.owner_id,
			owner_name = CASE WHEN a.owner_id = EXCLUDED.owner_id THEN a.owner_name ELSE EXCLUDED.owner_name END,
			owner_missing = a.owner_missing AND a.owner_id = EXCLUDED.owner_id,
			server_id = EXCLUDED.server_id, server_name = EXCLUDED.server_name`

	reserveSQL = `
		INSERT INTO ip_assignment (entity_id, group_id, note) VALUES ($1, $2, $3)
		ON CONFLICT (entity_id) DO UPDATE SET note = EXCLUDED.note, available_at = NULL`

	// endHoldSQL makes an entity available. The trigger ip_assignment_kept keeps what is not due.
	endHoldSQL = `UPDATE ip_assignment SET note = NULL, available_at = now() WHERE entity_id = $1 AND owner_id IS NULL`
	freeSQL    = `DELETE FROM ip_assignment WHERE entity_id = $1`
)

// assign gives the entity the status of the body, and its owner.
func (b *ipEntityBody) assign(ctx context.Context, tx *pg.Tx, id int64) (err error) {
	switch o := b.Owner; {
	case b.Status == assigned:
		_, err = tx.Exec(ctx, assignSQL, id, b.Group, o.ID, o.Server.ID, o.Server.Name)
	case b.Status == reserved:
		_, err = tx.Exec(ctx, reserveSQL, id, b.Group, b.Note)
	case b.Status == available && b.before.Status != available:
		if _, err = tx.Exec(ctx, endHoldSQL, id); err == nil {
			_, err = tx.Exec(ctx, freeSQL, id)
		}
	}
	if err != nil {
		return fmt.Errorf("make IP entity %d %s: %w", id, b.Status, err)
	}
	return nil
}
