package product_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var ours = regexp.MustCompile(`(?m)^(?:require )?\s*github\.com/ironplane/ironplane/(\S+) v`)

// Services and the gateway know pkg and process, what tests need, and nothing else of ours; pkg knows none of them, and its
// tests ask by process' peers.
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
		may := []string{"backing", "process", "template", "testkit"}
		if !strings.HasSuffix(mod, "/pkg/go.mod") {
			may = append(may, "pkg")
		}
		for _, required := range ours.FindAllStringSubmatch(string(text), -1) {
			if !slices.Contains(may, required[1]) {
				t.Errorf("%s requires %s", mod, required[1])
			}
		}
	}
}
