package principal

import (
	"testing"

	"github.com/ironplane/ironplane/pkg/auth/permission"
)

func TestPermissionSet(t *testing.T) {
	t.Parallel()
	for p, member := range new(PermissionSet).permissions() {
		if member == nil {
			t.Fatalf("PermissionSet has no member for %s: add one to permission_set.go, and to its method permissions", permission.Permission(p))
		}
	}
	for g := Grants(1); g <= All; g <<= 1 {
		for _, g := range []Grants{g, All &^ g} {
			if set := SetOf(g); set.Grants() != g {
				t.Errorf("%v becomes %v as a set", g.Names(), set.Grants().Names())
			}
		}
	}
}
