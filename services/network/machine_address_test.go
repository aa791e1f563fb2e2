package network_test

import (
	"fmt"
	"testing"

	"github.com/ironplane/ironplane/pkg/auth/credentials"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/pkg/testkit/neighbours"
	"github.com/ironplane/ironplane/services/network"
)

// The double of this service in pxe's tests answers as this service does.
func TestMachineContract(t *testing.T) {
	t.Parallel()
	s, others := neighbours.Run(t, network.Definition, testkit.ServiceOptions{})
	others.PXE.SetDHCPServer(3, "Berlin")
	others.Clients.Set(credentials.Account{ID: 5, Name: "Ben Miller", Email: "ben@example.com"})
	m := neighbours.Machine{Address: "10.1.0.2", Gateway: "10.1.0.254", GroupName: "Berlin", DHCPServer: 3, Owner: 5}
	m.Group = s.Do("POST", "/group", map[string]any{"name": m.GroupName, "pxe_dhcp_server": m.DHCPServer}).Want(200).ID()
	m.Entity = s.Do("POST", "/entity", map[string]any{
		"group": m.Group, "address": m.Address, "subnet_mask": "255.255.255.0", "gateway": m.Gateway,
	}).Want(200).ID()
	allocated := s.Do("POST", fmt.Sprintf("/group/%d/allocate", m.Group), map[string]any{"count": 1, "owner": map[string]any{"id": m.Owner}}).
		Want(200)
	if got := testkit.Decode[[]struct{ ID int64 }](allocated); len(got) != 1 || got[0].ID != m.Entity {
		t.Fatalf("got the IP entities %+v, want entity %d", got, m.Entity)
	}
	neighbours.MachineContract(t, s.Handler(), m)
}
