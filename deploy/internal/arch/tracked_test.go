package arch

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const maxTrackedBytes = 1_000_000

// large are the tracked files that may be larger.
var large = map[string]bool{}

// programs are how executable files of Linux, macOS and Windows begin.
var programs = []string{"\x7fELF", "\xcf\xfa\xed\xfe", "\xce\xfa\xed\xfe", "MZ"}

// objection says why git should not track a file, or nothing.
func objection(name string, content []byte) string {
	for _, magic := range programs {
		if bytes.HasPrefix(content, []byte(magic)) {
			return name + " is a program. Delete it: build outputs go to bin/."
		}
	}
	if len(content) > maxTrackedBytes && !large[name] {
		return fmt.Sprintf("%s has %d bytes, want at most %d. Make it smaller, or have the build make it.", name, len(content), maxTrackedBytes)
	}
	return ""
}

func TestTrackedFiles(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "git", "-C", root, "ls-files", "-z").Output()
	if err != nil {
		t.Fatal(err)
	}
	files := strings.Split(strings.TrimRight(string(out), "\x00"), "\x00")
	if len(files) < 500 {
		t.Fatalf("got %d tracked files, want at least 500", len(files))
	}
	for _, name := range files {
		content, err := os.ReadFile(filepath.Join(root, name))
		if os.IsNotExist(err) {
			continue // deleted in the work tree
		}
		if err != nil {
			t.Fatal(err)
		}
		if problem := objection(name, content); problem != "" {
			t.Error(problem)
		}
	}
}

func TestObjection(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		content string
		refused bool
	}{
		"a program":    {"\x7fELF\x02\x01", true},
		"a.exe":        {"MZ\x90", true},
		"a large file": {strings.Repeat("x", maxTrackedBytes+1), true},
		"a file":       {strings.Repeat("x", maxTrackedBytes), false},
	} {
		if problem := objection(name, []byte(c.content)); (problem != "") != c.refused {
			t.Errorf("%s: got %q, want it refused: %t", name, problem, c.refused)
		}
	}
}
