package principal

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Permission is one entry of a PermissionSet, such as network.entities. A route whose guard is a permission may be read by who
// holds read on it and changed by who holds write.
type Permission uint8

// The permissions. Their numbers are what processes of different versions tell each other: new ones go at the end.
const (
	NetworkEntities Permission = iota
	NetworkForward
	NetworkGroups
	NetworkSwitches
	PXEInstalls
	PXESettings
	ServerInInventory
	ServerInUse
	ServerSettings
	SystemEmails
	SystemIntegrations
	SystemLogs
	SystemSettings
	SystemTheme
	UsersAdmins
	UsersClients
	permissionCount
)

var permissionNames = [permissionCount]string{
	"network.entities", "network.forward", "network.groups", "network.switches",
	"pxe.installs", "pxe.settings",
	"server.in_inventory", "server.in_use", "server.settings",
	"system.emails", "system.integrations", "system.logs", "system.settings", "system.theme",
	"users.admins", "users.clients",
}

func (l Permission) String() string { return permissionNames[l] }

// Access is what is done to what a permission guards.
type Access uint8

// Write does not include read: the documented set has them as two booleans.
const (
	Read Access = iota
	Write
)

func (a Access) String() string { return [...]string{"read", "write"}[a] }

// Grants is a set of permissions and accesses: what somebody may do.
type Grants uint64

// All is everything that there is to hold.
const All Grants = 1<<(2*permissionCount) - 1

// Grant is the set of this one.
func (l Permission) Grant(a Access) Grants { return 1 << (2*Grants(l) + Grants(a)) }

// Holds tells whether all of others is in g.
func (g Grants) Holds(others Grants) bool { return g&others == others }

// Names lists what is in the set, as "network.entities write".
func (g Grants) Names() []string {
	names := []string{}
	for l := range permissionCount {
		for _, a := range []Access{Read, Write} {
			if g.Holds(l.Grant(a)) {
				names = append(names, l.String()+" "+a.String())
			}
		}
	}
	return names
}

// ParseGrants reads what Names wrote. A name that this version does not know grants nothing.
func ParseGrants(names []string) Grants {
	var g Grants
	for _, name := range names {
		permission, access, _ := strings.Cut(name, " ")
		l := slices.Index(permissionNames[:], permission)
		if l < 0 {
			continue
		}
		switch access {
		case "read":
			g |= Permission(l).Grant(Read)
		case "write":
			g |= Permission(l).Grant(Write)
		}
	}
	return g
}

// MarshalJSON writes the names, so that what is stored or sent does not depend on the order of the permissions.
func (g Grants) MarshalJSON() ([]byte, error) { return json.Marshal(g.Names()) }

// UnmarshalJSON reads what MarshalJSON wrote.
func (g *Grants) UnmarshalJSON(text []byte) error {
	var names []string
	if err := json.Unmarshal(text, &names); err != nil {
		return fmt.Errorf("read grants: %w", err)
	}
	*g = ParseGrants(names)
	return nil
}
