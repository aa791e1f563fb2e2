package pxe

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/services/pxe/install"
	"github.com/ironplane/ironplane/services/pxe/reference"
	"github.com/ironplane/ironplane/services/pxe/templates"
	"github.com/ironplane/ironplane/services/pxe/templates/script"
)

// lockMachines lets those who say what a machine boots go one after the other.
func lockMachines(ctx context.Context, tx *pg.Tx, rows ...*installBody) error {
	var macs []string
	for _, b := range rows {
		macs = append(macs, b.Host.MACs...)
	}
	return lockMACs(ctx, tx, macs)
}

func lockMACs(ctx context.Context, tx *pg.Tx, macs []string) error {
	numbers := make([]int64, len(macs))
	for i, text := range macs {
		mac, err := net.ParseMAC(text)
		if err != nil {
			return fmt.Errorf("read a MAC address: %w", err)
		}
		for _, octet := range mac {
			numbers[i] = numbers[i]<<8 | int64(octet)
		}
	}
	return tx.Lock(ctx, "machine", numbers...)
}

// checkInstall finds out whether there is what an install refers to, holds it, and notes how it is called now.
func (s *Service) checkInstall(ctx context.Context, tx *pg.Tx, b *installBody) error {
	var wrong problem.Fields
	if b.DHCPServer == nil {
		b.DHCPServer = b.entity.Group.DHCPServer
	}
	var err error
	if b.ProfileName, err = nameOf(ctx, tx, "profile", int64(b.Profile)); errors.Is(err, pgx.ErrNoRows) {
		wrong.Add("/profile", "not_found", "names something that does not exist")
	} else if err != nil {
		return err
	}
	if b.DHCPServer == nil {
		wrong.Add("/dhcp_server", "required", "is required, as IP group %d (%s) names none", b.entity.Group.ID, b.entity.Group.Name)
	} else if b.DHCPServerName, err = nameOf(ctx, tx, "dhcp_server", int64(*b.DHCPServer)); errors.Is(err, pgx.ErrNoRows) {
		wrong.Add("/dhcp_server", "not_found", "names something that does not exist")
	} else if err != nil {
		return err
	}
	if err := inTheWay(ctx, tx, b.Host.MACs, int64(b.Host.Entity), 0, &wrong); err != nil {
		return err
	}
	if err := wrong.Err(); err != nil {
		return err
	}
	if err := s.entities.Hold(ctx, tx, int64(b.Host.Entity), "/host/entity"); err != nil {
		return err
	}
	if b.Client != nil {
		if err := s.clients.Hold(ctx, tx, int64(*b.Client), "/client"); err != nil {
			return err
		}
	}
	return chooseFileServer(ctx, tx, b)
}

// nameOf is how an item is called, which stays until the unit of work ends; pgx.ErrNoRows: there is none.
func nameOf(ctx context.Context, tx *pg.Tx, table string, id int64) (name string, err error) {
	err = tx.QueryRow(ctx, "SELECT name FROM "+pgx.Identifier{table}.Sanitize()+" WHERE id = $1 FOR SHARE", id).Scan(&name)
	if err != nil {
		return "", fmt.Errorf("hold %s %d: %w", table, id, err)
	}
	return name, nil
}

// inTheWay names installs, other than that of this id, by which a machine is being installed, or with the IP entity. That there
// are none is the part of unique indexes.
func inTheWay(ctx context.Context, q pg.Querier, macs []string, entity, id int64, wrong *problem.Fields) error {
	rows, err := q.Query(ctx, `
		(SELECT '/host/macs', format('has %s, which is being installed by install %s (%s)', m.mac, i.id, i.host_hostname), i.id, i.host_hostname
			FROM install_mac m JOIN install i ON i.id = m.install_id WHERE m.mac = ANY ($1) AND m.under_way AND i.id <> $3 ORDER BY i.id LIMIT 1)
		UNION ALL
		SELECT '/host/entity', format('is that of install %s (%s), which has not ended', id, host_hostname), id, host_hostname
			FROM install WHERE host_entity_id = $2 AND id <> $3 AND `+reference.InstallUnderWay, macs, entity, id)
	if err != nil {
		return fmt.Errorf("look for installs of the machine: %w", err)
	}
	var pointer, message string
	var other rest.Ref
	_, err = pgx.ForEachRow(rows, []any{&pointer, &message, &other.ID, &other.Name}, func() error {
		wrong.Add(pointer, "taken", "%s", message)
		existing := other
		(*wrong)[len(*wrong)-1].Existing = &existing
		return nil
	})
	if err != nil {
		return fmt.Errorf("look for installs of the machine: %w", err)
	}
	return nil
}

// chooseFileServer chooses, of the file servers of the entity's IP group, the one that has most room.
func chooseFileServer(ctx context.Context, tx *pg.Tx, b *installBody) error {
	err := tx.QueryRow(ctx, `SELECT id, name FROM file_server f WHERE group_id = $1
		ORDER BY (SELECT count(*) FROM install i WHERE i.file_server_id = f.id AND `+reference.InstallUnderWay+`)::float8 / install_max_concurrent, id LIMIT 1 FOR SHARE`, b.entity.Group.ID).
		Scan(&b.FileServer, &b.FileServerName)
	if errors.Is(err, pgx.ErrNoRows) {
		b.Granted = true
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for a file server: %w", err)
	}
	return nil
}

// beginInstall does what comes with a new install: it has to make something of its profile.
func (s *Service) beginInstall(ctx context.Context, tx *pg.Tx, id int64, b *installBody) error {
	if err := s.installs.Begin(ctx, tx, id); err != nil {
		return err
	}
	return s.tryTemplates(ctx, tx, id, b.Password)
}

// tryTemplates renders the templates of an install before its machine is told anything.
func (s *Service) tryTemplates(ctx context.Context, tx *pg.Tx, id int64, password secret.String) error {
	i, err := install.View.Get(ctx, tx, id)
	if err != nil {
		return fmt.Errorf("read install %d: %w", id, err)
	}
	sample := script.Sample()
	_, err = templates.Files(ctx, tx, i.Profile.ID, i.Shown("http://boot.example.net", sample.URL.Files, sample.Client.Email, password, newToken()))
	if why, is := errors.AsType[templates.Failure](err); is {
		return problem.Member("/profile", "template", "has a template that makes nothing of this machine: %s", string(why))
	}
	return err
}

// prepareRetry asks the services that have them about the IP entity, which has to be there still, and the client.
func (s *Service) prepareRetry(ctx context.Context, req *installToRetry) error {
	i, err := install.View.Get(ctx, s.db, req.ID)
	if err != nil {
		return err
	}
	entity, err := s.machineEntity(ctx, i.Host.Entity.ID)
	if err == nil && entity == nil {
		err = needs(req.ID, "IP entity", i.Host.Entity.Name)
	}
	if err == nil && !entity.has(&i.Host) {
		err = problem.New(problem.Conflict, "Install %d needs the addresses that the IP entity %s had then.", req.ID, i.Host.Entity.Name)
	}
	if err != nil || i.Client == nil {
		return err
	}
	if req.email, err = s.clientEmail(ctx, i.Client.ID); err == nil && req.email == nil {
		err = needs(req.ID, "client", i.Client.Name)
	}
	return err
}

// needs refuses to retry an install, as something is gone.
func needs(id int64, noun, name string) error {
	return problem.New(problem.Conflict, "Install %d needs the %s %s, which is gone.", id, noun, name)
}

// retryInstall begins an install that has ended anew.
func (s *Service) retryInstall(ctx context.Context, tx *pg.Tx, req installToRetry) (install.Install, error) {
	body, err := req.Body.New()
	if err != nil {
		return install.Install{}, err
	}
	before, err := install.View.Get(ctx, tx, req.ID)
	if err != nil {
		return before, err
	}
	if err := lockMACs(ctx, tx, before.Host.MACs); err != nil {
		return before, err
	}
	if err := s.checkRetry(ctx, tx, &before.ListedInstall); err != nil {
		return before, err
	}
	password := body.Password
	if password.IsZero() {
		password = secret.New(rand.Text())
	}
	after, err := s.installs.Retry(ctx, tx, req.ID, req.email, password, newToken())
	if err != nil {
		return after, err
	}
	return after, s.tryTemplates(ctx, tx, req.ID, password)
}

// checkRetry finds out whether there is still what an install needs, and holds it.
func (s *Service) checkRetry(ctx context.Context, tx *pg.Tx, i *install.ListedInstall) error {
	var wrong problem.Fields
	if err := inTheWay(ctx, tx, i.Host.MACs, i.Host.Entity.ID, i.ID, &wrong); err != nil {
		return err
	}
	if len(wrong) > 0 {
		return problem.New(
			problem.Conflict,
			"Install %d cannot begin anew: %s %s.",
			i.ID,
			strings.ReplaceAll(wrong[0].Pointer[1:], "/", "."),
			wrong[0].Message,
		)
	}
	for _, of := range []struct {
		table, noun string
		*rest.Ref
	}{{"profile", "profile", &i.Profile}, {"dhcp_server", "DHCP server", &i.DHCPServer}, {"file_server", "file server", i.FileServer}} {
		if of.Ref == nil {
			continue
		}
		if _, err := nameOf(ctx, tx, of.table, of.ID); errors.Is(err, pgx.ErrNoRows) {
			return needs(i.ID, of.noun, of.Name)
		} else if err != nil {
			return err
		}
	}
	if i.Client != nil {
		if err := s.clients.Hold(ctx, tx, i.Client.ID, "/client"); err != nil {
			return err
		}
	}
	return s.entities.Hold(ctx, tx, i.Host.Entity.ID, "/host/entity")
}

// deleteInstall deletes one that has ended.
func (s *Service) deleteInstall(ctx context.Context, tx *pg.Tx, i *install.Install) error {
	if i.FinishedAt == nil {
		return problem.New(problem.Conflict, "Install %d has not ended: it is %s. POST /pxe/install/%d/cancel ends it.", i.ID, i.Status, i.ID)
	}
	if err := lockMACs(ctx, tx, i.Host.MACs); err != nil {
		return err
	}
	return s.installs.Delete(ctx, tx, i.ID)
}

// usedEntity is an IP entity that a machine is being installed with, as network asks before it deletes many.
type usedEntity struct {
	ID   int64  `json:"id"`
	Uses string `json:"uses"`
}

func (s *Service) usedEntities(ctx context.Context, _ rest.None) ([]usedEntity, error) {
	rows, err := s.db.Query(
		ctx,
		"SELECT host_entity_id, format('is used by install %s (%s), which has not ended', id, host_hostname) FROM install WHERE "+reference.InstallUnderWay+" ORDER BY 1",
	)
	if err != nil {
		return nil, fmt.Errorf("read which IP entities are used: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[usedEntity])
}
