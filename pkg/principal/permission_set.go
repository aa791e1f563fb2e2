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

// ReadWrite is one leaf of a PermissionSet.
type ReadWrite struct {
	Read  bool `json:"read" example:"true"`
	Write bool `json:"write" example:"false"`
}

// leaves are the set's leaves in the order of Leaf.
func (s *PermissionSet) leaves() [leafCount]*ReadWrite {
	return [leafCount]*ReadWrite{
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
	for i, leaf := range s.leaves() {
		if leaf.Read {
			g |= Leaf(i).Grant(Read)
		}
		if leaf.Write {
			g |= Leaf(i).Grant(Write)
		}
	}
	return g
}

// PermissionSet is the documented form of g, with every leaf in it.
func (g Grants) PermissionSet() PermissionSet {
	var s PermissionSet
	for i, leaf := range s.leaves() {
		leaf.Read = g.Holds(Leaf(i).Grant(Read))
		leaf.Write = g.Holds(Leaf(i).Grant(Write))
	}
	return s
}
