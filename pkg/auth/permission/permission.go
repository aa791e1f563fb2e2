// Package permission lists the permissions of the API.
package permission

// Permission is one entry of the documented set, such as network.entities. Reading what it guards needs read access to
// it, changing needs write access.
type Permission uint8

// The permissions. Processes of different versions exchange them by number, so new ones go at the end.
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
	Count = iota // the number of permissions
)

var names = [Count]string{
	"network.entities", "network.forward", "network.groups", "network.switches",
	"pxe.installs", "pxe.settings",
	"server.in_inventory", "server.in_use", "server.settings",
	"system.emails", "system.integrations", "system.logs", "system.settings", "system.theme",
	"users.admins", "users.clients",
}

func (p Permission) String() string { return names[p] }

// Access is what a caller does with what a permission guards.
type Access uint8

// The accesses. Write does not include Read: the documented set has two booleans.
const (
	Read Access = iota
	Write
)

func (a Access) String() string { return [...]string{"read", "write"}[a] }
