package principal

import "testing"

func TestPermissionSet(t *testing.T) {
	t.Parallel()
	for g := Grants(1); g <= All; g <<= 1 {
		for _, g := range []Grants{g, All &^ g} {
			if set := SetOf(g); set.Grants() != g {
				t.Errorf("%v becomes %v as a set", g.Names(), set.Grants().Names())
			}
		}
	}
}
