package neighbours

import (
	"testing"

	"github.com/ironplane/ironplane/pkg/auth/credentials"
	"github.com/ironplane/ironplane/pkg/mail"
	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// Each double satisfies the contract of its service.
func TestContracts(t *testing.T) {
	t.Parallel()
	all := newAll(t, options{redis: testkit.Redis(t), masterKey: seal.NewMasterKey()})
	t.Run("clients", func(t *testing.T) {
		ben := credentials.Account{
			ID: 5, Name: "Ben Miller", First: "Ben", Last: "Miller", Email: "ben@example.com", Hash: "hash 0", Version: 1, Require: true,
		}
		all.Clients.Set(ben)
		all.Clients.tested = all.Identity
		ClientsContract(t, all.Clients, all.Identity.Double, ben, 4, all.Clients.SetSub(4, 5))
		all.Clients.Set(credentials.Account{ID: 6, Name: "Ann Miller", Email: "ann@example.com"})
		all.Clients.Delete(6)
		a := asker{t, "clients", all.Clients}
		a.wantNoRef("network", "client", 6)
		a.wantChange("network", "client", "deleted", "client", 6)
	})
	t.Run("identity", func(t *testing.T) {
		all.Identity.SetCopies("anna@example.com")
		writer := mail.AdminWriter{ID: 1, Name: "admin", Email: "admin@example.com"}
		all.Identity.SetAdminWriters(writer)
		IdentityContract(t, all.Identity, 7, writer, "anna@example.com")
		all.Identity.Confirm(7)
		wantAnswer(asker{t, "identity", all.Identity}, "clients", credentials.ConfirmedPath+"/7", credentials.Confirmed{Confirmed: true})
	})
	t.Run("network", func(t *testing.T) {
		all.Network.SetServers(5, 2)
		all.Network.Use("client", 5, "has 2 IP entities")
		NetworkContract(t, all.Network, 5, 2, "has 2 IP entities")
		m := Machine{Entity: 2, Address: "10.1.0.2", Gateway: "10.1.0.254", Group: 1, GroupName: "Berlin", DHCPServer: 3}
		all.Network.SetGroup(m.Group, m.GroupName)
		all.Network.SetMachine(m)
		m.Owner = 5
		all.Network.AllocateMachine(m)
		MachineContract(t, all.Network, m)
	})
	t.Run("pxe", func(t *testing.T) {
		all.PXE.SetDHCPServer(3, "fra1")
		PXEContract(t, all.PXE, 3, "fra1")
	})
	t.Run("system", func(t *testing.T) {
		all.System.SetIntegration(4, "Shop")
		all.System.SetTemplates("welcome", "goodbye")
		SystemContract(t, all.System, 4, "Shop", "welcome", "goodbye")
	})
	all.System.SetAway(true)
	var none any
	if err := (asker{t, "system", all.System}).try("clients", "/internal/email/templates", &none); err == nil {
		t.Error("asking a double that is away: got an answer, want an error")
	}
}
