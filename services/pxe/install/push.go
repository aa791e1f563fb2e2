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
)

// maxMachines is how many an agent is told of: those that are being installed, and then those that were installed last.
const maxMachines = 10_000

// wanted are the installs that the agent of a DHCP server is to know of: each with the MAC addresses that no later one has taken.
const wanted = `
	SELECT i.id, i.revision, array_agg(m.mac ORDER BY m.mac) AS macs, bool_or(m.under_way) AS under_way, i.leaving AND i.told_at IS NULL AS leaves
	FROM install i JOIN install_mac m ON m.install_id = i.id
	WHERE i.dhcp_server_id = $1 AND NOT EXISTS (SELECT FROM install_mac later WHERE later.mac = m.mac AND later.taken > m.taken)
	GROUP BY i.id ORDER BY bool_or(m.under_way) DESC, i.id DESC LIMIT $2`

type machine struct {
	ID, Revision int64
	MACs         []string
	UnderWay     bool
	Leaves       bool // its agent is told that it has no room any more
}

// Push has an agent know what its machines are to do.
func (s *Installs) Push(ctx context.Context, agent *siteagent.Client, dhcpServer int64) error {
	held, err := agent.ListMachines(ctx) // before the database is asked: what somebody else has told it of meanwhile is no stranger
	if err != nil {
		return site.Away{Err: fmt.Errorf("ask which machines it knows of: %w", err)}
	}
	rows, err := s.DB.Query(ctx, wanted, dhcpServer, maxMachines)
	if err != nil {
		return fmt.Errorf("read what machines are to do: %w", err)
	}
	machines, err := pgx.CollectRows(rows, pgx.RowToStructByPos[machine])
	if err != nil {
		return fmt.Errorf("read what machines are to do: %w", err)
	}
	has := map[int64]int64{}
	for _, h := range held {
		has[h.ID] = h.Revision
	}
	left := map[int64]bool{}
	for _, m := range machines {
		left[m.ID] = has[m.ID] <= m.Revision // a higher one is of before the database was restored
	}
	for _, h := range held {
		if !left[h.ID] {
			if err := agent.DeleteMachine(ctx, h.ID); err != nil {
				return site.Away{Err: fmt.Errorf("have it forget machine %d: %w", h.ID, err)}
			}
			delete(has, h.ID)
		}
	}
	for _, underWay := range []bool{false, true} { // what has lost a MAC address, before what has taken it
		for _, m := range machines {
			if m.UnderWay != underWay {
				continue
			}
			var err error
			if revision, known := has[m.ID]; !known || revision != m.Revision {
				err = s.put(ctx, agent, m)
			} else if m.Leaves {
				err = s.told(ctx, m)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// put tells an agent what one machine is to do. A machine that cannot be told is not installed.
func (s *Installs) put(ctx context.Context, agent *siteagent.Client, m machine) error {
	told, err := s.machine(ctx, m)
	if errors.Is(err, pgx.ErrNoRows) { // it has changed meanwhile
		return nil
	}
	if why, is := errors.AsType[templates.Failure](err); is {
		return s.fail(ctx, m, string(why))
	}
	if err != nil {
		return err
	}
	err = agent.PutMachine(ctx, told)
	if m.UnderWay && siteagent.IsRefusal(err, http.StatusUnprocessableEntity) {
		return s.fail(ctx, m, "The DHCP server's agent does not take it: "+err.Error())
	}
	if err != nil && !siteagent.IsRefusal(err, http.StatusConflict) { // somebody else has told it something newer
		return site.Away{Err: fmt.Errorf("tell it of machine %d: %w", m.ID, err)}
	}
	if err == nil && m.Leaves {
		return s.told(ctx, m)
	}
	return nil
}

// told notes that an agent was told that a machine has no room any more.
func (s *Installs) told(ctx context.Context, m machine) error {
	return s.DB.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("what an agent knows is no change")
		if _, err := tx.Exec(
			ctx,
			"UPDATE install SET told_at = now() WHERE id = $1 AND revision = $2 AND leaving",
			m.ID,
			m.Revision,
		); err != nil {
			return fmt.Errorf("note what the agent of install %d was told: %w", m.ID, err)
		}
		return nil
	})
}

// fail fails an install that is still as it was seen.
func (s *Installs) fail(ctx context.Context, m machine, why string) error {
	return s.DB.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("it has changed meanwhile")
		var id int64
		err := tx.QueryRow(
			ctx, "SELECT id FROM install WHERE id = $1 AND revision = $2 AND "+reference.InstallUnderWay+" FOR UPDATE", m.ID, m.Revision,
		).
			Scan(&id)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("hold install %d: %w", m.ID, err)
		}
		return s.become(ctx, tx, m.ID, Failed, text(why, maxError))
	})
}

// machine is what an agent is told of one.
func (s *Installs) machine(ctx context.Context, m machine) (told siteagent.Machine, err error) {
	i, err := View.One(ctx, s.DB, "id = $1", m.ID)
	if err != nil {
		return told, err
	}
	told = siteagent.Machine{
		ID:          m.ID,
		Revision:    m.Revision,
		MACs:        m.MACs,
		Hostname:    i.Host.Hostname,
		IPv4:        i.Host.IPv4.told(),
		IPv6:        i.Host.IPv6.told(),
		Nameservers: strings.Fields(i.Host.Nameservers),
		Boot:        siteagent.BootLocal,
	}
	if ended(i.Status) {
		var left bool
		err := s.DB.QueryRow(ctx, "SELECT address_left FROM install WHERE id = $1 AND revision = $2", m.ID, m.Revision).Scan(&left)
		if left {
			told.IPv4, told.IPv6, told.Reason = nil, nil, "its IP entity is no longer this machine's"
		}
		return told, err
	}
	var at struct{ machines, files, email string }
	var password, token []byte
	var ready, leaving bool
	err = s.DB.QueryRow(ctx, `SELECT i.granted AND (i.file_server_id IS NULL OR f.seen_at IS NOT NULL), i.leaving, `+reached("d")+`, coalesce(`+reached("f")+`, `+reached("d")+`), coalesce(i.client_email, ''), i.password, i.token FROM install i
		JOIN site_agent d ON d.kind = 'pxe/dhcp' AND d.id = i.dhcp_server_id LEFT JOIN site_agent f ON f.kind = 'pxe/file' AND f.id = i.file_server_id
		WHERE i.id = $1 AND i.revision = $2`, m.ID, m.Revision).
		Scan(&ready, &leaving, &at.machines, &at.files, &at.email, &password, &token)
	if err != nil {
		return told, err
	}
	told.Boot = siteagent.BootInstall
	if !ready {
		told.Boot = siteagent.BootWait
		if i.Reason != nil {
			told.Reason = siteagent.TruncateReason(*i.Reason)
		}
		if !leaving {
			return told, nil
		}
	}
	secrets := [2]secret.String{}
	for n, column := range []string{"password", "token"} {
		if secrets[n], err = s.Box.Open(place(column, m.ID), [][]byte{password, token}[n]); err != nil {
			return told, templates.Failure("Its " + column + " cannot be unsealed.") // and no other machine waits for that
		}
	}
	told.Token = secrets[1].Reveal()
	told.Files, err = templates.Files(ctx, s.DB, i.Profile.ID, i.Shown(at.machines, at.files, at.email, secrets[0], secrets[1]))
	return told, err
}

// reached is the expression where an install's machine reaches an agent: one without IPv4 by IPv6, where the agent has that.
func reached(agent string) string {
	return "CASE WHEN i.host_ipv4_address IS NULL AND " + agent + ".machines_ipv6_url <> '' THEN " +
		agent + ".machines_ipv6_url ELSE " + agent + ".machines_url END"
}

func place(column string, id int64) seal.Place {
	return seal.Place{Table: "install", Column: column, ID: id}
}

func (a *InstallAddress) told() *siteagent.Address {
	if a == nil {
		return nil
	}
	t := &siteagent.Address{Prefix: a.Address}
	if a.Gateway != nil {
		t.Gateway = *a.Gateway
	}
	return t
}
