package install

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/services/pxe/templates"
	"github.com/ironplane/ironplane/services/pxe/templates/script"
)

// previewRequest is a request to preview a profile.
type previewRequest struct {
	ID   int64 `path:"*"`
	Body rest.Body[previewBody]
}

// previewBody is the body that creates an install, in which every member may be missing.
type previewBody struct {
	Profile *rest.RefID `json:"profile" doc:"The id of the profile. It must be the profile in the path."`
	Host    struct {
		MACs     []string   `json:"macs" example:"[\"52:54:00:12:34:56\"]" doc:"The MAC addresses of the machine, up to 16. It boots from the first. The default is a sample."`
		Hostname string     `json:"hostname" max:"253" example:"web1.example.com" doc:"The host name. The default is made from the address."`
		Entity   rest.RefID `json:"entity" example:"1" doc:"The id of the machine's IP entity, one of /entity. The default is a sample with addresses of both IP versions."`
		Disk     *string    `json:"disk" pattern:"^/dev/[A-Za-z0-9/_.:+-]+$" example:"/dev/sda" doc:"The disk to install on."`
		Firmware string     `json:"firmware" enum:"bios,uefi,uefi-secure" example:"uefi" doc:"The firmware of the machine. uefi-secure is UEFI with Secure Boot. The default is bios."`
		DNS      string     `json:"nameservers" example:"192.0.2.53 2001:db8::53" doc:"The addresses of the name servers, separated by spaces."`
	} `json:"host" doc:"The machine."`
	Password   secret.String              `json:"password" max:"1024" transient:"true" example:"a long walk in the rain" doc:"The password of root, or of Administrator on Windows. The files show a mark in its place."`
	SSHKeys    string                     `json:"ssh_keys" max:"65536" lines:"true" doc:"The public SSH keys that may sign in as root, one per line."`
	Client     *rest.RefID                `json:"client" example:"1" doc:"The id of the client that the machine belongs to, one of /client."`
	DHCPServer *rest.RefID                `json:"dhcp_server" example:"1" doc:"The id of the DHCP server that boots the machine, one of /pxe/dhcp. The default is that of the entity's IP group."`
	Variables  map[string]string          `json:"variables" max:"65536" example:"{\"timezone\": \"Europe/Berlin\"}" doc:"The values for the profile's templates, by name."`
	Drafts     []templates.TemplateDraft  `json:"drafts" doc:"Templates that are not saved yet. The profile is rendered as if it had them; a shell script that it lacks runs last."`
	Earlier    []templates.RenderedBefore `json:"earlier" open:"true" doc:"The files of an earlier response, to compare with."`

	profile int64 // in the path
	found   installBody
}

// Resolve checks the body as that of an install.
func (b *previewBody) Resolve(invalid *problem.Fields) {
	if b.Profile != nil && int64(*b.Profile) != b.profile {
		invalid.Add("/profile", "disagrees", "must be %d, the profile in the path", b.profile)
	}
	i, sample := &b.found, script.NewSample()
	i.Profile, i.Password, i.SSHKeys, i.Client = rest.RefID(b.profile), b.Password, b.SSHKeys, b.Client
	i.DHCPServer, i.Variables = b.DHCPServer, b.Variables
	i.Host.Hostname, i.Host.Entity, i.Host.Disk = b.Host.Hostname, b.Host.Entity, b.Host.Disk
	i.Host.Firmware, i.Host.DNS = b.Host.Firmware, b.Host.DNS
	if i.Host.MACs = b.Host.MACs; len(i.Host.MACs) == 0 {
		i.Host.MACs = sample.Host.MACs
	}
	if b.Host.Entity == 0 {
		i.entity = sampleEntity()
	}
	i.Resolve(invalid)
}

// sampleEntity returns an IP entity with a sample address of each IP version. Its site is unknown.
func sampleEntity() *machineEntity {
	subnetOf := func(address, gateway string, length int) *subnet {
		router := netip.MustParseAddr(gateway)
		return &subnet{First: netip.MustParseAddr(address), Mask: &length, Gateway: &router}
	}
	return &machineEntity{V4: subnetOf("192.0.2.10", "192.0.2.1", 24), V6: subnetOf("2001:db8::10", "2001:db8::1", 64)}
}

// Rendering is a profile rendered for a machine.
type Rendering struct {
	RenderFiles []templates.RenderedFile `json:"files" doc:"The rendered files."`
	Reasons     problem.Fields           `json:"reasons" doc:"Why an install with this body would be refused."`
}

// preview returns the route of previews.
func (s *Installs) preview() rest.Route {
	return rest.Read[previewRequest, Rendering]{
		Method:    http.MethodPost,
		Path:      "/pxe/profile/{profile_id}/render",
		Guard:     guard.Has(permission.PXEInstalls),
		Extension: true,
		Name:      "renderProfile",
		Summary:   "Preview an install with a profile",
		Doc: "Takes the body of POST /pxe/install, and installs nothing. It renders all templates of the profile, and lists the reasons " +
			"why the install would be refused. Every member may be missing.",
		Do: s.renderProfile,
	}
}

// renderProfile renders a profile for a machine, and finds the reasons why its install would be refused.
func (s *Installs) renderProfile(ctx context.Context, req previewRequest) (r Rendering, err error) {
	sent := req.Body.Sent()
	sent.profile = req.ID
	if sent.Host.Entity != 0 {
		if sent.found.entity, err = s.fetchEntity(ctx, int64(sent.Host.Entity)); err != nil {
			return r, err
		}
	}
	if sent.Client != nil {
		if sent.found.ClientEmail, err = s.fetchClientEmail(ctx, int64(*sent.Client)); err != nil {
			return r, err
		}
	}
	b, err := req.Body.New()
	if err != nil {
		return r, err
	}
	machine := b.found.newMachine()
	found, err := s.Preflight.Find(ctx, machine)
	if err != nil {
		return r, err
	}
	r.Reasons = append(problem.Fields{}, found.Reasons...)
	v := machine.Templates
	v.Password, v.URL.Files = secret.New(""), found.FilesURL(v.URL.Files)
	if b.Client != nil {
		v.Client.Email = *b.found.ClientEmail
		if v.Client.Name, err = s.clientName(ctx, int64(*b.Client)); err != nil {
			return r, err
		}
	}
	r.RenderFiles, err = templates.Preview(ctx, s.DB, req.ID, v, b.Drafts, b.Earlier)
	return r, err
}

// clientName returns the name of a client, or "" if no item has referred to it yet.
func (s *Installs) clientName(ctx context.Context, id int64) (name string, err error) {
	err = s.DB.QueryRow(ctx, "SELECT coalesce((SELECT name FROM ref WHERE type = $1 AND id = $2), '')", s.Clients.Type, id).Scan(&name)
	if err != nil {
		return "", fmt.Errorf("read the name of client %d: %w", id, err)
	}
	return name, nil
}
