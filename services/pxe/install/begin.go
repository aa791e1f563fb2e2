package install

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/rest/body"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/template"
	"github.com/ironplane/ironplane/services/pxe/preflight"
	"github.com/ironplane/ironplane/services/pxe/reference"
	"github.com/ironplane/ironplane/services/pxe/templates"
	"github.com/ironplane/ironplane/services/pxe/templates/script"
)

// createRequest is a request to create an install.
type createRequest struct {
	Force string `query:"force" max:"500" doc:"The codes of reasons to pass over, separated by commas."`
	Body  rest.Body[installBody]

	reasons problem.Fields // why the install cannot work
	passed  []string       // the codes of reasons that the caller passes over
}

// prepareCreate asks the network and clients services for the present IP entity and client, and finds the reasons why the install
// cannot work. An invalid body has none yet.
func (s *Installs) prepareCreate(ctx context.Context, req *createRequest) error {
	forced, err := preflight.ParseForce(req.Force)
	if err != nil {
		return err
	}
	sent := req.Body.Sent()
	if sent.entity, err = s.fetchEntity(ctx, int64(sent.Host.Entity)); err != nil {
		return err
	}
	if sent.Client != nil {
		if sent.ClientEmail, err = s.fetchClientEmail(ctx, int64(*sent.Client)); err != nil {
			return err
		}
	}
	b, err := req.Body.New()
	if err != nil {
		return nil // the transaction reports it with what else is invalid
	}
	found, err := s.Preflight.Find(ctx, b.newMachine())
	if err != nil {
		return err
	}
	req.reasons, req.passed = preflight.Without(found.Reasons, forced)
	return nil
}

// newMachine returns the machine of a valid body for a search for reasons.
func (b *installBody) newMachine() *preflight.Machine {
	dhcpServer := b.DHCPServer
	if dhcpServer == nil {
		dhcpServer = b.entity.Group.DHCPServer
	}
	return b.asInstall().newMachine(b.entity, (*int64)(dhcpServer), b.hasPassword)
}

// newMachine returns the machine of an install for a search for reasons.
func (i *Install) newMachine(entity *machineEntity, dhcpServer *int64, hasPassword bool) *preflight.Machine {
	sample := script.NewSample()
	m := &preflight.Machine{
		Profile:     i.Profile.ID,
		Entity:      i.Host.Entity.ID,
		Group:       rest.Ref{ID: entity.Group.ID, Name: entity.Group.Name},
		DHCPServer:  dhcpServer,
		HasPassword: hasPassword,
		Templates: i.templateVariables(
			"http://boot.fra1.example.net", sample.URL.Files, sample.Client.Email, sample.Password, secret.New(template.Mark)),
	}
	if i.Client != nil {
		m.Client = &i.Client.ID
	}
	if entity.Owner != nil {
		m.Owner = &entity.Owner.ID
	}
	return m
}

// create creates an install.
func (s *Installs) create(ctx context.Context, tx *pg.Tx, req createRequest) (Install, error) {
	b, err := req.Body.New()
	if err != nil {
		return Install{}, err
	}
	b.Forced = req.passed
	if err := lockMACs(ctx, tx, b.Host.MACs); err != nil {
		return Install{}, err
	}
	i, err := s.insert(ctx, tx, b, req.reasons)
	return i, req.Body.MapError(err)
}

// insert inserts an install, starts it and records that. It fails if there are reasons why the install cannot work. The caller has
// locked the MAC addresses.
func (s *Installs) insert(ctx context.Context, tx *pg.Tx, b *installBody, reasons problem.Fields) (i Install, err error) {
	if err := s.checkInstall(ctx, tx, b, reasons); err != nil {
		return i, err
	}
	id, err := s.rows.Insert(ctx, tx, b)
	if err != nil {
		return i, fmt.Errorf("create an install: %w", err)
	}
	if err := s.startInstall(ctx, tx, id, b); err != nil {
		return i, err
	}
	if i, err = View.Get(ctx, tx, id); err != nil {
		return i, fmt.Errorf("read install %d: %w", id, err)
	}
	tx.Record(pg.Record{
		Kind:    recordKind,
		Action:  pg.Created,
		After:   secret.Marked(i, body.NewSecrets(b)...),
		Targets: targets(&i.ListedInstall),
	})
	return i, nil
}

// lockMACs locks the machines with these MAC addresses until the transaction ends.
func lockMACs(ctx context.Context, tx *pg.Tx, macs []string) error {
	numbers := make([]int64, len(macs))
	for i, text := range macs {
		mac, err := net.ParseMAC(text)
		if err != nil {
			return fmt.Errorf("parse a MAC address: %w", err)
		}
		for _, octet := range mac {
			numbers[i] = numbers[i]<<8 | int64(octet)
		}
	}
	return tx.Lock(ctx, "machine", numbers...)
}

// checkInstall checks that the items which an install refers to exist, and holds them until the commit. It copies their
// names into the body, and chooses the file server. It fails if there are reasons why the install cannot work.
func (s *Installs) checkInstall(ctx context.Context, tx *pg.Tx, b *installBody, reasons problem.Fields) error {
	invalid := slices.Clone(reasons)
	if b.DHCPServer == nil {
		b.DHCPServer = b.entity.Group.DHCPServer
	}
	var err error
	if b.ProfileName, err = lockName(ctx, tx, "profile", int64(b.Profile)); errors.Is(err, pgx.ErrNoRows) {
		invalid.Add("/profile", "not_found", "does not exist")
	} else if err != nil {
		return err
	}
	if b.DHCPServer == nil {
		invalid.Add("/dhcp_server", "required", preflight.RequiresDHCPServer, b.entity.Group.ID, b.entity.Group.Name)
	} else if b.DHCPServerName, err = lockName(ctx, tx, "dhcp_server", int64(*b.DHCPServer)); errors.Is(err, pgx.ErrNoRows) {
		invalid.Add("/dhcp_server", "not_found", "does not exist")
	} else if err != nil {
		return err
	}
	if err := findConflicts(ctx, tx, b.Host.MACs, int64(b.Host.Entity), 0, &invalid); err != nil {
		return err
	}
	if err := invalid.Err(); err != nil {
		return err
	}
	var client int64
	if b.Client != nil {
		client = int64(*b.Client)
		if err := s.Clients.Hold(ctx, tx, client, "/client"); err != nil {
			return err
		}
	}
	if err := s.holdEntity(ctx, tx, int64(b.Host.Entity), client); err != nil {
		return err
	}
	return chooseFileServer(ctx, tx, b)
}

// lockName returns the name of an item and keeps the item from being edited or deleted until the transaction ends. It
// fails with pgx.ErrNoRows if the item does not exist.
func lockName(ctx context.Context, tx *pg.Tx, table string, id int64) (name string, err error) {
	err = tx.QueryRow(ctx, "SELECT name FROM "+pgx.Identifier{table}.Sanitize()+" WHERE id = $1 FOR SHARE", id).Scan(&name)
	if err != nil {
		return "", fmt.Errorf("lock %s %d: %w", table, id, err)
	}
	return name, nil
}

// findConflicts adds an error for each unfinished install, other than the one with this id, of the same machine or IP
// entity. Unique indexes ensure that there is at most one of each; this only makes better errors.
func findConflicts(ctx context.Context, q pg.Querier, macs []string, entity, id int64, invalid *problem.Fields) error {
	rows, err := q.Query(ctx, `
		(SELECT '/host/macs', format('contains %s, which install %s (%s) is installing', m.mac, i.id, i.host_hostname), i.id, i.host_hostname
			FROM install_mac m JOIN install i ON i.id = m.install_id WHERE m.mac = ANY ($1) AND m.under_way AND i.id <> $3 ORDER BY i.id LIMIT 1)
		UNION ALL
		SELECT '/host/entity', format('is used by install %s (%s) that has not ended', id, host_hostname), id, host_hostname
			FROM install WHERE host_entity_id = $2 AND id <> $3 AND `+reference.InstallUnfinished, macs, entity, id)
	if err != nil {
		return fmt.Errorf("find other installs of the machine: %w", err)
	}
	var pointer, message string
	var other rest.Ref
	_, err = pgx.ForEachRow(rows, []any{&pointer, &message, &other.ID, &other.Name}, func() error {
		invalid.Add(pointer, "taken", "%s", message)
		existing := other
		(*invalid)[len(*invalid)-1].Existing = &existing
		return nil
	})
	if err != nil {
		return fmt.Errorf("find other installs of the machine: %w", err)
	}
	return nil
}

// chooseFileServer chooses the file server with the largest share of free slots in the entity's IP group. An install
// without a file server needs no slot, so it is granted at once.
func chooseFileServer(ctx context.Context, tx *pg.Tx, b *installBody) error {
	err := tx.QueryRow(ctx, `SELECT id, name FROM file_server f WHERE group_id = $1
		ORDER BY (SELECT count(*) FROM install i WHERE i.file_server_id = f.id AND `+reference.InstallUnfinished+`)::float8 / install_max_concurrent, id LIMIT 1 FOR SHARE`, b.entity.Group.ID).
		Scan(&b.FileServer, &b.FileServerName)
	if errors.Is(err, pgx.ErrNoRows) {
		b.Granted = true
		return nil
	}
	if err != nil {
		return fmt.Errorf("choose a file server: %w", err)
	}
	return nil
}

// startInstall starts a new install. It fails if the profile's templates cannot be rendered for the machine.
func (s *Installs) startInstall(ctx context.Context, tx *pg.Tx, id int64, b *installBody) error {
	if err := s.start(ctx, tx, id); err != nil {
		return err
	}
	return s.checkTemplates(ctx, tx, id, b.Password)
}

// checkTemplates renders the templates of an install and discards the result. So the caller learns of an error before
// the machine boots.
func (s *Installs) checkTemplates(ctx context.Context, tx *pg.Tx, id int64, password secret.String) error {
	i, err := View.Get(ctx, tx, id)
	if err != nil {
		return fmt.Errorf("read install %d: %w", id, err)
	}
	sample := script.NewSample()
	_, err = templates.RenderFiles(
		ctx,
		tx,
		nil,
		i.Profile.ID,
		i.templateVariables("http://boot.example.net", sample.URL.Files, sample.Client.Email, password, newToken()),
	)
	if failure, is := errors.AsType[templates.Failure](err); is {
		return problem.Member("/profile", "template", "has a template that cannot be rendered for this machine: %s", string(failure))
	}
	return err
}
