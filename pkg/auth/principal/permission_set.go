package principal

import (
	"github.com/ironplane/ironplane/pkg/auth/permission"
)

// PermissionSet is a set of grants as the API shows it.
type PermissionSet struct {
	Network struct {
		Entities ReadWrite `json:"entities" doc:"IP entities, and their custom fields."`
		Forward  ReadWrite `json:"forward" doc:"Forwarding gateways and types."`
		Groups   ReadWrite `json:"groups" doc:"IP groups."`
		Switches ReadWrite `json:"switches" doc:"Port speeds."`
	} `json:"network" doc:"Permissions for IP space."`
	PXE struct {
		Installs ReadWrite `json:"installs" doc:"Installs of machines."`
		Settings ReadWrite `json:"settings" doc:"DHCP and file servers, ISOs, drivers, preseeds and profiles."`
	} `json:"pxe" doc:"Permissions for network boot."`
	Server struct {
		InInventory ReadWrite `json:"in_inventory" doc:"Servers in the inventory. It guards no operation yet."`
		InUse       ReadWrite `json:"in_use" doc:"Servers in use. It guards no operation yet."`
		Settings    ReadWrite `json:"settings" doc:"Computer parts, and custom fields of servers."`
	} `json:"server" doc:"Permissions for servers."`
	System struct {
		Emails       ReadWrite `json:"emails" doc:"Email templates and mails."`
		Integrations ReadWrite `json:"integrations" doc:"Integrations, their permissions, and webhooks."`
		Logs         ReadWrite `json:"logs" doc:"The audit log. Write access guards nothing."`
		Settings     ReadWrite `json:"settings" doc:"Settings, custom fields, jobs, certificates and packages of panels."`
		Theme        ReadWrite `json:"theme" doc:"The theme of panels. Read access guards nothing: every key may view it."`
	} `json:"system" doc:"Permissions for the installation."`
	Users struct {
		Admins  ReadWrite `json:"admins" doc:"Admins and their permissions."`
		Clients ReadWrite `json:"clients" doc:"Clients and their links."`
	} `json:"users" doc:"Permissions for accounts."`
}

// ReadWrite tells whether one permission is granted, for reading and for writing.
type ReadWrite struct {
	Read  bool `json:"read" example:"true" doc:"Whether the holder may view the items."`
	Write bool `json:"write" example:"false" doc:"Whether the holder may create, edit and delete the items."`
}

// permissions returns the set's members by their permission.
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

// Grants returns the set as grants.
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

// SetOf returns the grants as a PermissionSet with every permission.
func SetOf(g Grants) PermissionSet {
	var s PermissionSet
	for p, member := range s.permissions() {
		member.Read = g.Holds(Grant(permission.Permission(p), permission.Read))
		member.Write = g.Holds(Grant(permission.Permission(p), permission.Write))
	}
	return s
}
