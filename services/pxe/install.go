package pxe

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/postgres/table"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/runtime/mesh"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/services/pxe/install"
	"github.com/ironplane/ironplane/services/pxe/templates/script"
)

type installBody struct {
	Profile rest.RefID `json:"profile" db:"profile_id" required:"create" example:"1" doc:"one of /pxe/profile"`
	Host    struct {
		MACs     []string   `json:"macs" db:"macs" required:"create" example:"[\"52:54:00:12:34:56\"]" doc:"of its interfaces, up to 16, of which it boots from the first"`
		Hostname string     `json:"hostname" db:"hostname" max:"253" example:"web1.example.com" doc:"where it is not sent, it is made of the address: host-192-0-2-10"`
		Entity   rest.RefID `json:"entity" db:"entity_id" required:"create" example:"1" doc:"one of /entity: its first address that a machine can have, its gateway, mask and VLAN as they are now; of IPv6 a subnet has 64 bits where the entity does not say"`
		Disk     *string    `json:"disk" db:"disk" pattern:"^/dev/[A-Za-z0-9/_.:+-]+$" example:"/dev/sda" doc:"to install on; without it the installer chooses"`
		Firmware string     `json:"firmware" db:"firmware" enum:"bios,uefi" example:"uefi" doc:"bios where it is not sent"`
		DNS      string     `json:"nameservers" db:"nameservers" example:"192.0.2.53 2001:db8::53" doc:"addresses with blanks between"`

		IPv4Address *string `db:"ipv4_address"`
		IPv4Gateway *string `db:"ipv4_gateway"`
		IPv6Address *string `db:"ipv6_address"`
		IPv6Gateway *string `db:"ipv6_gateway"`
		VLAN        *int32  `db:"vlan"`
	} `json:"host" db:"host_"`
	Password   secret.String     `json:"password" db:"password" max:"1024" example:"a long walk in the rain" doc:"of root, or of Windows' Administrator; kept sealed until the install ends, and never shown; without it there is one that nobody knows"`
	SSHKeys    string            `json:"ssh_keys" db:"ssh_keys" max:"65536" doc:"that may sign in as root, a line each"`
	Client     *rest.RefID       `json:"client" db:"client_id" example:"1" doc:"whose machine it is: one of /client, which is told when it is done if the profile names an email template"`
	DHCPServer *rest.RefID       `json:"dhcp_server" db:"dhcp_server_id" example:"1" doc:"which boots it: one of /pxe/dhcp; where it is not sent, that of the entity's IP group"`
	Variables  map[string]string `json:"variables" db:"variables" max:"65536" example:"{\"timezone\": \"Europe/Berlin\"}" doc:"which the profile's templates show, by their names"`

	Token          secret.String `db:"token"`
	ProfileName    string        `db:"profile_name"`
	ClientEmail    *string       `db:"client_email"`
	DHCPServerName string        `db:"dhcp_server_name"`
	FileServer     *int64        `db:"file_server_id"`
	FileServerName *string       `db:"file_server_name"`
	Granted        bool          `db:"granted"`

	entity *machineEntity // as network says; nil: there is none
}

const (
	mostMACs        = 16
	mostNameservers = 16
	mostVariables   = 100
	// tokenLetters have five random bits each.
	tokenLetters = 52
)

// machineEntity is what network tells of an IP entity.
type machineEntity struct {
	V4, V6 *space
	VLAN   *int32
	Group  struct {
		ID         int64
		Name       string
		DHCPServer *rest.RefID `json:"dhcp_server"`
	}
}

// space is an address, a range or a prefix, and its subnet.
type space struct {
	First   netip.Addr
	Bits    *int // of a prefix
	Mask    *int // of the subnet's prefix
	Gateway *netip.Addr
}

// host is the first address that a machine can have, with the length of its subnet's prefix.
func (s *space) host() (p netip.Prefix, ok bool) {
	address, all := s.First, s.First.BitLen()
	length := 64
	if s.Mask != nil {
		length = *s.Mask
	} else if s.First.Is4() {
		return p, false
	}
	if s.Bits != nil && *s.Bits < all-1 {
		address = address.Next()
	}
	if s.Gateway != nil && address == *s.Gateway && s.Bits != nil && *s.Bits < all {
		address = address.Next()
	}
	return netip.PrefixFrom(address, length), true
}

// Resolve checks what the tags cannot say, and works out what the machine is called and which addresses it has.
func (b *installBody) Resolve(wrong *problem.Fields) {
	h := &b.Host
	if b.entity == nil {
		wrong.Add("/host/entity", "not_found", "names something that does not exist")
	}
	if b.Client != nil && b.ClientEmail == nil {
		wrong.Add("/client", "not_found", "names something that does not exist")
	}
	if h.MACs = script.ParseMACs(wrong, "/host/macs", h.MACs...); len(h.MACs) > mostMACs {
		wrong.Add("/host/macs", "too_long", "can have at most %d items", mostMACs)
	} else if len(h.MACs) == 0 {
		wrong.Add("/host/macs", "required", "is required and cannot be empty")
	}
	for _, mac := range h.MACs {
		if strings.ContainsRune("13579bdf", rune(mac[1])) || mac == "00:00:00:00:00:00" {
			wrong.Add("/host/macs", "invalid", "has %s, which no interface has", mac)
		}
	}
	names := script.ParseNameservers(wrong, h.DNS)
	if len(names) > mostNameservers {
		wrong.Add("/host/nameservers", "too_long", "can have at most %d", mostNameservers)
	}
	h.DNS = strings.Join(names, " ")
	if h.Firmware == "" {
		h.Firmware = "bios"
	}
	b.address(wrong)
	script.CheckHostname(wrong, h.Hostname)
	b.SSHKeys = readSSHKeys(wrong, b.SSHKeys)
	if len(b.Variables) > mostVariables {
		wrong.Add("/variables", "too_long", "can have at most %d members", mostVariables)
	}
	if b.Variables == nil {
		b.Variables = map[string]string{}
	}
	if b.Password.IsZero() {
		b.Password = secret.New(rand.Text())
	}
	b.Token = newToken()
}

func newToken() secret.String { return secret.New((rand.Text() + rand.Text())[:tokenLetters]) }

// address works out the machine's addresses of its entity.
func (b *installBody) address(wrong *problem.Fields) {
	h := &b.Host
	if b.entity == nil {
		return
	}
	for _, of := range []struct {
		*space
		address, gateway **string
	}{{b.entity.V4, &h.IPv4Address, &h.IPv4Gateway}, {b.entity.V6, &h.IPv6Address, &h.IPv6Gateway}} {
		if of.space == nil {
			continue
		}
		host, ok := of.host()
		if !ok {
			wrong.Add("/host/entity", "invalid", "names an IP entity without a subnet mask")
			continue
		}
		text := host.String()
		*of.address = &text
		if of.Gateway != nil {
			gateway := of.Gateway.String()
			*of.gateway = &gateway
		}
		if h.Hostname == "" {
			h.Hostname = "host-" + strings.Trim(strings.NewReplacer(".", "-", ":", "-").Replace(host.Addr().String()), "-")
		}
	}
	h.VLAN = b.entity.VLAN
}

// has tells whether a machine that has these addresses would still be given them.
func (e *machineEntity) has(h *install.InstallHost) bool {
	for _, of := range []struct {
		*space
		has *install.InstallAddress
	}{{e.V4, h.IPv4}, {e.V6, h.IPv6}} {
		if of.space == nil || of.has == nil {
			if of.space != nil || of.has != nil {
				return false
			}
			continue
		}
		if now, ok := of.host(); !ok || now.String() != of.has.Address {
			return false
		}
	}
	return true
}

// readSSHKeys reads public keys, a line each, and writes each as it is stored.
func readSSHKeys(wrong *problem.Fields, text string) string {
	var keys []string
	for n, line := range slices.Collect(strings.Lines(text)) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		_, _, _, rest, err := ssh.ParseAuthorizedKey([]byte(line))
		if err != nil || len(rest) > 0 {
			wrong.Add("/ssh_keys", "invalid", "has in line %d no public key of SSH, such as ssh-ed25519 AAAA… and a comment", n+1)
			continue
		}
		keys = append(keys, line)
	}
	return strings.Join(keys, "\n")
}

// prepareInstall asks the services that have them about the IP entity and the client, as they are now.
func (s *Service) prepareInstall(ctx context.Context, _ rest.Verbs, b *installBody) (err error) {
	if b.entity, err = s.machineEntity(ctx, int64(b.Host.Entity)); err != nil || b.Client == nil {
		return err
	}
	b.ClientEmail, err = s.clientEmail(ctx, int64(*b.Client))
	return err
}

// machineEntity is an IP entity, or nil.
func (s *Service) machineEntity(ctx context.Context, id int64) (entity *machineEntity, err error) {
	return entity, s.askOwner(ctx, "network", "IP entity", fmt.Sprint("/internal/machine-address/", id), &entity)
}

// clientEmail is a client's address, or nil.
func (s *Service) clientEmail(ctx context.Context, id int64) (*string, error) {
	var email string
	if err := s.askOwner(ctx, "clients", "client", fmt.Sprint("/internal/email/", id), &email); err != nil || email == "" {
		return nil, err
	}
	return &email, nil
}

// askTime is how long another service may take to answer.
const askTime = 3 * time.Second

func (s *Service) askOwner(ctx context.Context, service, noun, path string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	err := s.peers.Ask(ctx, service, path, into)
	if errors.Is(err, mesh.ErrAway) {
		return problem.New(problem.Unavailable, "Whether the %s exists cannot be found out right now.", noun).Because(err)
	}
	return err
}

var installTable = func(s *Service) *table.Table[installBody] {
	return table.New[installBody]("install", "install_view", s.box)
}

type (
	installsAsked struct {
		MAC string `query:"mac" max:"50" doc:"one of the machine's MAC addresses"`
	}
	installAsked struct {
		ID int64 `path:"*"`
	}
	installToRetry struct {
		ID   int64 `path:"*"`
		Body rest.Body[retryBody]

		email *string // of its client, as it is now
	}
	retryBody struct {
		Password secret.String `json:"password" max:"1024" kept:"false" doc:"as where it is created: the one of before is gone"`
	}
)

// ownInstalls is the condition which installs the caller may know of.
func ownInstalls(ctx context.Context) []pg.Condition {
	client := principal.From(ctx).Client()
	if client == 0 {
		return nil
	}
	return []pg.Condition{{SQL: "client_id = $1", Args: []any{client}}}
}

func (s *Service) installRoutes() []rest.Route {
	const path, one = "/pxe/install", "/pxe/install/{install_id}"
	has, orOwn := guard.Has(permission.PXEInstalls), guard.HasOrClient(permission.PXEInstalls)
	of := installTable(s)
	return append(rest.Resource[install.Install, installBody]{
		DB:        s.db,
		Path:      path,
		ID:        "install_id",
		Noun:      "install",
		Guard:     has,
		Again:     rest.AgainRefused,
		Without:   rest.Listing | rest.Viewing | rest.Editing,
		Additions: rest.Creating | rest.Deleting,
		Table:     "install",
		View:      "install_view",
		Box:       s.box,
		Prepare:   s.prepareInstall,
		Lock: func(ctx context.Context, tx *pg.Tx, rows ...*installBody) error {
			return lockMachines(ctx, tx, rows...)
		},
		Check: func(ctx context.Context, tx *pg.Tx, _ int64, _, b *installBody) error {
			return s.checkInstall(ctx, tx, b)
		},
		Insert: func(ctx context.Context, tx *pg.Tx, b *installBody) (int64, error) {
			id, err := of.Insert(ctx, tx, b)
			if err != nil {
				return 0, err
			}
			return id, s.beginInstall(ctx, tx, id, b)
		},
		Delete: s.deleteInstall,
		About:  func(i *install.Install) []pg.Target { return install.About(&i.ListedInstall) },
	}.Routes(), rest.List[installsAsked, install.ListedInstall]{
		DB:        s.db,
		Path:      path,
		Guard:     orOwn,
		Name:      "listInstalls",
		Summary:   "List installs",
		Doc:       "A client sees its own.",
		Extension: true,
		View:      "install_view",
		Where: func(ctx context.Context, req installsAsked) ([]pg.Condition, error) {
			where := ownInstalls(ctx)
			if req.MAC == "" {
				return where, nil
			}
			var wrong problem.Fields
			macs := script.ParseMACs(&wrong, "?mac", req.MAC)
			if len(wrong) > 0 {
				refused := problem.New(problem.BadRequest, "The query is wrong.")
				refused.Fields = wrong
				return nil, refused
			}
			return append(where, pg.Condition{SQL: "id IN (SELECT install_id FROM install_mac WHERE mac = ANY ($1))", Args: []any{macs}}), nil
		},
		By: rest.By{Search: rest.SearchIn("search"), Sorts: map[string]string{"name": "name", "created_at": "created_at"},
			Filters: map[string]string{"status": "status", "profile": "profile_id", "client": "client_id", "dhcp_server": "dhcp_server_id"}},
	}, rest.Read[installAsked, install.Install]{
		Path:      one,
		Guard:     orOwn,
		Name:      "getInstall",
		Summary:   "View an install",
		Doc:       "A client sees of its own what lists have.",
		Extension: true,
		Do: func(ctx context.Context, req installAsked) (install.Install, error) {
			found, err := install.View.Get(ctx, s.db, req.ID, ownInstalls(ctx)...)
			if principal.From(ctx).Client() != 0 {
				found = install.Install{ListedInstall: found.ListedInstall}
			}
			return found, err
		},
	}, rest.Mutation[installAsked, install.Install]{
		Method: http.MethodPost, Path: one + "/cancel", Guard: has, Name: "cancelInstall", Summary: "Cancel an install", Extension: true,
		Doc:    "What the machine was given so far it may still run; it gets nothing more, and boots its disk from then on.",
		Effect: rest.Effect{Logs: rest.LogsItem, Again: rest.AgainRefused, Shows: one},
		Do: func(ctx context.Context, tx *pg.Tx, req installAsked) (install.Install, error) {
			return s.installs.Cancel(ctx, tx, req.ID)
		},
	}, rest.Mutation[installToRetry, install.Install]{
		Method:    http.MethodPost,
		Path:      one + "/retry",
		Guard:     has,
		Name:      "retryInstall",
		Summary:   "Install a machine once more",
		Extension: true,
		Doc:       "Of an install that has ended: all is as it was asked for then, and the profile as it is now. The machine has to boot from the network again.",
		Effect:    rest.Effect{Logs: rest.LogsItem, Again: rest.AgainRefused, Shows: one},
		Prepare:   s.prepareRetry,
		Do:        s.retryInstall,
	})
}
