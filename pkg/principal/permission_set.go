package principal

// PermissionSet is the documented form of Grants.
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

// permissions are the set's permissions in the order of Permission.
func (s *PermissionSet) permissions() [permissionCount]*ReadWrite {
	return [permissionCount]*ReadWrite{
		&s.Network.Entities, &s.Network.Forward, &s.Network.Groups, &s.Network.Switches,
		&s.PXE.Installs, &s.PXE.Settings,
		&s.Server.InInventory, &s.Server.InUse, &s.Server.Settings,
		&s.System.Emails, &s.System.Integrations, &s.System.Logs, &s.System.Settings, &s.System.Theme,
		&s.Users.Admins, &s.Users.Clients,
	}
}

// Grants is what the set grants.
func (s *PermissionSet) Grants() Grants {
	var g Grants
	for i, permission := range s.permissions() {
		if permission.Read {
			g |= Permission(i).Grant(Read)
		}
		if permission.Write {
			g |= Permission(i).Grant(Write)
		}
	}
	return g
}

// PermissionSet is the documented form of g, with every permission in it.
func (g Grants) PermissionSet() PermissionSet {
	var s PermissionSet
	for i, permission := range s.permissions() {
		permission.Read = g.Holds(Permission(i).Grant(Read))
		permission.Write = g.Holds(Permission(i).Grant(Write))
	}
	return s
}
