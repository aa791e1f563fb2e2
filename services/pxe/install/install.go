// Package install serves the installations of machines. It pushes to the agents at the sites what their machines are to
// boot, and applies what the agents report. It fails an install when one of its stages takes too long. See
// docs/do/installs.md.
package install

import (
	"context"
	"fmt"
	"slices"

	"github.com/ironplane/ironplane/pkg/events"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/postgres/table"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/runtime/mesh"
	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/settings"
	"github.com/ironplane/ironplane/services/pxe/preflight"
	"github.com/ironplane/ironplane/services/pxe/reference"
	"github.com/ironplane/ironplane/services/pxe/signedreport"
)

// The statuses of an install. An install with one of the last three has ended.
const (
	Waiting    = "waiting"
	Booting    = "booting"
	Installing = "installing"
	Installed  = "installed"
	Failed     = "failed"
	Cancelled  = "cancelled"
)

// isFinished reports whether an install with this status has ended.
func isFinished(status string) bool {
	return slices.Contains([]string{Installed, Failed, Cancelled}, status)
}

// Install is the installation of a machine.
type Install struct {
	ListedInstall
	Variables map[string]string     `json:"variables,omitzero" db:"variables" doc:"The values for the profile's templates, by name. Left out for clients."`
	Forced    []string              `json:"forced,omitempty" db:"forced" doc:"The codes of the reasons against the install that the caller passed over. Left out if there are none, and for clients."`
	Requests  []InstallRequest      `json:"requests,omitzero" db:"requests" doc:"The last hundred requests and reports of the machine, the newest first. Left out for clients."`
	Reports   []signedreport.Report `json:"reports,omitzero" db:"reports" ext:"true" doc:"The signed reports of programs on the machine, the oldest first, such as that a disk was wiped. Left out for clients."`
}

// ListedInstall is an install as it appears in lists, and as clients see it.
type ListedInstall struct {
	rest.Versioned
	ID         int64           `json:"id" db:"id"`
	Name       string          `json:"name" db:"name" doc:"The host name of the machine."`
	Status     string          `json:"status" db:"status" enum:"waiting,booting,installing,installed,failed,cancelled" doc:"waiting: for the machine, or as reason says. booting: the machine has its boot script. installing: the installer has reported. The others have ended."`
	Reason     *string         `json:"reason,omitempty" db:"reason" recorded:"false" doc:"Why the install waits, or that the agent does not know of its end yet. Left out if it waits only for the machine."`
	Step       *string         `json:"step,omitempty" db:"step" recorded:"false" doc:"The last step that the installer reported."`
	Progress   int32           `json:"progress" db:"progress" recorded:"false" doc:"The progress in percent that the installer reported."`
	Error      *string         `json:"error,omitempty" db:"error" doc:"Why the install failed: the installer's report, or the stage that took too long."`
	Attempt    int32           `json:"attempt" db:"attempt" doc:"The number of the attempt. It rises with each retry."`
	Profile    rest.Ref        `json:"profile" db:"profile_" doc:"The profile, with the name that it had when the install was created."`
	Host       InstallHost     `json:"host" db:"host_" doc:"The machine."`
	SSHKeys    string          `json:"ssh_keys" db:"ssh_keys" doc:"The public SSH keys that may sign in as root, one per line."`
	Client     *rest.Ref       `json:"client,omitempty" db:"client_" doc:"The client that the machine belongs to."`
	DHCPServer rest.Ref        `json:"dhcp_server" db:"dhcp_server_" doc:"The DHCP server that boots the machine."`
	FileServer *rest.Ref       `json:"file_server,omitempty" db:"file_server_" doc:"The file server that the installer reads from. Left out if the site has none."`
	CreatedAt  rest.Timestamp  `json:"created_at" db:"created_at"`
	StartedAt  *rest.Timestamp `json:"started_at,omitempty" db:"started_at" doc:"When the machine first received its boot script."`
	FinishedAt *rest.Timestamp `json:"finished_at,omitempty" db:"finished_at"`
	SeenAt     *rest.Timestamp `json:"seen_at,omitempty" db:"seen_at" recorded:"false" doc:"When the machine was last seen."`
}

// InstallHost is the machine of an install.
type InstallHost struct {
	MACs        []string        `json:"macs" db:"macs" doc:"The MAC addresses of the machine. It boots from the first."`
	Hostname    string          `json:"hostname" db:"hostname"`
	Entity      rest.Ref        `json:"entity" db:"entity_" doc:"The IP entity of the machine."`
	IPv4        *InstallAddress `json:"ipv4,omitempty" db:"ipv4_" doc:"The IPv4 address that the entity had when the install was created."`
	IPv6        *InstallAddress `json:"ipv6,omitempty" db:"ipv6_" doc:"The IPv6 address that the entity had when the install was created."`
	VLAN        *int32          `json:"vlan,omitempty" db:"vlan"`
	Nameservers string          `json:"nameservers" db:"nameservers" doc:"The addresses of the name servers, separated by spaces."`
	Disk        *string         `json:"disk,omitempty" db:"disk" doc:"The disk to install on. Left out if the installer chooses."`
	Firmware    string          `json:"firmware" db:"firmware" enum:"bios,uefi,uefi-secure" doc:"The firmware of the machine. uefi-secure is UEFI with Secure Boot."`
}

// InstallAddress is the machine's address of one IP version.
type InstallAddress struct {
	Address string  `json:"address" db:"address" doc:"The address with the prefix length of its subnet."`
	Gateway *string `json:"gateway,omitempty" db:"gateway"`
}

// InstallRequest is a request or a report of a machine.
type InstallRequest struct {
	At       rest.Timestamp `json:"at" doc:"When the machine sent it."`
	Kind     string         `json:"what" example:"boot" doc:"lease: an address. ask: its boot script, and it has to wait. boot: its boot script. read: a file. progress, done and failed: a report of the installer. report: a signed report. local: what to boot, and it boots its disk. refused: a request that was refused."`
	Response string         `json:"got" doc:"The response to the machine."`
	MAC      string         `json:"mac" doc:"The MAC address of the machine."`
	Address  string         `json:"address" doc:"The IP address of the machine."`
}

// View reads installs.
var View = pg.NewView[Install]("install_view")

var listedView = pg.NewView[ListedInstall]("install_view")

// Installs serves the installations of machines.
type Installs struct {
	DB       *pg.DB
	Box      *seal.Box
	Peers    mesh.Peers     // to ask the network and clients services
	Outbox   *events.Outbox // messages to the clients service
	Settings func() settings.Values

	// Entities and Clients are the items of other services that installs refer to. They cannot be deleted while an
	// unfinished install refers to them.
	Entities *events.Refs
	Clients  *events.Refs

	rows *table.Table[installBody]

	// Preflight finds the reasons why an install cannot work.
	Preflight *preflight.Finder
}

// New returns the installs of a database with the current schema. outbox takes messages to the clients service.
func New(db *pg.DB, box *seal.Box, peers mesh.Peers, outbox *events.Outbox, current func() settings.Values) *Installs {
	s := &Installs{DB: db, Box: box, Peers: peers, Outbox: outbox, Settings: current}
	s.rows = table.New[installBody]("install", "install_view", box)
	s.Entities = &events.Refs{
		Owner:     "network",
		Type:      "entity",
		DB:        db,
		Peers:     peers,
		FindUsage: reference.InstallUseDescriber("host_entity_id"),
		Clear: func(ctx context.Context, tx *pg.Tx, id int64, _ string) error {
			return s.failForDeletedEntity(ctx, tx, id)
		},
	}
	s.Clients = &events.Refs{
		Owner:     "clients",
		Type:      "client",
		DB:        db,
		Peers:     peers,
		FindUsage: reference.InstallUseDescriber("client_id"),
		// An install still shows its client's name after the client's deletion.
		Clear: func(context.Context, *pg.Tx, int64, string) error { return nil },
	}
	return s
}

// setStatus changes the status of an install, records the change, and tells the client when the install is done. failure
// is the error of a failed install. The secrets of an install that has ended are deleted.
func (s *Installs) setStatus(ctx context.Context, tx *pg.Tx, id int64, status string, failure string) error {
	before, err := listedView.Get(ctx, tx, id)
	if err != nil {
		return fmt.Errorf("read install %d: %w", id, err)
	}
	_, err = tx.Exec(
		ctx,
		`UPDATE install SET status = $2, version = version + 1, stage_at = now(), revision = CASE WHEN $3 THEN nextval('install_revision') ELSE revision END,
		error = nullif($4, ''), progress = CASE $2 WHEN 'installed' THEN 100 WHEN 'booting' THEN 0 ELSE progress END, step = CASE WHEN $2 <> 'booting' THEN step END,
		started_at = CASE WHEN $2 = 'booting' THEN coalesce(started_at, now()) ELSE started_at END, finished_at = CASE WHEN $3 THEN now() END,
		password = CASE WHEN NOT $3 THEN password END, token = CASE WHEN NOT $3 THEN token END, client_email = CASE WHEN NOT $3 THEN client_email END WHERE id = $1`,
		id,
		status,
		isFinished(status),
		failure,
	)
	if err != nil {
		return fmt.Errorf("set the status of install %d to %s: %w", id, status, err)
	}
	after, err := listedView.Get(ctx, tx, id)
	if err != nil {
		return fmt.Errorf("read install %d: %w", id, err)
	}
	recordChange(tx, pg.Action(statusActions[status]), &before, &after)
	if status == Installed || status == Failed {
		return s.notifyClient(ctx, tx, &after)
	}
	return nil
}

// statusActions are the recorded actions by the status that they lead to.
var statusActions = map[string]string{
	Booting:    "booted",
	Installing: "began",
	Installed:  "installed",
	Failed:     "failed",
	Cancelled:  "cancelled",
}

// recordChange adds the record of a change of an install to the unit of work.
func recordChange(tx *pg.Tx, action pg.Action, before, after *ListedInstall) {
	tx.Record(pg.Record{
		Kind:    recordKind,
		Action:  action,
		Before:  before,
		After:   after,
		Targets: targets(after),
	})
}

const recordKind = "pxe.install"

// targets returns the install and the other items that a change of it concerns.
func targets(i *ListedInstall) []pg.Target {
	return append(
		[]pg.Target{{Type: "pxe/install", Noun: "install", ID: i.ID, Name: i.Name, Version: i.Version}},
		relatedTargets(i)...)
}

// relatedTargets returns the items besides the install that a change of it concerns.
func relatedTargets(i *ListedInstall) []pg.Target {
	if i.Client == nil {
		return nil
	}
	return []pg.Target{{Type: "client", Noun: "client", ID: i.Client.ID, Name: i.Client.Name}}
}
