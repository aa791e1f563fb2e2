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

type renderRequest struct {
	ID   int64 `path:"*"`
	Body rest.Body[renderBody]
}

// renderBody is the machine that a profile is rendered for, and what else its templates show.
type renderBody struct {
	Host struct {
		Hostname string     `json:"hostname" required:"create" max:"253" example:"web1.example.com"`
		MAC      string     `json:"mac" required:"create" example:"52:54:00:12:34:56" doc:"of the interface that it boots from"`
		Firmware string     `json:"firmware" enum:"bios,uefi" example:"uefi" doc:"bios where it is not sent"`
		Disk     string     `json:"disk" pattern:"^/dev/[A-Za-z0-9/_.:+-]+$" example:"/dev/sda"`
		IPv4     familyBody `json:"ipv4"`
		IPv6     familyBody `json:"ipv6"`
		DNS      string     `json:"nameservers" example:"192.0.2.53 2001:db8::53" doc:"addresses with blanks between"`
	} `json:"host"`
	SSHKeys string `json:"ssh_keys" max:"65536" doc:"a line each"`
	Client  struct {
		Name  string `json:"name"`
		Email string `json:"email"`
	} `json:"client"`
	Files     string            `json:"files" example:"http://files.fra1.example.net" doc:"where the site's file server is"`
	Variables map[string]string `json:"variables" max:"65536" example:"{\"timezone\": \"Europe/Berlin\"}" doc:"those that who asks for an installation chooses, by their names"`
	Earlier   []renderedBefore  `json:"earlier" doc:"the files of an earlier answer, to be compared with"`

	machine script.Host
}

// familyBody is an address and its subnet.
type familyBody struct {
	Address string `json:"address" doc:"with the length of its prefix: 192.0.2.10/24"`
	Gateway string `json:"gateway"`
}

type renderedBefore struct {
	Kind string `json:"kind"`
	ID   int64  `json:"id"`
	Text string `json:"text" max:"1048576" trim:"false"`
}

// Resolve reads the machine.
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

// read reads an address and its subnet, where there is one.
func (b familyBody) read(invalid *problem.Fields, pointer string, is func(netip.Addr) bool) (f script.Family) {
	if b.Address != "" {
		p, err := netip.ParsePrefix(b.Address)
		if err != nil || !is(p.Addr()) {
			invalid.Add(pointer+"/address", "invalid", "must be an address of the family with the length of its prefix")
			return f
		}
		f = script.NewFamily(p)
	}
	if b.Gateway != "" {
		gateway, err := netip.ParseAddr(b.Gateway)
		if err != nil || !is(gateway) || f.Address == "" {
			invalid.Add(pointer+"/gateway", "invalid", "must be an address of the family, beside one of the machine")
			return f
		}
		f.Gateway = gateway.String()
	}
	return f
}

// Rendering is what a profile's templates make for a machine.
type Rendering struct {
	Files []RenderedFile `json:"files"`
}

// RenderedFile is what one template makes.
type RenderedFile struct {
	Kind       string `json:"kind" enum:"boot_script,preseed,shell_during,shell_after"`
	ID         int64  `json:"id" doc:"the template's"`
	Name       string `json:"name"`
	Text       string `json:"text,omitempty" doc:"with [secret] in the place of secrets"`
	Error      string `json:"error,omitempty" doc:"what is wrong with the template, or with what it makes of this machine, with line and column"`
	Difference string `json:"difference,omitempty" doc:"to the file of this kind and id in earlier, as diff -u says it; empty: there is none"`
}

func (s *Profiles) render() rest.Route {
	return rest.Read[renderRequest, Rendering]{
		Method:    http.MethodPost,
		Path:      "/pxe/profile/{profile_id}/render",
		Guard:     guard.Has(permission.PXEInstalls),
		Extension: true,
		Name:      "renderProfile",
		Summary:   "Render all templates of a profile for a machine",
		Doc:       "Nothing is installed. What is not sent is empty.",
		Do:        s.renderProfile,
	}
}

func (s *Profiles) renderProfile(ctx context.Context, req renderRequest) (r Rendering, err error) {
	profile, err := profiles.Get(ctx, s.DB, req.ID)
	if err != nil {
		return r, err
	}
	body, err := req.Body.New()
	if err != nil {
		return r, err
	}
	v := script.Sample()
	v.Host, v.Profile = body.machine, script.Profile{ID: profile.ID, Name: profile.Name}
	v.Password, v.SSHKeys, v.Variables = secret.New(""), script.Lines(body.SSHKeys), script.NewVariables(body.Variables)
	v.Client = script.Client{Name: body.Client.Name, Email: body.Client.Email}
	v.URL.Files = strings.TrimSuffix(body.Files, "/")
	r.Files, err = templatesOf(ctx, s.DB, &profile)
	if err != nil {
		return r, err
	}
	for i := range r.Files {
		r.Files[i].render(false, v)
		for _, earlier := range body.Earlier {
			if f := &r.Files[i]; earlier.Kind == f.Kind && earlier.ID == f.ID {
				f.Difference = udiff.Unified("earlier", "now", earlier.Text, f.Text)
			}
		}
	}
	return r, nil
}

// kindOf is the kind of the templates that make a file.
func (f *RenderedFile) kindOf() script.Kind {
	switch f.Kind {
	case "boot_script":
		return script.Boot
	case "preseed":
		return script.Preseed
	default:
		return script.Shell
	}
}

// render puts what the template makes in the template's place.
func (f *RenderedFile) render(reveal bool, v script.Variables) {
	source := f.Text
	f.Text = ""
	made, wrong := f.kindOf().Check(source)
	if f.Error = wrong; wrong != "" {
		return
	}
	text, err := made.Render(reveal, v)
	if f.Text = text; err != nil {
		f.Error = err.Error()
	}
}

// templatesOf are a profile's templates, with the template as the text of each.
func templatesOf(ctx context.Context, q pg.Querier, p *OSReloadProfile) ([]RenderedFile, error) {
	rows, err := q.Query(ctx, `
		SELECT 'boot_script', b.id, b.name, b.body FROM boot_script b WHERE b.id = $1
		UNION ALL SELECT 'preseed', s.id, s.name, s.body FROM preseed s WHERE s.id = $2
		UNION ALL (SELECT 'shell_during', s.id, s.name, s.body FROM unnest($3::bigint[]) WITH ORDINALITY AS wanted (id, n) JOIN shell_script s USING (id) ORDER BY n)
		UNION ALL (SELECT 'shell_after', s.id, s.name, s.body FROM unnest($4::bigint[]) WITH ORDINALITY AS wanted (id, n) JOIN shell_script s USING (id) ORDER BY n)`,
		idOf(p.BootScript), idOf(p.Preseed), p.Shell.During, p.Shell.After)
	if err != nil {
		return nil, fmt.Errorf("read the templates of profile %d: %w", p.ID, err)
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (f RenderedFile, err error) {
		err = row.Scan(&f.Kind, &f.ID, &f.Name, &f.Text)
		return f, err
	})
}

func idOf(r *rest.Ref) *int64 {
	if r == nil {
		return nil
	}
	return &r.ID
}

// Failure says to operators why a machine cannot be given its files, such as what is wrong with a template, with line and column.
type Failure string

func (f Failure) Error() string { return string(f) }

// Files renders all templates of a profile. It returns a Failure where the profile is gone, or a template cannot be rendered for
// this machine.
func Files(ctx context.Context, q pg.Querier, profile int64, v script.Variables) (all siteagent.Files, err error) {
	p, err := profiles.Get(ctx, q, profile)
	if errors.Is(err, pgx.ErrNoRows) {
		return all, Failure("Its profile is gone.")
	}
	if err != nil {
		return all, fmt.Errorf("read profile %d: %w", profile, err)
	}
	templates, err := templatesOf(ctx, q, &p)
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
	all.During, all.After = script.InTurn(during), script.InTurn(after)
	return all, nil
}

var kindNames = map[string]string{
	"boot_script":  "boot script",
	"preseed":      "preseed",
	"shell_during": "shell script",
	"shell_after":  "shell script",
}
