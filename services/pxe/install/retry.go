package install

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/services/pxe/preflight"
)

// prepareRetry asks the network and clients services for the present IP entity and client. It refuses the retry if one
// was deleted, or if the entity has other addresses.
func (s *Installs) prepareRetry(ctx context.Context, req *retryRequest) error {
	forced, err := preflight.ParseForce(req.Force)
	if err != nil {
		return err
	}
	i, err := View.Get(ctx, s.DB, req.ID)
	if err != nil {
		return err
	}
	entity, err := s.fetchEntity(ctx, i.Host.Entity.ID)
	if err == nil && entity == nil {
		err = missingError(req.ID, "IP entity", i.Host.Entity.Name)
	}
	if err == nil && !entity.matches(&i.Host) {
		err = problem.New(
			problem.Conflict,
			"Install %d cannot be retried: the addresses of the IP entity %s have changed. Create a new install.",
			req.ID,
			i.Host.Entity.Name,
		)
	}
	if err != nil {
		return err
	}
	if i.Client != nil {
		if req.email, err = s.fetchClientEmail(ctx, i.Client.ID); err == nil && req.email == nil {
			err = missingError(req.ID, "client", i.Client.Name)
		}
		if err != nil {
			return err
		}
	}
	hasPassword := !req.Body.Sent().Password.IsZero()
	found, err := s.Preflight.Find(ctx, i.newMachine(entity, &i.DHCPServer.ID, hasPassword))
	if err != nil {
		return err
	}
	req.reasons, req.passed = preflight.Without(found.Reasons, forced)
	return nil
}

// missingError refuses to retry an install because an item that it needs was deleted.
func missingError(id int64, noun, name string) error {
	return problem.New(problem.Conflict, "Install %d cannot be retried: the %s %s was deleted. Create a new install.", id, noun, name)
}

// retryInstall starts an install that has ended again.
func (s *Installs) retryInstall(ctx context.Context, tx *pg.Tx, req retryRequest) (Install, error) {
	body, err := req.Body.New()
	if err != nil {
		return Install{}, err
	}
	before, err := View.Get(ctx, tx, req.ID)
	if err != nil {
		return before, err
	}
	if err := lockMACs(ctx, tx, before.Host.MACs); err != nil {
		return before, err
	}
	if err := s.checkRetry(ctx, tx, &before.ListedInstall, req.reasons); err != nil {
		return before, err
	}
	password := body.Password
	if password.IsZero() {
		password = secret.New(rand.Text())
	}
	after, err := s.restart(ctx, tx, req, password, newToken())
	if err != nil {
		return after, err
	}
	return after, s.checkTemplates(ctx, tx, req.ID, password)
}

// checkRetry checks that the items which an install needs still exist, and holds them until the commit. It fails if there are
// reasons why the install cannot work.
func (s *Installs) checkRetry(ctx context.Context, tx *pg.Tx, i *ListedInstall, reasons problem.Fields) error {
	var invalid problem.Fields
	if err := findConflicts(ctx, tx, i.Host.MACs, i.Host.Entity.ID, i.ID, &invalid); err != nil {
		return err
	}
	if len(invalid) > 0 {
		return problem.New(
			problem.Conflict,
			"Install %d cannot be retried: %s %s.",
			i.ID,
			strings.ReplaceAll(invalid[0].Pointer[1:], "/", "."),
			invalid[0].Message,
		)
	}
	for _, item := range []struct {
		table, noun string
		*rest.Ref
	}{{"profile", "profile", &i.Profile}, {"dhcp_server", "DHCP server", &i.DHCPServer}, {"file_server", "file server", i.FileServer}} {
		if item.Ref == nil {
			continue
		}
		if _, err := lockName(ctx, tx, item.table, item.ID); errors.Is(err, pgx.ErrNoRows) {
			return missingError(i.ID, item.noun, item.Name)
		} else if err != nil {
			return err
		}
	}
	if err := reasons.Err(); err != nil {
		return err
	}
	var client int64
	if i.Client != nil {
		client = i.Client.ID
		if err := s.Clients.Hold(ctx, tx, client, "/client"); err != nil {
			return err
		}
	}
	return s.holdEntity(ctx, tx, i.Host.Entity.ID, client)
}

// deleteInstall deletes an install that has ended.
func (s *Installs) deleteInstall(ctx context.Context, tx *pg.Tx, i *Install) error {
	if i.FinishedAt == nil {
		return problem.New(
			problem.Conflict,
			"Install %d has not ended: it is %s. Cancel it first: POST /pxe/install/%d/cancel.",
			i.ID,
			i.Status,
			i.ID,
		)
	}
	if err := lockMACs(ctx, tx, i.Host.MACs); err != nil {
		return err
	}
	return s.remove(ctx, tx, i.ID)
}

// restart sets an install that has ended back to waiting, with new secrets. The caller has locked its MAC addresses.
func (s *Installs) restart(ctx context.Context, tx *pg.Tx, req retryRequest, password, token secret.String) (i Install, err error) {
	id := req.ID
	var fileServer *int64
	if err := tx.QueryRow(ctx, "SELECT file_server_id FROM install WHERE id = $1", id).Scan(&fileServer); err != nil {
		return i, err
	}
	if fileServer != nil {
		if err := lockSlots(ctx, tx, *fileServer); err != nil {
			return i, err
		}
	}
	var status string
	if err := tx.QueryRow(ctx, "SELECT status FROM install WHERE id = $1 FOR UPDATE", id).Scan(&status); err != nil {
		return i, err
	}
	if !isFinished(status) {
		return i, problem.New(problem.Conflict, "Install %d cannot be retried because it has not ended: it is %s.", id, status)
	}
	before, err := listedView.Get(ctx, tx, id)
	if err != nil {
		return i, fmt.Errorf("read install %d: %w", id, err)
	}
	_, err = tx.Exec(ctx, `WITH revision AS (SELECT nextval('install_revision') AS next)
		UPDATE install SET status = 'waiting', held = false, version = version + 1, attempt = attempt + 1, revision = next, first_revision = next, granted = file_server_id IS NULL, leaving = false, client_email = $4, forced = $5, address_left = false,
			asked_at = NULL, stage_at = now(), started_at = NULL, finished_at = NULL, step = NULL, progress = 0, error = NULL, password = $2, token = $3 FROM revision WHERE install.id = $1`,
		id, s.Box.Seal(sealColumn("password", id), password), s.Box.Seal(sealColumn("token", id), token), req.email, req.passed)
	if err != nil {
		return i, fmt.Errorf("restart install %d: %w", id, err)
	}
	if err := s.start(ctx, tx, id); err != nil {
		return i, err
	}
	after, err := View.Get(ctx, tx, id)
	if err == nil {
		recordChange(tx, "retried", &before, &after.ListedInstall)
	}
	return after, err
}

// remove deletes an install that has ended. The caller has locked its MAC addresses.
func (s *Installs) remove(ctx context.Context, tx *pg.Tx, id int64) error {
	if err := touchSharedMACs(ctx, tx, id); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, "DELETE FROM install WHERE id = $1", id)
	return err
}
