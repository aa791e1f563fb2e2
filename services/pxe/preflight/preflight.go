// Package preflight finds the reasons why an install cannot work, before it begins.
package preflight

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/rest/route"
	"github.com/ironplane/ironplane/pkg/runtime/mesh"
	"github.com/ironplane/ironplane/services/pxe/site"
	"github.com/ironplane/ironplane/services/pxe/siteagent"
	"github.com/ironplane/ironplane/services/pxe/templates"
	"github.com/ironplane/ironplane/services/pxe/templates/script"
)

// The codes of reasons why an install cannot work.
const (
	AgentFailing     = "agent_failing"
	AgentUnreachable = "agent_unreachable"
	ClientMismatch   = "client_mismatch"
	FileMissing      = "file_missing"
	NoBootloader     = "no_bootloader"
	NoDHCP           = "no_dhcp"
	NoLogin          = "no_login"
	SecureBoot       = "secure_boot"
	VariableMissing  = "variable_missing"
)

// forcible are the reasons that a caller may pass over.
var forcible = []string{AgentFailing, AgentUnreachable, FileMissing, NoBootloader, NoDHCP, NoLogin, SecureBoot, VariableMissing}

// RequiresDHCPServer is the text about an IP group without a DHCP server.
const RequiresDHCPServer = "is required because IP group %d (%s) has no DHCP server"

const (
	// silentAfter is how long after its last answer an agent counts as unreachable.
	silentAfter = 5 * time.Minute
	// askTimeout bounds the questions to the agents.
	askTimeout = 3 * time.Second
	// maxMissingFiles is how many missing files of a file server are named.
	maxMissingFiles = 10
)

// ParseForce parses the codes of reasons that a caller passes over.
func ParseForce(text string) ([]string, error) {
	codes := []string{}
	for code := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ',' || r == ' ' }) {
		if !slices.Contains(forcible, code) {
			var invalid problem.Fields
			invalid.Add("?force", "unknown", "cannot be %.50q: there is %s", code, strings.Join(forcible, ", "))
			return nil, route.InvalidQuery(invalid)
		}
		codes = append(codes, code)
	}
	return codes, nil
}

// Without returns the reasons whose codes the caller does not pass over, and the codes that were passed over.
func Without(reasons problem.Fields, forced []string) (left problem.Fields, passed []string) {
	passed = []string{}
	for _, reason := range reasons {
		if slices.Contains(forced, reason.Code) {
			passed = append(passed, reason.Code)
			continue
		}
		left = append(left, reason)
	}
	slices.Sort(passed)
	return left, slices.Compact(passed)
}

// Finder finds reasons.
type Finder struct {
	DB    *pg.DB
	Peers mesh.Peers // for deadlines
	// OpenAgent returns a client of a server's agent, which the caller must Close.
	OpenAgent func(ctx context.Context, kind site.Kind, id int64) (*site.Agent, error)
}

// Machine is a machine to install.
type Machine struct {
	Profile    int64
	Entity     int64
	Group      rest.Ref // of the IP entity; 0: unknown
	DHCPServer *int64
	Client     *int64
	Owner      *int64 // the client that the IP entity is assigned to, or 0; nil: unknown
	// HasPassword reports whether the caller chose the password.
	HasPassword bool
	// Templates are the variables of the profile's templates. The addresses of files are samples.
	Templates script.Variables
}

// Result is what a Finder found.
type Result struct {
	Reasons problem.Fields
	agents  []reportedAgent
}

// FilesURL returns the address at which machines of the site reach their files, or other if it is unknown.
func (r *Result) FilesURL(other string) string {
	for _, kind := range []site.Kind{site.FileServer, site.DHCPServer} {
		for _, a := range r.agents {
			if a.Kind == kind && a.MachinesURL != "" {
				return a.MachinesURL
			}
		}
	}
	return other
}

// search is one search for reasons.
type search struct {
	*Finder
	*Machine
	Result
}

// reportedAgent is an agent of the machine's site, as its last report has it.
type reportedAgent struct {
	Kind        site.Kind
	ID          int64
	Name        string
	IsKnown     bool // it answered at least once
	IsSilent    bool // its last answer is older than silentAfter
	MachinesURL string
	IPv6URL     string
	DHCP        *siteagent.DHCPHealth
	Problems    []string
	FreeBytes   *int64 // nil: unknown
}

// failure returns why the agent cannot work, by its last report, or an empty text.
func (a *reportedAgent) failure() string {
	if len(a.Problems) == 0 && a.FreeBytes != nil && *a.FreeBytes < siteagent.MinFreeBytes { // an agent of an earlier version
		return "its disk is full"
	}
	return strings.Join(a.Problems, "; ")
}

// String returns the server's kind, id and name, for callers.
func (a *reportedAgent) String() string {
	noun := "DHCP server"
	if a.Kind == site.FileServer {
		noun = "file server"
	}
	return fmt.Sprintf("%s %d (%s)", noun, a.ID, a.Name)
}

// Find returns all reasons, with a code for each.
func (f *Finder) Find(ctx context.Context, m *Machine) (*Result, error) {
	p := &search{Finder: f, Machine: m}
	if err := p.loadAgents(ctx); err != nil {
		return nil, err
	}
	if m.DHCPServer == nil && m.Group.ID != 0 {
		p.add("/dhcp_server", "required", RequiresDHCPServer, m.Group.ID, m.Group.Name)
	}
	p.checkOwner()
	for i := range p.agents {
		p.checkReport(&p.agents[i])
	}
	needs, err := templates.FindNeeds(ctx, p.DB, m.Profile, m.Templates)
	if err != nil {
		return nil, err
	}
	p.checkLogin(needs)
	p.checkVariables(needs)
	p.checkSecureBoot(needs)
	return &p.Result, p.checkFiles(ctx, needs.Files)
}

// add adds a reason. Several may concern one member.
func (p *search) add(pointer, code, format string, args ...any) {
	p.Reasons = append(p.Reasons, problem.Field{Pointer: pointer, Code: code, Message: fmt.Sprintf(format, args...)})
}

// loadAgents reads the last reports of the DHCP server and of the site's file servers.
func (p *search) loadAgents(ctx context.Context) error {
	rows, err := p.DB.Query(ctx, `
		SELECT s.kind, s.id, s.name, a.seen_at IS NOT NULL, coalesce(a.seen_at < now() - $3::interval, true),
			coalesce(a.machines_url, ''), coalesce(a.machines_ipv6_url, ''), a.dhcp,
			coalesce(a.problems, '{}'), a.free_bytes
		FROM (SELECT $4::text AS kind, id, name FROM dhcp_server WHERE id = $1
			UNION ALL SELECT $5, id, name FROM file_server WHERE group_id = $2) s
		LEFT JOIN site_agent a ON a.kind = s.kind AND a.id = s.id ORDER BY s.kind, s.id`,
		p.DHCPServer, p.Group.ID, silentAfter, site.DHCPServer, site.FileServer)
	if err != nil {
		return fmt.Errorf("read the reports of a site's agents: %w", err)
	}
	if p.agents, err = pgx.CollectRows(rows, pgx.RowToStructByPos[reportedAgent]); err != nil {
		return fmt.Errorf("read the reports of a site's agents: %w", err)
	}
	return nil
}

// checkOwner adds a reason if the IP entity is not assigned to the install's client.
func (p *search) checkOwner() {
	if p.Client != nil && p.Owner != nil && *p.Owner != *p.Client {
		p.Reasons = append(p.Reasons, ForeignEntity(p.Entity))
	}
}

// ForeignEntity returns the reason that the IP entity is not assigned to the client.
func ForeignEntity(entity int64) problem.Field {
	return problem.Field{
		Pointer: "/client",
		Code:    ClientMismatch,
		Message: fmt.Sprintf("does not own IP entity %d: assign the entity to the client first", entity),
	}
}

// checkReport adds the reasons in an agent's last report.
func (p *search) checkReport(a *reportedAgent) {
	pointer := map[site.Kind]string{site.DHCPServer: "/dhcp_server", site.FileServer: "/host/entity"}[a.Kind]
	switch {
	case !a.IsKnown:
		p.add(pointer, AgentUnreachable, "needs the agent of %s, which has not answered yet", a)
	case a.IsSilent:
		p.add(pointer, AgentUnreachable, "needs the agent of %s, which has not answered for 5 minutes", a)
	case a.failure() != "":
		p.add(pointer, AgentFailing, "needs the agent of %s, which cannot work: %s", a, a.failure())
	}
	host := &p.Templates.Host
	if host.SecureBoot && a.DHCP != nil && !a.DHCP.TFTP {
		p.add("/host/firmware", NoBootloader, "needs TFTP: set IRONPLANE_AGENT_TFTP_LISTEN at the agent of %s", a)
	}
	if a.Kind != site.DHCPServer || !a.IsKnown {
		return
	}
	switch {
	case a.MachinesURL == "":
		p.add(pointer, NoDHCP, "needs the agent of %s to serve machines: set IRONPLANE_AGENT_MACHINES_LISTEN there", a)
	case a.DHCP == nil: // an agent of an earlier version does not report it
	case a.DHCP.Mode == "":
		p.add(pointer, NoDHCP, "needs the agent of %s to serve DHCP: set IRONPLANE_AGENT_DHCP there", a)
	case host.IPv4.Address != "" && !a.DHCP.Serves(host.IPv4.Address):
		p.add(pointer, NoDHCP, "needs DHCP for %s, and the agent of %s serves %s", host.IPv4.Address, a, strings.Join(networks(a.DHCP), ", "))
	case host.IPv4.Address == "" && a.DHCP.Mode == siteagent.DHCPAuthoritative && a.IPv6URL == "":
		p.add(pointer, NoDHCP, "needs DHCPv6, and the agent of %s serves IPv4 only: set IRONPLANE_AGENT_DHCP_IPV6 there", a)
	case host.Firmware == "bios" && !a.DHCP.TFTP:
		p.add("/host/firmware", NoBootloader, "needs TFTP: set IRONPLANE_AGENT_TFTP_LISTEN at the agent of %s", a)
	}
}

// networks returns the networks that an agent serves as texts.
func networks(h *siteagent.DHCPHealth) (texts []string) {
	for _, network := range h.Networks {
		texts = append(texts, network.String())
	}
	return texts
}

// checkLogin adds a reason if nobody could sign in to the installed machine. Templates that set neither a password nor keys are not
// for machines to sign in to.
func (p *search) checkLogin(needs templates.Needs) {
	hasKeys := len(p.Templates.SSHKeys) > 0
	switch {
	case needs.Password && p.HasPassword, needs.SSHKeys && hasKeys:
	case needs.Password && needs.SSHKeys:
		p.add("/password", NoLogin, "is required unless there are ssh_keys: nobody could sign in to the machine")
	case needs.Password:
		p.add("/password", NoLogin, "is required: the profile sets no SSH keys, so nobody could sign in to the machine")
	case needs.SSHKeys:
		p.add("/ssh_keys", NoLogin, "is required: the profile sets no password, so nobody could sign in to the machine")
	}
}

// checkVariables adds a reason for each variable that a template uses without a default, and that the install lacks.
func (p *search) checkVariables(needs templates.Needs) {
	for _, template := range slices.Sorted(maps.Keys(needs.Variables)) {
		for _, name := range needs.Variables[template] {
			if !slices.ContainsFunc(p.Templates.Variables, func(v script.Variable) bool { return v.Name == name }) {
				p.add("/variables", VariableMissing, "must have %s, which %s uses without a default", name, template)
			}
		}
	}
}

// checkSecureBoot adds the reasons why firmware with Secure Boot cannot load what the agent and the boot script offer.
func (p *search) checkSecureBoot(needs templates.Needs) {
	if needs.SecureBoot != "" {
		p.add("/profile", SecureBoot, "does not work with Secure Boot: %s", needs.SecureBoot)
	}
	if host := &p.Templates.Host; host.SecureBoot && host.IPv4.Address == "" {
		p.add("/host/firmware", SecureBoot, "cannot be uefi-secure without an IPv4 address: the signed GRUB boots over IPv4 only")
	}
}

// bootloaders returns the files that the machine's firmware loads from the agent.
func (p *search) bootloaders() []string {
	switch host := &p.Templates.Host; {
	case host.SecureBoot:
		return []string{siteagent.BootloaderShim, siteagent.BootloaderGRUB}
	case host.Firmware == "uefi":
		return []string{siteagent.BootloaderUEFI, siteagent.LocalBootUEFI}
	default:
		return []string{siteagent.BootloaderBIOS}
	}
}

// checkFiles asks the site's agents for the bootloaders and for the files of the boot script. It skips an agent that does not
// answer, because the last report already says so. No agent can have a file whose path is invalid.
func (p *search) checkFiles(ctx context.Context, files []string) error {
	valid := make([]string, 0, len(files))
	for _, path := range files[:min(len(files), siteagent.MaxMissingPaths)] {
		if err := siteagent.CheckPath(path); err != nil {
			p.add("/profile", FileMissing, "needs %.100q, which no file server can have: %s", path, err)
			continue
		}
		valid = append(valid, path)
	}
	asking, cancel := p.Peers.Limit(ctx, askTimeout)
	defer cancel()
	hasFileServer := slices.ContainsFunc(p.agents, func(a reportedAgent) bool { return a.Kind == site.FileServer })
	for i := range p.agents {
		a := &p.agents[i]
		if a.Kind == site.DHCPServer && a.IsKnown && a.DHCP != nil && a.DHCP.Mode != "" {
			for _, path := range p.findMissing(asking, a, p.bootloaders()) {
				p.add("/host/firmware", NoBootloader, "needs %s at the agent of %s: see docs/do/netboot.md", path, a)
			}
		}
		if a.Kind == site.DHCPServer && hasFileServer {
			continue
		}
		missing := p.findMissing(asking, a, valid)
		for _, path := range missing[:min(len(missing), maxMissingFiles)] {
			if err := p.addMissingFile(ctx, a, path); err != nil {
				return err
			}
		}
	}
	return nil
}

// findMissing returns the files that an agent lacks, or none if it does not answer. What it says about other files does not count.
func (p *search) findMissing(ctx context.Context, a *reportedAgent, paths []string) []string {
	if len(paths) == 0 || a.IsSilent {
		return nil
	}
	agent, err := p.OpenAgent(ctx, a.Kind, a.ID)
	if err != nil {
		return nil
	}
	defer agent.Close()
	missing, err := agent.FindMissing(ctx, paths)
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(paths), func(path string) bool { return !slices.Contains(missing, path) })
}

// addMissingFile adds the reason that a file server lacks a file, and says how it gets there.
func (p *search) addMissingFile(ctx context.Context, a *reportedAgent, path string) error {
	var root *int64
	err := p.DB.QueryRow(ctx, `
		WITH RECURSIVE above AS (
			SELECT id, parent_id FROM file_server WHERE id = $1 AND $2
			UNION SELECT f.id, f.parent_id FROM file_server f JOIN above a ON f.id = a.parent_id)
		SELECT id FROM above WHERE parent_id IS NULL AND EXISTS (SELECT FROM stored_file WHERE path = $3 OR starts_with(path, $3 || '/'))`,
		a.ID, a.Kind == site.FileServer, path).Scan(&root)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("find a missing file in the store: %w", err)
	}
	if root != nil {
		p.add("/profile", FileMissing, "needs %s, which %s lacks: sync it with POST /pxe/file/%d/child/sync", path, a, *root)
		return nil
	}
	folder, _, isNested := strings.Cut(path, "/")
	folder, isISO := strings.CutSuffix(folder, ".iso")
	if folder == "local" || !isNested && !isISO { // a sync leaves local alone
		p.add("/profile", FileMissing, "needs %s, which %s lacks: put the file there", path, a)
		return nil
	}
	p.add("/profile", FileMissing, "needs %s, which %s lacks: import an ISO into the folder %s, and sync it", path, a, folder)
	return nil
}
