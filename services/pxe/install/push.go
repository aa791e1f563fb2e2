package install

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/services/pxe/reference"
	"github.com/ironplane/ironplane/services/pxe/site"
	"github.com/ironplane/ironplane/services/pxe/siteagent"
	"github.com/ironplane/ironplane/services/pxe/templates"
	"github.com/ironplane/ironplane/services/pxe/templates/script"
)

// maxMachines is how many machines an agent is told of: those that are being installed, and then those that were
// installed last.
const maxMachines = 10_000

// machinesSQL selects the installs that the agent of a DHCP server must know. Each comes with the MAC addresses that no
// later install has claimed.
const machinesSQL = `
	SELECT i.id, i.revision, array_agg(m.mac ORDER BY m.mac) AS macs, bool_or(m.under_way) AS under_way, i.leaving AND i.told_at IS NULL AS leaves
	FROM install i JOIN install_mac m ON m.install_id = i.id
	WHERE i.dhcp_server_id = $1 AND NOT EXISTS (SELECT FROM install_mac later WHERE later.mac = m.mac AND later.taken > m.taken)
	GROUP BY i.id ORDER BY bool_or(m.under_way) DESC, i.id DESC LIMIT $2`

// pushedMachine is an install that an agent must know.
type pushedMachine struct {
	ID, Revision int64
	MACs         []string
	IsUnfinished bool
	IsRevoked    bool // the agent has yet to acknowledge that the slot was revoked
}

// PushMachines brings the list of machines that an agent holds up to date. It returns site.Unreachable if a call to the
// agent fails.
func (s *Installs) PushMachines(ctx context.Context, agent *siteagent.Client, dhcpServer int64) error {
	held, err := agent.ListMachines(ctx) // before the database is read: a machine that another process adds meanwhile must not look surplus
	if err != nil {
		return site.Unreachable{Err: fmt.Errorf("list the agent's machines: %w", err)}
	}
	rows, err := s.DB.Query(ctx, machinesSQL, dhcpServer, maxMachines)
	if err != nil {
		return fmt.Errorf("read the machines of DHCP server %d: %w", dhcpServer, err)
	}
	machines, err := pgx.CollectRows(rows, pgx.RowToStructByPos[pushedMachine])
	if err != nil {
		return fmt.Errorf("read the machines of DHCP server %d: %w", dhcpServer, err)
	}
	has, unconfirmed := map[int64]int64{}, map[int64]bool{}
	for _, h := range held {
		has[h.ID], unconfirmed[h.ID] = h.Revision, h.Unconfirmed
	}
	keep := map[int64]bool{}
	for _, m := range machines {
		keep[m.ID] = has[m.ID] <= m.Revision // a higher revision is from before a restore of the database
	}
	for _, h := range held {
		if !keep[h.ID] {
			if err := agent.DeleteMachine(ctx, h.ID); err != nil {
				return site.Unreachable{Err: fmt.Errorf("delete machine %d from the agent: %w", h.ID, err)}
			}
			delete(has, h.ID)
		}
	}
	for _, unfinished := range []bool{false, true} { // machines that lost a MAC address, before those that claimed it
		for _, m := range machines {
			if m.IsUnfinished != unfinished {
				continue
			}
			var err error
			if revision, known := has[m.ID]; !known || revision != m.Revision || unconfirmed[m.ID] {
				err = s.putMachine(ctx, agent, m)
			} else if m.IsRevoked {
				err = s.markAcknowledged(ctx, m)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// putMachine sends one machine to an agent. It fails the install if its files cannot be rendered or the agent rejects
// it.
func (s *Installs) putMachine(ctx context.Context, agent *siteagent.Client, m pushedMachine) error {
	state, err := s.renderMachine(ctx, m)
	if errors.Is(err, pgx.ErrNoRows) { // the install has changed meanwhile
		return nil
	}
	if failure, is := errors.AsType[templates.Failure](err); is {
		return s.failIfUnchanged(ctx, m, string(failure))
	}
	if err != nil {
		return err
	}
	err = agent.PutMachine(ctx, state)
	if m.IsUnfinished && siteagent.IsRefusal(err, http.StatusUnprocessableEntity) {
		return s.failIfUnchanged(ctx, m, "The DHCP server's agent rejected the install: "+err.Error())
	}
	if err != nil && !siteagent.IsRefusal(err, http.StatusConflict) { // another process has sent a newer revision
		return site.Unreachable{Err: fmt.Errorf("send machine %d to the agent: %w", m.ID, err)}
	}
	if err == nil && m.IsRevoked {
		return s.markAcknowledged(ctx, m)
	}
	return nil
}

// markAcknowledged stores that the agent of a machine knows of the revocation of its slot.
func (s *Installs) markAcknowledged(ctx context.Context, m pushedMachine) error {
	return s.DB.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("what an agent knows is internal")
		if _, err := tx.Exec(
			ctx,
			"UPDATE install SET told_at = now() WHERE id = $1 AND revision = $2 AND leaving",
			m.ID,
			m.Revision,
		); err != nil {
			return fmt.Errorf("mark the revocation of install %d as acknowledged: %w", m.ID, err)
		}
		return nil
	})
}

// failIfUnchanged fails an install, unless its revision has changed since m was read.
func (s *Installs) failIfUnchanged(ctx context.Context, m pushedMachine, reason string) error {
	return s.DB.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("the install has changed meanwhile")
		var id int64
		err := tx.QueryRow(
			ctx, "SELECT id FROM install WHERE id = $1 AND revision = $2 AND "+reference.InstallUnfinished+" FOR UPDATE", m.ID, m.Revision,
		).
			Scan(&id)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("lock install %d: %w", m.ID, err)
		}
		return s.setStatus(ctx, tx, m.ID, Failed, siteagent.Sanitize(reason, maxErrorLength))
	})
}

// renderMachine returns what an agent is told of a machine. It fails with templates.Failure if the files cannot be
// rendered, and with pgx.ErrNoRows if the install has changed since m was read.
func (s *Installs) renderMachine(ctx context.Context, m pushedMachine) (state siteagent.Machine, err error) {
	i, err := View.Find(ctx, s.DB, "id = $1", m.ID)
	if err != nil {
		return state, err
	}
	state = siteagent.Machine{
		ID:          m.ID,
		Revision:    m.Revision,
		MACs:        m.MACs,
		Hostname:    i.Host.Hostname,
		IPv4:        i.Host.IPv4.toAgent(),
		IPv6:        i.Host.IPv6.toAgent(),
		Nameservers: strings.Fields(i.Host.Nameservers),
		SecureBoot:  i.Host.Firmware == script.SecureBoot,
		Boot:        siteagent.BootLocal,
	}
	if isFinished(i.Status) {
		var keep bool
		err := s.DB.QueryRow(ctx, "SELECT address_left FROM install WHERE id = $1 AND revision = $2", m.ID, m.Revision).Scan(&keep)
		if keep {
			state.IPv4, state.IPv6, state.Reason = nil, nil, "its IP entity is no longer this machine's"
		}
		return state, err
	}
	var at struct{ machines, files, email string }
	var password, token []byte
	var ready, leaving bool
	err = s.DB.QueryRow(ctx, `SELECT i.granted AND NOT i.held AND (i.file_server_id IS NULL OR f.seen_at IS NOT NULL), i.leaving, `+agentURLSQL("d")+`, coalesce(`+agentURLSQL("f")+`, `+agentURLSQL("d")+`), coalesce(i.client_email, ''), i.password, i.token FROM install i
		JOIN site_agent d ON d.kind = 'pxe/dhcp' AND d.id = i.dhcp_server_id LEFT JOIN site_agent f ON f.kind = 'pxe/file' AND f.id = i.file_server_id
		WHERE i.id = $1 AND i.revision = $2`, m.ID, m.Revision).
		Scan(&ready, &leaving, &at.machines, &at.files, &at.email, &password, &token)
	if err != nil {
		return state, err
	}
	state.Boot = siteagent.BootInstall
	if !ready {
		state.Boot = siteagent.BootWait
		if i.Reason != nil {
			state.Reason = siteagent.TruncateReason(*i.Reason)
		}
		if !leaving {
			return state, nil
		}
	}
	secrets := [2]secret.String{}
	for n, column := range []string{"password", "token"} {
		if secrets[n], err = s.Box.Open(sealColumn(column, m.ID), [][]byte{password, token}[n]); err != nil {
			return state, templates.Failure("Its " + column + " cannot be unsealed.") // a Failure fails only this install, not the whole push
		}
	}
	state.Token = secrets[1].Reveal()
	state.Files, err = templates.RenderFiles(
		ctx,
		s.DB,
		s.Box,
		i.Profile.ID,
		i.templateVariables(at.machines, at.files, at.email, secrets[0], secrets[1]),
	)
	return state, err
}

// agentURLSQL returns an SQL expression for the address at which an install's machine reaches an agent. A machine
// without IPv4 uses the agent's IPv6 address, if it has one.
func agentURLSQL(agent string) string {
	return "CASE WHEN i.host_ipv4_address IS NULL AND " + agent + ".machines_ipv6_url <> '' THEN " +
		agent + ".machines_ipv6_url ELSE " + agent + ".machines_url END"
}

// sealColumn returns the place for which a secret of an install is sealed.
func sealColumn(column string, id int64) seal.Location {
	return seal.Location{Table: "install", Column: column, ID: id}
}

// toAgent converts the address to the agent's form.
func (a *InstallAddress) toAgent() *siteagent.Address {
	if a == nil {
		return nil
	}
	t := &siteagent.Address{Prefix: a.Address}
	if a.Gateway != nil {
		t.Gateway = *a.Gateway
	}
	return t
}
