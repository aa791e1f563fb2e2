package install

import (
	"crypto/rand"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"

	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/services/pxe/templates/script"
)

// installBody is the body that creates an install. Members without a json tag are filled from other items.
type installBody struct {
	Profile rest.RefID `json:"profile" db:"profile_id" required:"create" example:"1" doc:"The id of the profile to install, one of /pxe/profile."`
	Host    struct {
		MACs     []string   `json:"macs" db:"macs" required:"create" example:"[\"52:54:00:12:34:56\"]" doc:"The MAC addresses of the machine, up to 16. It boots from the first."`
		Hostname string     `json:"hostname" db:"hostname" max:"253" example:"web1.example.com" doc:"The host name. The default is made from the address: host-192-0-2-10."`
		Entity   rest.RefID `json:"entity" db:"entity_id" required:"create" example:"1" doc:"The id of the machine's IP entity, one of /entity. The machine gets the first usable address of the entity, and its present gateway, mask and VLAN. An IPv6 subnet without a mask has 64 bits."`
		Disk     *string    `json:"disk" db:"disk" pattern:"^/dev/[A-Za-z0-9/_.:+-]+$" example:"/dev/sda" doc:"The disk to install on. The default is the installer's choice."`
		Firmware string     `json:"firmware" db:"firmware" enum:"bios,uefi,uefi-secure" example:"uefi" doc:"The firmware of the machine. uefi-secure is UEFI with Secure Boot. The default is bios."`
		DNS      string     `json:"nameservers" db:"nameservers" example:"192.0.2.53 2001:db8::53" doc:"The addresses of the name servers, separated by spaces."`

		IPv4Address *string `db:"ipv4_address"`
		IPv4Gateway *string `db:"ipv4_gateway"`
		IPv6Address *string `db:"ipv6_address"`
		IPv6Gateway *string `db:"ipv6_gateway"`
		VLAN        *int32  `db:"vlan"`
	} `json:"host" db:"host_" doc:"The machine."`
	Password   secret.String     `json:"password" db:"password" max:"1024" example:"a long walk in the rain" doc:"The password of root, or of Administrator on Windows. It is stored encrypted until the install ends, and never shown. The default is a random password."`
	SSHKeys    string            `json:"ssh_keys" db:"ssh_keys" max:"65536" lines:"true" doc:"The public SSH keys that may sign in as root, one per line."`
	Client     *rest.RefID       `json:"client" db:"client_id" example:"1" doc:"The id of the client that the machine belongs to, one of /client. The client gets an email when the install is done, if the profile has an email template."`
	DHCPServer *rest.RefID       `json:"dhcp_server" db:"dhcp_server_id" example:"1" doc:"The id of the DHCP server that boots the machine, one of /pxe/dhcp. The default is that of the entity's IP group."`
	Variables  map[string]string `json:"variables" db:"variables" max:"65536" example:"{\"timezone\": \"Europe/Berlin\"}" doc:"The values for the profile's templates, by name."`

	Token          secret.String `db:"token"`
	ProfileName    string        `db:"profile_name"`
	ClientEmail    *string       `db:"client_email"`
	DHCPServerName string        `db:"dhcp_server_name"`
	FileServer     *int64        `db:"file_server_id"`
	FileServerName *string       `db:"file_server_name"`
	Granted        bool          `db:"granted"`
	Forced         []string      `db:"forced"`
	ByClient       bool          `db:"by_client"`

	entity      *machineEntity // from the network service; nil: it does not exist
	hasPassword bool           // the caller chose the password
}

const (
	maxMACs        = 16
	maxNameservers = 16
	maxVariables   = 100
	// tokenLength is in characters. Each character has five random bits.
	tokenLength = 52
)

// Resolve checks what struct tags cannot express, fills in defaults, and computes the addresses from the IP entity.
func (b *installBody) Resolve(invalid *problem.Fields) {
	h := &b.Host
	if b.entity == nil {
		invalid.Add("/host/entity", "not_found", "does not exist")
	}
	if b.Client != nil && b.ClientEmail == nil {
		invalid.Add("/client", "not_found", "does not exist")
	}
	if h.MACs = script.ParseMACs(invalid, "/host/macs", h.MACs...); len(h.MACs) > maxMACs {
		invalid.Add("/host/macs", "too_long", "can have at most %d items", maxMACs)
	} else if len(h.MACs) == 0 {
		invalid.Add("/host/macs", "required", "is required and cannot be empty")
	}
	for _, mac := range h.MACs {
		if strings.ContainsRune("13579bdf", rune(mac[1])) || mac == "00:00:00:00:00:00" {
			invalid.Add("/host/macs", "invalid", "contains %s, which cannot be the address of an interface", mac)
		}
	}
	names := script.ParseNameservers(invalid, h.DNS)
	if len(names) > maxNameservers {
		invalid.Add("/host/nameservers", "too_long", "can have at most %d items", maxNameservers)
	}
	h.DNS = strings.Join(names, " ")
	if h.Firmware == "" {
		h.Firmware = "bios"
	}
	b.resolveAddresses(invalid)
	script.CheckHostname(invalid, h.Hostname)
	b.SSHKeys = parseSSHKeys(invalid, b.SSHKeys)
	if len(b.Variables) > maxVariables {
		invalid.Add("/variables", "too_long", "can have at most %d members", maxVariables)
	}
	if b.Variables == nil {
		b.Variables = map[string]string{}
	}
	if b.hasPassword = !b.Password.IsZero(); !b.hasPassword {
		b.Password = secret.New(rand.Text())
	}
	b.Token = newToken()
}

// newToken returns the token by which a machine fetches its files.
func newToken() secret.String { return secret.New((rand.Text() + rand.Text())[:tokenLength]) }

// resolveAddresses computes the machine's addresses, its VLAN and its default host name from the IP entity.
func (b *installBody) resolveAddresses(invalid *problem.Fields) {
	h := &b.Host
	if b.entity == nil {
		return
	}
	for _, family := range []struct {
		*subnet
		address, gateway **string
	}{{b.entity.V4, &h.IPv4Address, &h.IPv4Gateway}, {b.entity.V6, &h.IPv6Address, &h.IPv6Gateway}} {
		if family.subnet == nil {
			continue
		}
		host, ok := family.firstHost()
		if !ok {
			invalid.Add("/host/entity", "invalid", "has no subnet mask")
			continue
		}
		text := host.String()
		*family.address = &text
		if family.Gateway != nil {
			gateway := family.Gateway.String()
			*family.gateway = &gateway
		}
		if h.Hostname == "" {
			h.Hostname = "host-" + strings.Trim(strings.NewReplacer(".", "-", ":", "-").Replace(host.Addr().String()), "-")
		}
	}
	h.VLAN = b.entity.VLAN
}

// parseSSHKeys parses public keys, one per line, and returns them without empty lines and comment lines.
func parseSSHKeys(invalid *problem.Fields, text string) string {
	var keys []string
	for n, line := range slices.Collect(strings.Lines(text)) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		_, _, _, rest, err := ssh.ParseAuthorizedKey([]byte(line))
		if err != nil || len(rest) > 0 {
			invalid.Add(
				"/ssh_keys",
				"invalid",
				"has an invalid line %d: each line must be an SSH public key, such as: ssh-ed25519 AAAA… comment",
				n+1,
			)
			continue
		}
		keys = append(keys, line)
	}
	return strings.Join(keys, "\n")
}

// asInstall returns the install that the body creates, without what only the database knows.
func (b *installBody) asInstall() *Install {
	i := &Install{Variables: b.Variables}
	i.Profile.ID, i.Profile.Name, i.SSHKeys = int64(b.Profile), b.ProfileName, b.SSHKeys
	h := &i.Host
	h.MACs, h.Hostname, h.Nameservers, h.Disk, h.Firmware = b.Host.MACs, b.Host.Hostname, b.Host.DNS, b.Host.Disk, b.Host.Firmware
	h.Entity.ID = int64(b.Host.Entity)
	if b.Host.IPv4Address != nil {
		h.IPv4 = &InstallAddress{*b.Host.IPv4Address, b.Host.IPv4Gateway}
	}
	if b.Host.IPv6Address != nil {
		h.IPv6 = &InstallAddress{*b.Host.IPv6Address, b.Host.IPv6Gateway}
	}
	if b.Client != nil {
		i.Client = &rest.Ref{ID: int64(*b.Client)}
	}
	return i
}
