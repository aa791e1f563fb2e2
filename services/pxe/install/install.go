// Package install serves the installations of machines. It tells the agents at the sites what their machines are to boot, takes what
// the agents report of them, and fails an install of which a stage takes too long. See docs/do/installs.md.
package install

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ironplane/ironplane/pkg/events"
	"github.com/ironplane/ironplane/pkg/mail"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/runtime/mesh"
	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/settings"
	"github.com/ironplane/ironplane/services/pxe/reference"
)

// What an install is at. The last three have ended.
const (
	Waiting    = "waiting"
	Booting    = "booting"
	Installing = "installing"
	Installed  = "installed"
	Failed     = "failed"
	Cancelled  = "cancelled"
)

// ended tells whether an install with this status has.
func ended(status string) bool {
	return slices.Contains([]string{Installed, Failed, Cancelled}, status)
}

// Install is the installation of a machine.
type Install struct {
	ListedInstall
	Variables map[string]string `json:"variables,omitzero" db:"variables" doc:"left out for clients, like requests"`
	Requests  []InstallRequest  `json:"requests,omitzero" db:"requests" doc:"what the machine asked for, or said, the last hundred times, the newest first"`
}

// ListedInstall is an install as lists and clients see it.
type ListedInstall struct {
	rest.Versioned
	ID         int64           `json:"id" db:"id"`
	Name       string          `json:"name" db:"name" doc:"the machine's hostname"`
	Status     string          `json:"status" db:"status" enum:"waiting,booting,installing,installed,failed,cancelled" doc:"waiting: its machine did not ask yet, or for the reason; booting: it was given its boot script; installing: its installer has reported"`
	Reason     *string         `json:"reason,omitempty" db:"reason" recorded:"false" doc:"why it waits, where that is not up to the machine"`
	Step       *string         `json:"step,omitempty" db:"step" recorded:"false" doc:"what the installer was at last"`
	Progress   int32           `json:"progress" db:"progress" recorded:"false" doc:"in percent, as the installer says"`
	Error      *string         `json:"error,omitempty" db:"error" doc:"why it has failed: what was reported, or which stage took too long"`
	Attempt    int32           `json:"attempt" db:"attempt" doc:"rises with each retry"`
	Profile    rest.Ref        `json:"profile" db:"profile_" doc:"as it was called then"`
	Host       InstallHost     `json:"host" db:"host_"`
	SSHKeys    string          `json:"ssh_keys" db:"ssh_keys" doc:"a line each"`
	Client     *rest.Ref       `json:"client,omitempty" db:"client_"`
	DHCPServer rest.Ref        `json:"dhcp_server" db:"dhcp_server_" doc:"which boots the machine"`
	FileServer *rest.Ref       `json:"file_server,omitempty" db:"file_server_" doc:"of the site, whose install_max_concurrent bounds how many go on at a time"`
	CreatedAt  rest.Timestamp  `json:"created_at" db:"created_at"`
	StartedAt  *rest.Timestamp `json:"started_at,omitempty" db:"started_at" doc:"when the machine was given its boot script for the first time"`
	FinishedAt *rest.Timestamp `json:"finished_at,omitempty" db:"finished_at"`
	SeenAt     *rest.Timestamp `json:"seen_at,omitempty" db:"seen_at" recorded:"false" doc:"when the machine was heard of last"`
}

// InstallHost is the machine.
type InstallHost struct {
	MACs        []string        `json:"macs" db:"macs"`
	Hostname    string          `json:"hostname" db:"hostname"`
	Entity      rest.Ref        `json:"entity" db:"entity_"`
	IPv4        *InstallAddress `json:"ipv4,omitempty" db:"ipv4_" doc:"the entity's, as it was then, like the next ones"`
	IPv6        *InstallAddress `json:"ipv6,omitempty" db:"ipv6_"`
	VLAN        *int32          `json:"vlan,omitempty" db:"vlan"`
	Nameservers string          `json:"nameservers" db:"nameservers"`
	Disk        *string         `json:"disk,omitempty" db:"disk"`
	Firmware    string          `json:"firmware" db:"firmware" enum:"bios,uefi"`
}

// InstallAddress is what a machine has of one family.
type InstallAddress struct {
	Address string  `json:"address" db:"address" doc:"with the length of its subnet's prefix"`
	Gateway *string `json:"gateway,omitempty" db:"gateway"`
}

// InstallRequest is what a machine asked for, or said.
type InstallRequest struct {
	At      rest.Timestamp `json:"at"`
	What    string         `json:"what" example:"boot" doc:"lease: an address; ask: a script, and it has to wait; boot: its boot script; read: a file; progress, done, failed: what its installer says; local: what to boot, and that is its disk; refused: what it is not given"`
	Got     string         `json:"got" doc:"what it was answered"`
	MAC     string         `json:"mac"`
	Address string         `json:"address" doc:"where it asked from"`
}

// View is what there is of installs.
var View = pg.NewView[Install]("install_view")

var listed = pg.NewView[ListedInstall]("install_view")

// Installs serves the installations of machines.
type Installs struct {
	DB       *pg.DB
	Box      *seal.Box
	Peers    mesh.Peers     // of which network and clients are asked
	Outbox   *events.Outbox // to clients
	Settings func() settings.Values

	// Entities and Clients are the items of other services that installs refer to. They cannot be deleted while an install with
	// them is under way.
	Entities *events.Refs
	Clients  *events.Refs
}

// New makes the installs of a migrated schema. Messages to clients go to outbox.
func New(db *pg.DB, box *seal.Box, peers mesh.Peers, outbox *events.Outbox, current func() settings.Values) *Installs {
	s := &Installs{DB: db, Box: box, Peers: peers, Outbox: outbox, Settings: current}
	s.Entities = &events.Refs{
		Owner: "network",
		Type:  "entity",
		DB:    db,
		Peers: peers,
		Uses:  reference.ByInstall("host_entity_id"),
		Cleared: func(ctx context.Context, tx *pg.Tx, id int64, _ string) error {
			return s.entityGone(ctx, tx, id)
		},
	}
	s.Clients = &events.Refs{
		Owner: "clients",
		Type:  "client",
		DB:    db,
		Peers: peers,
		Uses:  reference.ByInstall("client_id"),
		// An install shows its client's name after the client is gone.
		Cleared: func(context.Context, *pg.Tx, int64, string) error { return nil },
	}
	return s
}

// become is what changes an install's status. What an install that has ended no longer needs is gone with it, its secrets first of all.
func (s *Installs) become(ctx context.Context, tx *pg.Tx, id int64, status string, failure string) error {
	before, err := listed.Get(ctx, tx, id)
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
		ended(status),
		failure,
	)
	if err != nil {
		return fmt.Errorf("note that install %d is %s: %w", id, status, err)
	}
	after, err := listed.Get(ctx, tx, id)
	if err != nil {
		return fmt.Errorf("read install %d: %w", id, err)
	}
	Record(tx, pg.Action(actions[status]), &before, &after)
	if status == Installed || status == Failed {
		return s.tell(ctx, tx, &after)
	}
	return nil
}

// actions are what is recorded of an install that comes to have a status.
var actions = map[string]string{Booting: "booted", Installing: "began", Installed: "installed", Failed: "failed", Cancelled: "cancelled"}

// Record leaves to the log what was done to an install.
func Record(tx *pg.Tx, action pg.Action, before, after *ListedInstall) {
	tx.Record(pg.Record{
		Kind:   "pxe.install",
		Action: action,
		Before: before,
		After:  after,
		Targets: append(
			[]pg.Target{{Type: "pxe/install", Noun: "install", ID: after.ID, Name: after.Name, Version: after.Version}},
			About(after)...),
	})
}

// About is what else a change of an install is about.
func About(i *ListedInstall) []pg.Target {
	if i.Client == nil {
		return nil
	}
	return []pg.Target{{Type: "client", Noun: "client", ID: i.Client.ID, Name: i.Client.Name}}
}

// tell has the client told how it has ended, by the profile's template, if it has one.
func (s *Installs) tell(ctx context.Context, tx *pg.Tx, i *ListedInstall) error {
	if i.Client == nil {
		return nil
	}
	var template *string
	err := tx.QueryRow(ctx, "SELECT (SELECT r.name FROM profile p JOIN ref r ON r.type = p.email_template_type "+
		"AND r.id = p.email_template_id WHERE p.id = $1)", i.Profile.ID).
		Scan(&template)
	if err != nil {
		return fmt.Errorf("look for the email template of profile %d: %w", i.Profile.ID, err)
	}
	if template == nil {
		return nil
	}
	content := mail.InstallFinished{Hostname: i.Host.Hostname, Address: i.Host.address(), Profile: i.Profile.Name, Status: i.Status}
	return s.Outbox.Send(
		ctx,
		tx,
		mail.InstalledKind,
		mail.ClientInstalled{Client: i.Client.ID, Template: *template, Content: content},
		secret.String{},
	)
}

// address is the machine's, without the length of its prefix.
func (h *InstallHost) address() string {
	for _, of := range []*InstallAddress{h.IPv4, h.IPv6} {
		if of != nil {
			address, _, _ := strings.Cut(of.Address, "/")
			return address
		}
	}
	return ""
}
