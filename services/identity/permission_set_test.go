package identity

import (
	"testing"

	"github.com/ironplane/ironplane/pkg/principal"
)

func TestPermissionSet(t *testing.T) {
	t.Parallel()
	for g := principal.Grants(1); g <= principal.All; g <<= 1 {
		for _, g := range []principal.Grants{g, principal.All &^ g} {
			if set := SetOf(g); set.Grants() != g {
				t.Errorf("%v becomes %v as a set", g.Names(), set.Grants().Names())
			}
		}
	}
}
