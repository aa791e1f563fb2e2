package templates

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"

	"github.com/aymanbagabas/go-udiff"
	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/services/pxe/siteagent"
	"github.com/ironplane/ironplane/services/pxe/templates/script"
)

// renderRequest is a request to preview a profile.
type renderRequest struct {
	ID   int64 `path:"*"`
	Body rest.Body[renderBody]
}

// renderBody holds the machine to render a profile for, and the other values of its templates.
type renderBody struct {
	Host struct {
		Hostname string     `json:"hostname" required:"create" max:"253" example:"web1.example.com"`
		MAC      string     `json:"mac" required:"create" example:"52:54:00:12:34:56" doc:"The MAC address of the interface that the machine boots from."`
		Firmware string     `json:"firmware" enum:"bios,uefi" example:"uefi" doc:"The firmware of the machine. The default is bios."`
		Disk     string     `json:"disk" pattern:"^/dev/[A-Za-z0-9/_.:+-]+$" example:"/dev/sda" doc:"The disk to install on."`
		IPv4     familyBody `json:"ipv4" doc:"The IPv4 address."`
		IPv6     familyBody `json:"ipv6" doc:"The IPv6 address."`
		DNS      string     `json:"nameservers" example:"192.0.2.53 2001:db8::53" doc:"The addresses of the name servers, separated by spaces."`
	} `json:"host" doc:"The machine."`
	SSHKeys string `json:"ssh_keys" max:"65536" doc:"The public SSH keys that may sign in as root, one per line."`
	Client  struct {
		Name  string `json:"name"`
		Email string `json:"email"`
	} `json:"client" doc:"The client that the machine belongs to."`
	RenderFiles string            `json:"files" example:"http://files.fra1.example.net" doc:"The URL of the site's file server."`
	Variables   map[string]string `json:"variables" max:"65536" example:"{\"timezone\": \"Europe/Berlin\"}" doc:"The values for the profile's templates, by name."`
	Earlier     []renderedBefore  `json:"earlier" open:"true" doc:"The files of an earlier response, to compare with."`

	machine script.Host
}

// familyBody is an address and its gateway.
type familyBody struct {
	Address string `json:"address" doc:"The address with its prefix length: 192.0.2.10/24."`
	Gateway string `json:"gateway"`
}

// renderedBefore is a file of an earlier response. The API document names a component for this type.
type renderedBefore struct {
	Kind string `json:"kind" doc:"The use of the template."`
	ID   int64  `json:"id" doc:"The id of the template."`
	Text string `json:"text" max:"1048576" trim:"false" doc:"The rendered text."`
}

// Resolve parses the machine.
func (b *renderBody) Resolve(invalid *problem.Fields) {
	macs := script.ParseMACs(invalid, "/host/mac", b.Host.MAC)
	script.CheckHostname(invalid, b.Host.Hostname)
	b.machine = script.NewHost(b.Host.Hostname, b.Host.Firmware, macs)
	h := &b.machine
	h.Disk = b.Host.Disk
	h.IPv4 = b.Host.IPv4.read(invalid, "/host/ipv4", netip.Addr.Is4)
	h.IPv6 = b.Host.IPv6.read(invalid, "/host/ipv6", netip.Addr.Is6)
	if h.IP = h.IPv4.Address; h.IP == "" {
		h.IP = h.IPv6.Address
	}
	h.Nameservers = script.ParseNameservers(invalid, b.Host.DNS)
}

// read parses an address and its gateway. isFamily reports whether an address has the right IP version.
func (b familyBody) read(invalid *problem.Fields, pointer string, isFamily func(netip.Addr) bool) (f script.Family) {
	if b.Address != "" {
		p, err := netip.ParsePrefix(b.Address)
		if err != nil || !isFamily(p.Addr()) {
			invalid.Add(pointer+"/address", "invalid", "must be an address of this IP version with a prefix length, such as /24")
			return f
		}
		f = script.NewFamily(p)
	}
	if b.Gateway != "" {
		gateway, err := netip.ParseAddr(b.Gateway)
		if err != nil || !isFamily(gateway) || f.Address == "" {
			invalid.Add(pointer+"/gateway", "invalid", "must be an address of this IP version, and requires address")
			return f
		}
		f.Gateway = gateway.String()
	}
	return f
}

// Rendering is a profile rendered for a machine.
type Rendering struct {
	RenderFiles []RenderedFile `json:"files" doc:"The rendered files."`
}

// RenderedFile is one rendered template.
type RenderedFile struct {
	Kind       string `json:"kind" enum:"boot_script,preseed,shell_during,shell_after" doc:"The use of the template."`
	ID         int64  `json:"id" doc:"The id of the template."`
	Name       string `json:"name"`
	Text       string `json:"text,omitempty" doc:"The rendered text, with [secret] in place of secrets."`
	Error      string `json:"error,omitempty" doc:"Why the template cannot be rendered for this machine, with line and column."`
	Difference string `json:"difference,omitempty" doc:"The difference to the file of this kind and id in earlier, in the format of diff -u."`
}

// render returns the route of previews.
func (s *Profiles) render() rest.Route {
	return rest.Read[renderRequest, Rendering]{
		Method:    http.MethodPost,
		Path:      "/pxe/profile/{profile_id}/render",
		Guard:     guard.Has(permission.PXEInstalls),
		Extension: true,
		Name:      "renderProfile",
		Summary:   "Preview a profile for a machine",
		Doc:       "Renders all templates of the profile. Nothing is installed. Members that are not sent are empty.",
		Do:        s.renderProfile,
	}
}

// renderProfile renders a profile for a machine that need not exist.
func (s *Profiles) renderProfile(ctx context.Context, req renderRequest) (r Rendering, err error) {
	profile, err := profiles.Get(ctx, s.DB, req.ID)
	if err != nil {
		return r, err
	}
	body, err := req.Body.New()
	if err != nil {
		return r, err
	}
	v := script.NewSample()
	v.Host, v.Profile = body.machine, script.Profile{ID: profile.ID, Name: profile.Name}
	v.Password, v.SSHKeys, v.Variables = secret.New(""), script.SplitLines(body.SSHKeys), script.NewVariables(body.Variables)
	v.Client = script.Client{Name: body.Client.Name, Email: body.Client.Email}
	v.URL.Files = strings.TrimSuffix(body.RenderFiles, "/")
	r.RenderFiles, err = loadTemplates(ctx, s.DB, &profile)
	if err != nil {
		return r, err
	}
	for i := range r.RenderFiles {
		r.RenderFiles[i].render(false, v)
		for _, earlier := range body.Earlier {
			if f := &r.RenderFiles[i]; earlier.Kind == f.Kind && earlier.ID == f.ID {
				f.Difference = udiff.Unified("earlier", "now", earlier.Text, f.Text)
			}
		}
	}
	return r, nil
}

// templateKind returns the kind of the file's template.
func (f *RenderedFile) templateKind() script.Kind {
	switch f.Kind {
	case "boot_script":
		return script.Boot
	case "preseed":
		return script.Preseed
	default:
		return script.Shell
	}
}

// render replaces the text, which is the template, by the rendered text, or sets the error.
func (f *RenderedFile) render(reveal bool, v script.Variables) {
	source := f.Text
	f.Text = ""
	parsed, reason := f.templateKind().Parse(source)
	if f.Error = reason; reason != "" {
		return
	}
	text, err := parsed.Render(reveal, v)
	if f.Text = text; err != nil {
		f.Error = err.Error()
	}
}

// loadTemplates returns a profile's templates. The text of each is the template itself.
func loadTemplates(ctx context.Context, q pg.Querier, p *OSReloadProfile) ([]RenderedFile, error) {
	rows, err := q.Query(ctx, `
		SELECT 'boot_script', b.id, b.name, b.body FROM boot_script b WHERE b.id = $1
		UNION ALL SELECT 'preseed', s.id, s.name, s.body FROM preseed s WHERE s.id = $2
		UNION ALL (SELECT 'shell_during', s.id, s.name, s.body FROM unnest($3::bigint[]) WITH ORDINALITY AS wanted (id, n) JOIN shell_script s USING (id) ORDER BY n)
		UNION ALL (SELECT 'shell_after', s.id, s.name, s.body FROM unnest($4::bigint[]) WITH ORDINALITY AS wanted (id, n) JOIN shell_script s USING (id) ORDER BY n)`,
		refID(p.BootScript), refID(p.Preseed), p.Shell.During, p.Shell.After)
	if err != nil {
		return nil, fmt.Errorf("read the templates of profile %d: %w", p.ID, err)
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (f RenderedFile, err error) {
		err = row.Scan(&f.Kind, &f.ID, &f.Name, &f.Text)
		return f, err
	})
}

// refID returns the id of a reference, or nil.
func refID(r *rest.Ref) *int64 {
	if r == nil {
		return nil
	}
	return &r.ID
}

// Failure describes to operators why a machine's files cannot be rendered, such as an error of a template with line and
// column.
type Failure string

func (f Failure) Error() string { return string(f) }

// RenderFiles renders all templates of a profile. It fails with a Failure if the profile was deleted, or if a template
// cannot be rendered.
func RenderFiles(ctx context.Context, q pg.Querier, profile int64, v script.Variables) (all siteagent.Files, err error) {
	p, err := profiles.Get(ctx, q, profile)
	if errors.Is(err, pgx.ErrNoRows) {
		return all, Failure("The profile was deleted.")
	}
	if err != nil {
		return all, fmt.Errorf("read profile %d: %w", profile, err)
	}
	templates, err := loadTemplates(ctx, q, &p)
	if err != nil {
		return all, err
	}
	var during, after []string
	for i := range templates {
		f := &templates[i]
		if f.render(true, v); f.Error != "" {
			return all, Failure(fmt.Sprintf("%s %d (%s): %s", kindNames[f.Kind], f.ID, f.Name, f.Error))
		}
		switch f.Kind {
		case "boot_script":
			all.Boot = f.Text
		case "preseed":
			all.Preseed = f.Text
		case "shell_during":
			during = append(during, f.Text)
		default:
			after = append(after, f.Text)
		}
	}
	all.During, all.After = script.Combine(during), script.Combine(after)
	return all, nil
}

var kindNames = map[string]string{
	"boot_script":  "boot script",
	"preseed":      "preseed",
	"shell_during": "shell script",
	"shell_after":  "shell script",
}
