package install

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/events"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/services/pxe/preflight"
	"github.com/ironplane/ironplane/services/pxe/reference"
)

// reinstallWait is how long a client's install waits for the machine.
const reinstallWait = time.Hour

// reinstallRequest is a request of a client to install its machine again.
type reinstallRequest struct {
	Body rest.Body[reinstallBody]

	plan reinstallPlan
}

// reinstallBody is what a client chooses of an install.
type reinstallBody struct {
	Entity   rest.RefID    `json:"entity" required:"create" example:"1" doc:"The id of the machine's IP entity, one of /entity."`
	Profile  rest.RefID    `json:"profile" required:"create" example:"1" doc:"The id of the profile to install, one of /pxe/profile."`
	Hostname string        `json:"hostname" max:"253" example:"web1.example.com" doc:"The host name. The default is the present one."`
	Password secret.String `json:"password" max:"1024" transient:"true" example:"a long walk in the rain" doc:"The password of root, or of Administrator on Windows. Required unless there are ssh_keys."`
	SSHKeys  string        `json:"ssh_keys" max:"65536" doc:"The public SSH keys that may sign in as root, one per line."`
	Confirm  bool          `json:"confirm" required:"create" example:"true" doc:"Must be true: the disk of the machine is erased."`
}

// Resolve checks what struct tags cannot express.
func (b *reinstallBody) Resolve(invalid *problem.Fields) {
	if !b.Confirm {
		invalid.Add("/confirm", "required", "must be true: the disk of the machine is erased")
	}
}

// reinstallPlan is the install that a client asks for.
type reinstallPlan struct {
	source int64 // the install by which the machine is known
	body   installBody
}

// Reinstall is an install that a client asked for.
type Reinstall struct {
	ListedInstall
	Message string `json:"message" doc:"What the client has to do."`
}

// reinstall returns the route by which clients install their own machines again.
func (s *Installs) reinstall() rest.Route {
	return rest.Mutation[reinstallRequest, Reinstall]{
		Method:    http.MethodPost,
		Path:      "/pxe/reinstall",
		Guard:     guard.Client,
		Name:      "reinstallMachine",
		Summary:   "Install an own machine again",
		Extension: true,
		Doc: "For clients. The machine is that of the IP entity's newest install, which must be the client's and have succeeded. " +
			"The profile is one that clients see. The client then restarts the machine, which erases its disk. The install lapses after an " +
			"hour, and when the entity is released or the client is disabled.",
		Effect:  rest.Effect{Logs: rest.LogsItem, Retry: rest.RetryRefused, ViewPath: installPath},
		Prepare: s.prepareReinstall,
		Do:      s.createReinstall,
	}
}

// prepareReinstall finds the machine, and checks that the install can work.
func (s *Installs) prepareReinstall(ctx context.Context, req *reinstallRequest) error {
	b, err := req.Body.New()
	if err != nil {
		return nil // the transaction reports it
	}
	client := rest.RefID(principal.FromContext(ctx).Client())
	entity, err := s.fetchEntity(ctx, int64(b.Entity))
	if err != nil {
		return err
	}
	if entity == nil || entity.Owner == nil || entity.Owner.ID != int64(client) {
		return problem.Member("/entity", "not_found", "does not exist")
	}
	source, err := s.findInstalled(ctx, s.DB, int64(b.Entity), int64(client))
	if err != nil {
		return err
	}
	i := &req.plan.body
	req.plan.source = source.ID
	i.Profile, i.Password, i.SSHKeys, i.Client, i.entity = b.Profile, b.Password, b.SSHKeys, &client, entity
	i.DHCPServer, i.ByClient, i.Forced = (*rest.RefID)(&source.DHCPServer.ID), true, []string{}
	i.Host.MACs, i.Host.Hostname, i.Host.Entity, i.Host.Disk = source.Host.MACs, b.Hostname, b.Entity, source.Host.Disk
	i.Host.Firmware, i.Host.DNS = source.Host.Firmware, source.Host.Nameservers
	if i.Host.Hostname == "" {
		i.Host.Hostname = source.Host.Hostname
	}
	if i.ClientEmail, err = s.fetchClientEmail(ctx, int64(client)); err != nil {
		return err
	}
	var invalid problem.Fields
	i.Resolve(&invalid)
	for n := range invalid {
		invalid[n].Pointer = clientPointer(invalid[n].Pointer)
	}
	if err := invalid.Err(); err != nil {
		return err
	}
	found, err := s.Preflight.Find(ctx, i.newMachine())
	if err != nil {
		return err
	}
	return forClients(found.Reasons).Err()
}

// clientPointer returns where a client's body has a member of an install's body.
func clientPointer(pointer string) string {
	switch pointer {
	case "/host/hostname":
		return "/hostname"
	case "/password", "/ssh_keys", "/profile":
		return pointer
	}
	return "/entity"
}

// forClients returns reasons without what concerns only operators.
func forClients(reasons problem.Fields) (public problem.Fields) {
	for _, reason := range reasons {
		switch reason.Code {
		case preflight.NoLogin:
			public = append(public, reason)
		case preflight.AgentUnreachable, preflight.AgentFailing:
			public.Add("/entity", reason.Code, "is at a site that cannot install machines at the moment. Try again later")
		default:
			public.Add("/profile", reason.Code, "cannot be installed on this machine at the moment. Ask your provider")
		}
	}
	return public
}

// findInstalled returns the install by which the machine of a client's IP entity is known.
func (s *Installs) findInstalled(ctx context.Context, q pg.Querier, entity, client int64) (i ListedInstall, err error) {
	i, err = listedView.Find(ctx, q, `id = (SELECT max(id) FROM install WHERE host_entity_id = $1 AND status = 'installed')
		AND client_id = $2 AND id IN (SELECT id FROM install WHERE NOT owner_left)`, entity, client)
	if errors.Is(err, pgx.ErrNoRows) {
		return i, problem.Member("/entity", "not_installed", "has no machine that was installed for you. Ask your provider to install it")
	}
	if err != nil {
		return i, fmt.Errorf("find the install of IP entity %d: %w", entity, err)
	}
	var isUsed bool
	err = q.QueryRow(ctx, `SELECT EXISTS (SELECT FROM install_mac m JOIN install i ON i.id = m.install_id
		WHERE m.mac = ANY ($1) AND i.id > $2 AND (i.host_entity_id <> $3 OR i.client_id IS DISTINCT FROM $4))`,
		i.Host.MACs, i.ID, entity, client).Scan(&isUsed)
	if err != nil {
		return i, fmt.Errorf("find later installs of the machine: %w", err)
	}
	if isUsed {
		return i, problem.Member("/entity", "not_installed",
			"is no longer the address of the machine that was installed with it. Ask your provider")
	}
	return i, nil
}

// createReinstall creates the install that a client asked for.
func (s *Installs) createReinstall(ctx context.Context, tx *pg.Tx, req reinstallRequest) (r Reinstall, err error) {
	if _, err := req.Body.New(); err != nil {
		return r, err
	}
	b := &req.plan.body
	if err := lockMACs(ctx, tx, b.Host.MACs); err != nil {
		return r, err
	}
	// The lock keeps a release of the entity from being applied before the commit, so that it cancels the install.
	var source int64
	err = tx.QueryRow(ctx, "SELECT id FROM install WHERE id = $1 FOR SHARE", req.plan.source).Scan(&source)
	if err == nil {
		_, err = s.findInstalled(ctx, tx, int64(b.Host.Entity), int64(*b.Client))
	}
	if errors.Is(err, pgx.ErrNoRows) {
		return r, problem.New(problem.Conflict, "The machine has changed meanwhile. Try again.")
	}
	if err != nil {
		return r, err
	}
	var isShown bool
	if err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM profile WHERE id = $1 AND access_client)", b.Profile).Scan(&isShown); err != nil {
		return r, fmt.Errorf("read profile %d: %w", b.Profile, err)
	}
	if !isShown {
		return r, problem.Member("/profile", "not_found", "does not exist")
	}
	i, err := s.insert(ctx, tx, b, nil)
	if failed, ok := errors.AsType[*problem.Error](err); ok && len(failed.Fields) > 0 {
		return r, explainToClient(failed)
	}
	if err != nil {
		return r, err
	}
	return Reinstall{i.ListedInstall, fmt.Sprintf("Restart %s within an hour. It boots from the network and is installed again.", i.Name)}, nil
}

// explainToClient returns the error of an install for a client, without names that only operators know.
func explainToClient(failed *problem.Error) error {
	var public problem.Fields
	for _, field := range failed.Fields {
		switch field.Code {
		case preflight.ClientMismatch:
			public.Add("/entity", "not_found", "does not exist")
		case "taken":
			public.Add("/entity", field.Code, "has an install that has not ended. Wait for its end, or ask your provider to cancel it")
		default:
			public.Add("/profile", field.Code, "cannot be installed on this machine at the moment. Ask your provider")
		}
	}
	return problem.From(public.Err()).Because(failed)
}

// cancelReinstalls cancels the unfinished installs that clients asked for and that meet an SQL condition.
func (s *Installs) cancelReinstalls(ctx context.Context, tx *pg.Tx, reason, condition string, args ...any) error {
	rows, err := tx.Query(ctx, "SELECT id FROM install WHERE by_client AND "+reference.InstallUnfinished+" AND "+condition+
		" ORDER BY id FOR UPDATE", args...)
	if err != nil {
		return fmt.Errorf("find the installs that clients asked for: %w", err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return fmt.Errorf("find the installs that clients asked for: %w", err)
	}
	for _, id := range ids {
		if err := s.setStatus(ctx, tx, id, Cancelled, reason); err != nil {
			return err
		}
	}
	return nil
}

// FollowClients returns the consumer of changes of clients. A client that is disabled loses the installs that it asked for.
func (s *Installs) FollowClients() *events.Consumer {
	c := s.Clients.Consumer()
	c.Name = "clients"
	follow := c.Apply
	c.Apply = func(ctx context.Context, tx *pg.Tx, changes []events.Event) error {
		if err := follow(ctx, tx, changes); err != nil {
			return err
		}
		for _, e := range changes {
			var after struct {
				Disabled bool `json:"disabled"`
			}
			if e.Kind != s.Clients.Type || e.After == nil {
				continue
			}
			if err := json.Unmarshal(e.After, &after); err != nil {
				return fmt.Errorf("parse the change of a client: %w", err)
			}
			if !after.Disabled {
				continue
			}
			for _, target := range e.Targets {
				if target.Type != s.Clients.Type {
					continue
				}
				if err := s.cancelReinstalls(ctx, tx, "The client was disabled.", "client_id = $1", target.ID); err != nil {
					return err
				}
			}
		}
		return nil
	}
	return c
}
