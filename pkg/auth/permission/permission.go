// Package permission lists what there is to be allowed.
package permission

// Permission is one entry of the documented set, such as network.entities. What it guards may be read by who holds read
// on it and changed by who holds write.
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
	Count = iota // of them
)

var names = [Count]string{
	"network.entities", "network.forward", "network.groups", "network.switches",
	"pxe.installs", "pxe.settings",
	"server.in_inventory", "server.in_use", "server.settings",
	"system.emails", "system.integrations", "system.logs", "system.settings", "system.theme",
	"users.admins", "users.clients",
}

func (p Permission) String() string { return names[p] }

// Access is what is done to what a permission guards.
type Access uint8

// Write does not include read: the documented set has them as two booleans.
const (
	Read Access = iota
	Write
)

func (a Access) String() string { return [...]string{"read", "write"}[a] }
