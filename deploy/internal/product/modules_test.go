package product_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var ours = regexp.MustCompile(`(?m)^(?:require )?\s*github\.com/ironplane/ironplane/(\S+) v`)

// Services and the gateway know pkg and nothing else of ours; pkg knows none of them.
func TestModulesAreApart(t *testing.T) {
	t.Parallel()
	root := "../../.."
	mods, err := filepath.Glob(root + "/services/*/go.mod")
	if err != nil || len(mods) != 5 {
		t.Fatal(mods, err)
	}
	for _, mod := range append(mods, root+"/gateway/go.mod", root+"/pkg/go.mod") {
		text, err := os.ReadFile(mod)
		if err != nil {
			t.Fatal(err)
		}
		for _, required := range ours.FindAllStringSubmatch(string(text), -1) {
			if required[1] != "pkg" || strings.HasSuffix(mod, "/pkg/go.mod") {
				t.Errorf("%s requires %s", mod, required[1])
			}
		}
	}
}
