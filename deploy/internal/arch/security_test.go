package arch

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
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

// asvs are the requirements of OWASP ASVS 4.0.3, levels 1 and 2, by section: the last number, and those that are left out because
// they were deleted or belong to level 3.
var asvs = map[string]struct {
	last int
	out  []int
}{
	"1.1": {7, nil}, "1.2": {4, nil}, "1.4": {5, []int{2, 3}},
	"1.5": {4, nil}, "1.6": {4, nil}, "1.7": {2, nil}, "1.8": {2, nil},
	"1.9": {2, nil}, "1.10": {1, nil}, "1.11": {2, nil}, "1.12": {2, []int{1}}, "1.14": {6, nil},
	"2.1": {12, nil}, "2.2": {3, nil}, "2.3": {3, nil}, "2.4": {5, nil},
	"2.5": {7, nil}, "2.6": {3, nil}, "2.7": {6, nil}, "2.8": {7, nil},
	"2.9": {3, nil}, "2.10": {4, nil}, "3.1": {1, nil}, "3.2": {4, nil},
	"3.3": {4, nil}, "3.4": {5, nil}, "3.5": {3, nil}, "3.7": {1, nil},
	"4.1": {5, []int{4}}, "4.2": {2, nil}, "4.3": {3, nil}, "5.1": {5, nil},
	"5.2": {8, nil}, "5.3": {10, nil}, "5.4": {3, nil}, "5.5": {4, nil},
	"6.1": {3, nil}, "6.2": {6, nil}, "6.3": {2, nil}, "6.4": {2, nil},
	"7.1": {4, nil}, "7.2": {2, nil}, "7.3": {4, []int{2}}, "7.4": {3, nil},
	"8.1": {4, nil}, "8.2": {3, nil}, "8.3": {8, nil}, "9.1": {3, nil},
	"9.2": {4, nil}, "10.2": {2, nil}, "10.3": {3, nil}, "11.1": {8, nil},
	"12.1": {3, nil}, "12.2": {1, nil}, "12.3": {6, nil}, "12.4": {2, nil}, "12.5": {2, nil}, "12.6": {1, nil},
	"13.1": {5, []int{2}}, "13.2": {6, []int{4}}, "13.3": {2, nil}, "13.4": {2, nil},
	"14.1": {4, nil}, "14.2": {6, nil}, "14.3": {3, []int{1}}, "14.4": {7, nil}, "14.5": {4, nil},
}

var requirements = regexp.MustCompile(`(\d+\.\d+)\.(\d+)(?: to \d+\.\d+\.(\d+))?`)

// docs/operate/security.md has each requirement once, with a test or the reason why there is none.
func TestSecurityHasEveryRequirement(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs/operate/security.md"))
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]int{}
	for row := range strings.Lines(string(page)) {
		cells := strings.Split(row, "|")
		if len(cells) != 5 || !requirements.MatchString(cells[1]) {
			continue
		}
		says := regexp.MustCompile("does not (apply|hold)|not held").MatchString(cells[2])
		if !strings.Contains(cells[3], "`Test") && !says {
			t.Errorf("got the row %q without a test, want one, or why there is none", cells[1])
		}
		for _, found := range requirements.FindAllStringSubmatch(cells[1], -1) {
			first, _ := strconv.Atoi(found[2])
			last := first
			if found[3] != "" {
				last, _ = strconv.Atoi(found[3])
			}
			for n := first; n <= last; n++ {
				named[fmt.Sprintf("%s.%d", found[1], n)]++
			}
		}
	}
	total := 0
	for section, is := range asvs {
		for n := 1; n <= is.last; n++ {
			id := fmt.Sprintf("%s.%d", section, n)
			want := 1
			if slices.Contains(is.out, n) {
				want = 0
			}
			if total += want; named[id] != want {
				t.Errorf("got %s in %d rows, want %d", id, named[id], want)
			}
		}
	}
	if len(named) != total {
		t.Errorf("got %d requirements, want %d", len(named), total)
	}
}
