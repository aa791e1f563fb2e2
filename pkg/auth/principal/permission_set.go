package principal

import (
	"github.com/ironplane/ironplane/pkg/auth/permission"
)

// PermissionSet is the documented form of grants.
type PermissionSet struct {
	Network struct {
		Entities ReadWrite `json:"entities"`
		Forward  ReadWrite `json:"forward"`
		Groups   ReadWrite `json:"groups"`
		Switches ReadWrite `json:"switches"`
	} `json:"network"`
	PXE struct {
		Installs ReadWrite `json:"installs"`
		Settings ReadWrite `json:"settings"`
	} `json:"pxe"`
	Server struct {
		InInventory ReadWrite `json:"in_inventory"`
		InUse       ReadWrite `json:"in_use"`
		Settings    ReadWrite `json:"settings"`
	} `json:"server"`
	System struct {
		Emails       ReadWrite `json:"emails"`
		Integrations ReadWrite `json:"integrations"`
		Logs         ReadWrite `json:"logs"`
		Settings     ReadWrite `json:"settings"`
		Theme        ReadWrite `json:"theme"`
	} `json:"system"`
	Users struct {
		Admins  ReadWrite `json:"admins"`
		Clients ReadWrite `json:"clients"`
	} `json:"users"`
}

// ReadWrite is one permission of a PermissionSet.
type ReadWrite struct {
	Read  bool `json:"read" example:"true"`
	Write bool `json:"write" example:"false"`
}

// permissions are the set's members by their permission.
func (s *PermissionSet) permissions() [permission.Count]*ReadWrite {
	return [...]*ReadWrite{
		permission.NetworkEntities:    &s.Network.Entities,
		permission.NetworkForward:     &s.Network.Forward,
		permission.NetworkGroups:      &s.Network.Groups,
		permission.NetworkSwitches:    &s.Network.Switches,
		permission.PXEInstalls:        &s.PXE.Installs,
		permission.PXESettings:        &s.PXE.Settings,
		permission.ServerInInventory:  &s.Server.InInventory,
		permission.ServerInUse:        &s.Server.InUse,
		permission.ServerSettings:     &s.Server.Settings,
		permission.SystemEmails:       &s.System.Emails,
		permission.SystemIntegrations: &s.System.Integrations,
		permission.SystemLogs:         &s.System.Logs,
		permission.SystemSettings:     &s.System.Settings,
		permission.SystemTheme:        &s.System.Theme,
		permission.UsersAdmins:        &s.Users.Admins,
		permission.UsersClients:       &s.Users.Clients,
	}
}

// Grants is what the set grants.
func (s *PermissionSet) Grants() Grants {
	var g Grants
	for p, member := range s.permissions() {
		if member.Read {
			g |= Grant(permission.Permission(p), permission.Read)
		}
		if member.Write {
			g |= Grant(permission.Permission(p), permission.Write)
		}
	}
	return g
}

// SetOf is the documented form of grants, with every permission in it.
func SetOf(g Grants) PermissionSet {
	var s PermissionSet
	for p, member := range s.permissions() {
		member.Read = g.Holds(Grant(permission.Permission(p), permission.Read))
		member.Write = g.Holds(Grant(permission.Permission(p), permission.Write))
	}
	return s
}
