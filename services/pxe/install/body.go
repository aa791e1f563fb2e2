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
	maxMACs        = 16
	maxNameservers = 16
	maxVariables   = 100
	// tokenLength have five random bits each.
	tokenLength = 52
)

// Resolve checks what the tags cannot say, and works out what the machine is called and which addresses it has.
func (b *installBody) Resolve(invalid *problem.Fields) {
	h := &b.Host
	if b.entity == nil {
		invalid.Add("/host/entity", "not_found", "names something that does not exist")
	}
	if b.Client != nil && b.ClientEmail == nil {
		invalid.Add("/client", "not_found", "names something that does not exist")
	}
	if h.MACs = script.ParseMACs(invalid, "/host/macs", h.MACs...); len(h.MACs) > maxMACs {
		invalid.Add("/host/macs", "too_long", "can have at most %d items", maxMACs)
	} else if len(h.MACs) == 0 {
		invalid.Add("/host/macs", "required", "is required and cannot be empty")
	}
	for _, mac := range h.MACs {
		if strings.ContainsRune("13579bdf", rune(mac[1])) || mac == "00:00:00:00:00:00" {
			invalid.Add("/host/macs", "invalid", "has %s, which no interface has", mac)
		}
	}
	names := script.ParseNameservers(invalid, h.DNS)
	if len(names) > maxNameservers {
		invalid.Add("/host/nameservers", "too_long", "can have at most %d", maxNameservers)
	}
	h.DNS = strings.Join(names, " ")
	if h.Firmware == "" {
		h.Firmware = "bios"
	}
	b.address(invalid)
	script.CheckHostname(invalid, h.Hostname)
	b.SSHKeys = readSSHKeys(invalid, b.SSHKeys)
	if len(b.Variables) > maxVariables {
		invalid.Add("/variables", "too_long", "can have at most %d members", maxVariables)
	}
	if b.Variables == nil {
		b.Variables = map[string]string{}
	}
	if b.Password.IsZero() {
		b.Password = secret.New(rand.Text())
	}
	b.Token = newToken()
}

func newToken() secret.String { return secret.New((rand.Text() + rand.Text())[:tokenLength]) }

// address works out the machine's addresses of its entity.
func (b *installBody) address(invalid *problem.Fields) {
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
			invalid.Add("/host/entity", "invalid", "names an IP entity without a subnet mask")
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

// readSSHKeys reads public keys, a line each, and writes each as it is stored.
func readSSHKeys(invalid *problem.Fields, text string) string {
	var keys []string
	for n, line := range slices.Collect(strings.Lines(text)) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		_, _, _, rest, err := ssh.ParseAuthorizedKey([]byte(line))
		if err != nil || len(rest) > 0 {
			invalid.Add("/ssh_keys", "invalid", "has in line %d no public key of SSH, such as ssh-ed25519 AAAA… and a comment", n+1)
			continue
		}
		keys = append(keys, line)
	}
	return strings.Join(keys, "\n")
}
