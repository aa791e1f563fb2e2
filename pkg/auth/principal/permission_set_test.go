package principal

import (
	"testing"

	"github.com/ironplane/ironplane/pkg/auth/permission"
)

func TestPermissionSet(t *testing.T) {
	t.Parallel()
	for p, member := range new(PermissionSet).permissions() {
		if member == nil {
			t.Fatalf("%s: got no member of PermissionSet, want one in permission_set.go and in its method permissions", permission.Permission(p))
		}
	}
	for g := Grants(1); g <= All; g <<= 1 {
		for _, g := range []Grants{g, All &^ g} {
			if set := SetOf(g); set.Grants() != g {
				t.Errorf("got %v after the way through a set, want %v", set.Grants().Names(), g.Names())
			}
		}
	}
}
