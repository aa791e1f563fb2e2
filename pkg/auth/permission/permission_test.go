package permission

import (
	"slices"
	"strings"
	"testing"
)

// A gateway sends Grants as bits, also to services of the previous and the next version. If a permission moved, these services
// would read another permission. So new permissions are appended.
func TestPermissionsStay(t *testing.T) {
	t.Parallel()
	first := strings.Fields(`network.entities network.forward network.groups network.switches pxe.installs pxe.settings
		server.in_inventory server.in_use server.settings system.emails system.integrations system.logs system.settings
		system.theme users.admins users.clients`)
	if len(names) < len(first) || !slices.Equal(names[:len(first)], first) {
		t.Fatalf("got %v, want these first: %v. A new permission goes at the end", names, first)
	}
	for i, name := range names {
		if strings.Count(name, ".") != 1 {
			t.Errorf("permission %d: got the name %q, want one such as network.groups: add it to names", i, name)
		}
	}
}
