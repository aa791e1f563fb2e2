package network

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
)

// checkOwner keeps a client there that an entity is assigned to anew.
func (s *Service) checkOwner(ctx context.Context, tx *pg.Tx, _ int64, before, b *ipEntityBody) error {
	if b.Owner.ID == nil || before != nil && before.Owner.ID != nil && *before.Owner.ID == *b.Owner.ID {
		return nil
	}
	return s.clients.Hold(ctx, tx, *b.Owner.ID, "/owner/id")
}

// ownEntities is the condition which entities a client may know of: those that are assigned to it.
func ownEntities(ctx context.Context) []pg.Condition {
	client := principal.From(ctx).Client()
	if client == 0 {
		return nil
	}
	return []pg.Condition{{SQL: "owner_id = $1 AND NOT owner_missing", Args: []any{client}}}
}

// assignedTo names what is assigned to a client, which cannot be deleted then.
func assignedTo(ctx context.Context, q pg.Querier, client int64) (string, error) {
	var count int
	var names []string
	err := q.QueryRow(ctx, `
		SELECT count(*), ARRAY(SELECT 'IP entity ' || id || ' (' || name || ')' FROM ip_entity_of_owner WHERE owner_id = $1 AND NOT owner_missing ORDER BY id LIMIT $2)
		FROM ip_assignment WHERE owner_id = $1 AND NOT owner_missing`, client, mostNamed).Scan(&count, &names)
	if err != nil || count == 0 {
		return "", err
	}
	return "has " + firstOf(names, count), nil
}

// missClient deletes the values of a client's fields, once it is gone, and says of what is assigned to it that it is missing:
// nobody is asked before an owner is restored that has not heard of it.
func missClient(ctx context.Context, tx *pg.Tx, client int64, _ string) error {
	for _, sql := range []string{
		"UPDATE ip_assignment SET owner_missing = true WHERE owner_id = $1 AND NOT owner_missing",
		forgetFieldValues,
	} {
		if _, err := tx.Exec(ctx, sql, client); err != nil {
			return fmt.Errorf("miss client %d: %w", client, err)
		}
	}
	return nil
}

const forgetFieldValues = "DELETE FROM field_value WHERE target_type = 'client' AND target_id = $1"

// FindOwners finds out of each owner, or target of a field value, of before these had to be clients whether there is one.
func (s *Service) FindOwners(ctx context.Context) error {
	for {
		var client int64
		err := s.db.QueryRow(ctx, "SELECT owner_id FROM ip_owner_of_before LIMIT 1").Scan(&client)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("look for owners of before: %w", err)
		}
		err = s.findOwner(ctx, client, true)
		if problem.Is(err, problem.Invalid) { // there is no such client
			err = s.findOwner(ctx, client, false)
		}
		if err != nil {
			return fmt.Errorf("find client %d: %w", client, err)
		}
	}
}

func (s *Service) findOwner(ctx context.Context, client int64, exists bool) error {
	return s.db.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("nothing is assigned")
		statements := []string{"DELETE FROM ip_owner_of_before WHERE owner_id = $1"}
		if exists {
			if err := s.clients.Hold(ctx, tx, client, ""); err != nil {
				return err
			}
			statements = append(statements, `
				UPDATE ip_assignment a SET owner_missing = false, owner_name = r.name FROM ref r
				WHERE a.owner_id = $1 AND a.owner_missing AND r.type = 'client' AND r.id = $1`)
		} else {
			statements = append(statements, forgetFieldValues)
		}
		for _, sql := range statements {
			if _, err := tx.Exec(ctx, sql, client); err != nil {
				return err
			}
		}
		return nil
	})
}
