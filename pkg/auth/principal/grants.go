package principal

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/ironplane/ironplane/pkg/auth/permission"
)

// Grants is a set of permissions with their accesses.
type Grants uint64

// All is the set with every permission and access.
const All Grants = 1<<(2*permission.Count) - 1

// Grant returns the set with one permission and access.
func Grant(p permission.Permission, a permission.Access) Grants {
	return 1 << (2*Grants(p) + Grants(a))
}

// Holds tells whether g contains all of others.
func (g Grants) Holds(others Grants) bool { return g&others == others }

// grantNames are the names of single bits, such as "network.entities write".
var grantNames = func() (names [2 * permission.Count]string) {
	for i := range names {
		names[i] = permission.Permission(i/2).String() + " " + permission.Access(i%2).String()
	}
	return names
}()

// Names returns the names of what is in the set, such as "network.entities write".
func (g Grants) Names() []string {
	names := []string{}
	for i, name := range grantNames {
		if g.Holds(1 << i) {
			names = append(names, name)
		}
	}
	return names
}

// ParseGrants reads what Names wrote. It ignores names that this version does not know.
func ParseGrants(names []string) Grants {
	var g Grants
	for _, name := range names {
		if i := slices.Index(grantNames[:], name); i >= 0 {
			g |= 1 << i
		}
	}
	return g
}

// Rewrite returns the names of g, followed by the names in stored that only a newer version knows. So an older instance
// that edits a set keeps the permissions that it does not know.
func (g Grants) Rewrite(stored []string) []string {
	names := g.Names()
	for _, name := range stored {
		if !slices.Contains(grantNames[:], name) {
			names = append(names, name)
		}
	}
	return names
}

// MarshalJSON writes the names, so that what is stored or sent does not depend on the order of the permissions.
func (g Grants) MarshalJSON() ([]byte, error) { return json.Marshal(g.Names()) }

// UnmarshalJSON reads names as MarshalJSON wrote them.
func (g *Grants) UnmarshalJSON(text []byte) error {
	var names []string
	if err := json.Unmarshal(text, &names); err != nil {
		return fmt.Errorf("read grants: %w", err)
	}
	*g = ParseGrants(names)
	return nil
}
