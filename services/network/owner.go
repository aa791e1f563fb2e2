package network

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/schema"
)

// scopeToClient limits a client to the entities that are assigned to it.
func scopeToClient(ctx context.Context) []pg.Condition {
	client := principal.FromContext(ctx).Client()
	if client == 0 {
		return nil
	}
	return []pg.Condition{{SQL: "owner_id = $1 AND NOT owner_missing", Args: []any{client}}}
}

// checkByClient returns a 403 for a client that changes more of its IP entity than the nickname. It names the first such member.
func (b *ipEntityBody) checkByClient(ctx context.Context, id int64, before *ipEntityBody) error {
	if principal.FromContext(ctx).Client() == 0 {
		return nil
	}
	is, was := reflect.ValueOf(b).Elem(), reflect.ValueOf(before).Elem()
	for _, m := range schema.Describe(is.Type()).Leaves() {
		isStored := m.Column != "" && m.Pointer != "/nickname"
		if isStored && !reflect.DeepEqual(is.FieldByIndex(m.Index).Interface(), was.FieldByIndex(m.Index).Interface()) {
			return problem.New(
				problem.Forbidden,
				"A client can change only the nickname of its IP entities, not %s of IP entity %d.",
				m.Dotted(),
				id,
			)
		}
	}
	return nil
}

// describeAssignments says which entities a client owns or gave to sub clients. It then cannot be deleted. It is empty if there are
// none.
func describeAssignments(ctx context.Context, q pg.Querier, client int64) (string, error) {
	var count int
	var names []string
	err := q.QueryRow(ctx, `
		WITH held AS (SELECT id, name FROM ip_entity_of_owner WHERE (owner_id = $1 OR owner_via_id = $1) AND NOT owner_missing)
		SELECT count(*), ARRAY(SELECT 'IP entity ' || id || ' (' || name || ')' FROM held ORDER BY id LIMIT $2) FROM held`, client, maxNamed).Scan(&count, &names)
	if err != nil || count == 0 {
		return "", err
	}
	return "has " + joinFirst(names, count), nil
}

// releaseClient handles a deleted client: it ends the client's ownership of IP entities, and deletes its field values. The
// client had entities only if one of the two services was restored from a backup.
func (s *Service) releaseClient(ctx context.Context, tx *pg.Tx, client int64, _ string) error {
	if err := s.releaseAll(ctx, tx, "(owner_id = $1 OR via_id = $1) AND NOT owner_missing", client); err != nil {
		return fmt.Errorf("release the IP entities of client %d: %w", client, err)
	}
	if _, err := tx.Exec(ctx, deleteFieldValues, client); err != nil {
		return fmt.Errorf("delete the field values of client %d: %w", client, err)
	}
	return nil
}

// releaseAll ends the ownership of the entities whose rows of ip_assignment meet a condition, and records it.
func (s *Service) releaseAll(ctx context.Context, tx *pg.Tx, condition string, id int64) error {
	ids, err := lockIDs(ctx, tx, "SELECT id FROM ip_entity WHERE id IN (SELECT entity_id FROM ip_assignment WHERE "+condition+
		") ORDER BY id FOR UPDATE", id)
	if err != nil {
		return err
	}
	before, err := entityView.GetMany(ctx, tx, ids)
	if err == nil {
		err = s.endOwnership(ctx, tx, ids)
	}
	if err != nil {
		return err
	}
	after, err := entityView.GetMany(ctx, tx, ids)
	if err != nil {
		return fmt.Errorf("read the released IP entities: %w", err)
	}
	for i := range after {
		tx.Record(pg.Record{Kind: "entity", Action: "released", Targets: []pg.Target{after[i].target()}, Before: before[i], After: after[i]})
	}
	return nil
}

const deleteFieldValues = "DELETE FROM field_value WHERE target_type = 'client' AND target_id = $1"

// FindOwners looks up the owners and field targets that were stored before these had to be clients.
func (s *Service) FindOwners(ctx context.Context) error {
	for {
		var client int64
		err := s.db.QueryRow(ctx, "SELECT owner_id FROM ip_owner_of_before LIMIT 1").Scan(&client)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("find owners that were never looked up: %w", err)
		}
		err = s.resolveOwner(ctx, client, true)
		if problem.Is(err, problem.Invalid) { // the client does not exist
			err = s.resolveOwner(ctx, client, false)
		}
		if err != nil {
			return fmt.Errorf("find client %d: %w", client, err)
		}
	}
}

// resolveOwner completes the old assignments of an owner: those of an existing client get its name, and the others stay missing.
func (s *Service) resolveOwner(ctx context.Context, client int64, exists bool) error {
	return s.db.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("no assignment changes")
		statements := []string{"DELETE FROM ip_owner_of_before WHERE owner_id = $1"}
		if exists {
			if err := s.clients.Hold(ctx, tx, client, ""); err != nil {
				return err
			}
			statements = append(statements, `
				UPDATE ip_assignment a SET owner_missing = false, owner_name = r.name FROM ref r
				WHERE a.owner_id = $1 AND a.owner_missing AND r.type = 'client' AND r.id = $1`)
		} else {
			statements = append(statements, deleteFieldValues)
		}
		for _, sql := range statements {
			if _, err := tx.Exec(ctx, sql, client); err != nil {
				return err
			}
		}
		return nil
	})
}
