package arch

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The tests that docs/operate/security.md names exist.
func TestSecurityNamesTests(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs/operate/security.md"))
	if err != nil {
		t.Fatal(err)
	}
	isTest := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err = filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, found := range declared.FindAllStringSubmatch(string(text), -1) {
			isTest[found[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(string(page), -1)
	if len(named) < 20 {
		t.Errorf("it names %d tests", len(named))
	}
	for _, name := range named {
		if !isTest[name[1]] {
			t.Errorf("there is no %s", name[1])
		}
	}
}
