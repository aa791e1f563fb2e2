package neighbours

import (
	"net/http"
	"testing"

	"github.com/ironplane/ironplane/pkg/mail"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/secret"
)

// PXE is a double of the pxe service.
type PXE struct {
	*Double

	dhcp      *items
	installed []user
}

const installedPath = "/internal/installed-entities"

func newPXE(t testing.TB, o options) *PXE {
	p := &PXE{Double: newDouble(t, "pxe", o), installed: []user{}}
	p.dhcp = p.handleRefs("pxe/dhcp", "DHCP server", "network")
	p.handleClose("client", "clients")
	p.handleClose("entity", "network")
	p.handleClose("email/template", "system")
	p.handle(installedPath, []string{"network"}, func(*http.Request) any { return p.installed })
	return p
}

// SetDHCPServer creates or renames a DHCP server. Readers of its changes are notified.
func (p *PXE) SetDHCPServer(id int64, name string) {
	p.t.Helper()
	p.dhcp.set(id, name, nil, nil, map[string]any{"id": id, "name": name})
}

// DeleteDHCPServer deletes a DHCP server. Readers of its changes are notified.
func (p *PXE) DeleteDHCPServer(id int64) {
	p.t.Helper()
	p.dhcp.remove(id, map[string]any{"id": id})
}

// Install starts an install with an IP entity. Until it ends, the entity cannot be deleted, for the reason in usage.
func (p *PXE) Install(entity int64, usage string) {
	p.Use("entity", entity, usage)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.installed = append(p.installed, user{ID: entity, Usage: usage})
}

// SendInstalled asks the clients service to mail a client about the end of an install.
func (p *PXE) SendInstalled(of mail.ClientInstalled) {
	p.t.Helper()
	p.Send("clients", mail.InstalledKind, of, secret.String{})
}

// PXEContract tests the internal routes of a pxe service with this DHCP server and without installs.
func PXEContract(t *testing.T, handler http.Handler, dhcpServer int64, name string) {
	t.Helper()
	a := asker{t, "pxe", handler}
	wantAnswer(a, "network", installedPath, []user{})
	a.wantRefused("clients", installedPath)
	a.wantUnused("clients", "client", none)
	a.wantUnused("network", "entity", none)
	a.wantUnused("system", "email/template", none)
	a.wantRefused("network", closePath("client", none))
	a.wantRefused("clients", closePath("entity", none))
	a.wantRef("network", "pxe/dhcp", dhcpServer, name)
	a.wantNoRef("network", "pxe/dhcp", none)
	a.wantRefused("clients", refPath("pxe/dhcp", dhcpServer))
	a.wantChange("network", "pxe.dhcp", pg.Created, "pxe/dhcp", dhcpServer)
}
