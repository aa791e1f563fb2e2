package network

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/settings"
	"github.com/ironplane/ironplane/services/network/field"
)

// The statuses of an IP entity. Only available ones are allocated.
const (
	available   = "available"
	assigned    = "assigned"
	reserved    = "reserved"    // set aside, as its note says
	quarantined = "quarantined" // released, and available again from available_at on
)

// checkEntity refuses a new owner that is no client, and a status that the entity cannot change to. It sets the members of
// the body to what the entity gets.
func (s *Service) checkEntity(ctx context.Context, tx *pg.Tx, id int64, before, b *ipEntityBody) error {
	if before == nil {
		before = &ipEntityBody{Status: available}
	} else if err := b.checkByClient(ctx, id, before); err != nil {
		return err
	}
	b.before = before
	check := b.checkUnassigned
	if b.Owner.ID != nil {
		check = func(hours int) error { return b.checkAssigned(ctx, id, hours) }
	}
	if err := check(settings.Quarantine.In(s.Settings.Values())); err != nil {
		return err
	}
	if b.endsOwnership() {
		b.forgetOwner()
		if err := s.deletionLeases.Acquire(ctx, tx, []int64{id}); err != nil { // no install uses it, or starts to
			return err
		}
	}
	if b.Owner.ID == nil || before.Owner.ID != nil && !b.endsOwnership() {
		return nil
	}
	if err := checkReservedGroup(ctx, tx, int64(b.Group)); err != nil {
		return err
	}
	return s.clients.Hold(ctx, tx, *b.Owner.ID, "/owner/id")
}

// checkReservedGroup refuses to let callers that are not admins assign entities of a reserved group.
func checkReservedGroup(ctx context.Context, tx *pg.Tx, group int64) error {
	if isAdmin(ctx) {
		return nil
	}
	var isReserved bool
	if err := tx.QueryRow(ctx, "SELECT coalesce((SELECT reserved FROM ip_group WHERE id = $1), false)", group).Scan(&isReserved); err != nil {
		return fmt.Errorf("read whether IP group %d is reserved: %w", group, err)
	}
	if isReserved {
		return problem.New(problem.Forbidden, "IP group %d is reserved. Only an admin can assign its IP entities.", group)
	}
	return nil
}

// endsOwnership reports whether the entity had another owner.
func (b *ipEntityBody) endsOwnership() bool {
	was, is := b.before.Owner.ID, b.Owner.ID
	return was != nil && (is == nil || *is != *was)
}

// forgetOwner clears what the former owner is known by, unless the body changes it.
func (b *ipEntityBody) forgetOwner() {
	if isSame(b.Nickname, b.before.Nickname) {
		b.Nickname = nil
	}
	if server, was := &b.Owner.Server, b.before.Owner.Server; server.ID != nil && was.ID != nil && *server.ID == *was.ID {
		server.ID, server.Name = nil, nil
	}
}

// checkAssigned checks the status of a body with an owner. A status that says what it was before was only sent back.
// hours is the length of a quarantine.
func (b *ipEntityBody) checkAssigned(ctx context.Context, id int64, hours int) error {
	before := b.before
	switch {
	case b.Status != "" && b.Status != assigned && b.Status != before.Status:
		return problem.Member("/status", "conflict", "cannot be %s where owner is set: leave it out", b.Status)
	case b.Note != nil && !isSame(b.Note, before.Note):
		return problem.Member("/note", "conflict", "can only be set for a reserved IP entity")
	case isAdmin(ctx):
	case before.Status == reserved:
		return problem.New(problem.Forbidden, "IP entity %d is reserved. Only an admin can assign it.", id)
	case before.Status == quarantined:
		return problem.New(problem.Forbidden, "IP entity %d is quarantined. Only an admin can assign it now.", id)
	case b.endsOwnership() && hours > 0:
		return problem.New(problem.Forbidden, "IP entity %d is assigned to client %d. Only an admin can assign it to another client. "+
			"Release it: POST /entity/%d/release.", id, *before.Owner.ID, id)
	}
	b.Status, b.Note = assigned, nil
	return nil
}

// checkUnassigned checks the status and the note of a body without an owner. hours is the length of a quarantine.
func (b *ipEntityBody) checkUnassigned(hours int) error {
	isNew := b.before.Group == 0
	switch from, to := b.before.Status, b.Status; {
	case from == assigned && (to == assigned || to == ""), isNew && to == quarantined: // in a list of another installation
		if b.Status = quarantined; hours == 0 {
			b.Status = available
		}
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
	if !isSame(b.Note, b.before.Note) {
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

	// quarantineSQL makes entities available in so many hours, which may be 0.
	quarantineSQL = `
		INSERT INTO ip_assignment (entity_id, group_id, available_at)
		SELECT id, group_id, now() + make_interval(hours => $2) FROM ip_entity WHERE id = ANY ($1)
		ON CONFLICT (entity_id) DO UPDATE SET owner_id = NULL, owner_name = NULL, owner_missing = false,
			server_id = NULL, server_name = NULL, note = NULL, available_at = EXCLUDED.available_at`

	// freeSQL makes entities available whose quarantine has ended.
	freeSQL = `DELETE FROM ip_assignment WHERE entity_id = ANY ($1) AND available_at <= now()`
)

// assign gives the entity the status of the body, and its owner.
func (s *Service) assign(ctx context.Context, tx *pg.Tx, id int64, b *ipEntityBody) (err error) {
	switch o := b.Owner; {
	case b.Status == assigned:
		_, err = tx.Exec(ctx, assignSQL, id, b.Group, o.ID, o.Server.ID, o.Server.Name)
	case b.Status == reserved:
		_, err = tx.Exec(ctx, reserveSQL, id, b.Group, b.Note)
	case b.Status == available && b.before.Status != available:
		err = endHold(ctx, tx, []int64{id}, 0)
	case b.Status == quarantined && b.before.Status != quarantined:
		err = endHold(ctx, tx, []int64{id}, settings.Quarantine.In(s.Settings.Values()))
	}
	if err == nil && b.endsOwnership() {
		err = field.ClearReleased(ctx, tx, []int64{id})
	}
	if err != nil {
		return fmt.Errorf("make IP entity %d %s: %w", id, b.Status, err)
	}
	return nil
}

// endHold ends ownerships, reservations and quarantines. The entities are available in so many hours, or at once.
func endHold(ctx context.Context, tx *pg.Tx, ids []int64, hours int) error {
	_, err := tx.Exec(ctx, quarantineSQL, ids, hours)
	if err == nil && hours == 0 {
		_, err = tx.Exec(ctx, freeSQL, ids)
	}
	return err
}

// endOwnership takes entities back from their owners, and clears what these are known by.
func (s *Service) endOwnership(ctx context.Context, tx *pg.Tx, ids []int64) error {
	if err := endHold(ctx, tx, ids, settings.Quarantine.In(s.Settings.Values())); err != nil {
		return err
	}
	return forgetOwners(ctx, tx, ids)
}

// maxFreed is the number of quarantines that one transaction ends.
const maxFreed = 1000

// statusChange has the member of an entity that the end of a quarantine changes, for its record.
type statusChange struct {
	Status string `json:"status"`
}

// EndQuarantines moves entities whose quarantine has ended to the ones that are free. Views, counts and allocations do not
// wait for it: an allocation that needs such an entity moves those of its group.
func (s *Service) EndQuarantines(ctx context.Context) error {
	return s.endQuarantines(ctx, "SKIP LOCKED", "true")
}

// endQuarantinesOf does the same in a group, and waits for entities that others change.
func (s *Service) endQuarantinesOf(group int64) func(context.Context) error {
	return func(ctx context.Context) error { return s.endQuarantines(ctx, "", "a.group_id = $2", group) }
}

// endQuarantines locks entities before their rows of ip_assignment, as every other writer does.
func (s *Service) endQuarantines(ctx context.Context, lock, where string, args ...any) error {
	for freed := maxFreed; freed == maxFreed; {
		err := s.db.InTx(ctx, func(tx *pg.Tx) error {
			tx.Unrecorded("no quarantine has ended")
			rows, err := tx.Query(ctx, `
				SELECT e.id FROM ip_entity e JOIN ip_assignment a ON a.entity_id = e.id WHERE a.available_at <= now() AND `+where+`
				ORDER BY e.id LIMIT $1 FOR NO KEY UPDATE OF e `+lock, append([]any{maxFreed}, args...)...)
			if err != nil {
				return err
			}
			ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
			if err != nil {
				return err
			}
			freed = len(ids)
			return free(ctx, tx, ids)
		})
		if err != nil {
			return fmt.Errorf("end quarantines: %w", err)
		}
	}
	return nil
}

// free makes locked entities available, and records it.
func free(ctx context.Context, tx *pg.Tx, ids []int64) error {
	rows, err := tx.Query(ctx, freeSQL+" RETURNING entity_id", ids)
	if err != nil {
		return err
	}
	ids, err = pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return err
	}
	entities, err := entityView.GetMany(ctx, tx, ids)
	if err != nil {
		return err
	}
	for i := range entities {
		tx.Record(pg.Record{Kind: "entity", Action: "freed", Targets: []pg.Target{entities[i].target()},
			Before: statusChange{quarantined}, After: statusChange{available}})
	}
	return nil
}
