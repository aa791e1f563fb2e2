// Package tour runs the commands of pages of the docs, and compares their output with the pages.
package tour

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	console   = regexp.MustCompile("(?s)```console\n(.*?)```")
	function  = regexp.MustCompile(`(?m)^api\(\) .*$`)
	timestamp = regexp.MustCompile(`"iso_8601":"[^"]*","unix":\d+`)
)

// Run runs the commands of pages in one shell, one page after the other. root is the path of the repository, and url that of the API,
// which the function api of the README gets. setup is what the shell runs first.
func Run(t *testing.T, root, url, setup string, pages ...string) {
	t.Helper()
	for _, tool := range []string{"sh", "curl", "sed", "cut"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip(tool + " is not installed; Debian's packages dash, curl, sed and coreutils have what the pages need")
		}
	}
	read := func(page string) string {
		content, err := os.ReadFile(filepath.Join(root, page))
		if err != nil {
			t.Fatal(err)
		}
		return string(content)
	}
	script := setup + "\n" + strings.ReplaceAll(function.FindString(read("README.md")), "http://localhost:8080", url) + "\n"
	var want strings.Builder
	for _, page := range pages {
		for _, block := range console.FindAllStringSubmatch(read(page), -1) {
			for line := range strings.Lines(block[1]) {
				want.WriteString(line)
				if command, ok := strings.CutPrefix(line, "$ "); ok {
					script += "cat <<'COMMAND'\n" + line + "COMMAND\n" + command
				}
			}
		}
	}
	shell := exec.Command("sh")
	shell.Stdin = strings.NewReader(script)
	got, err := shell.CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	gotLines := strings.Split(timestamp.ReplaceAllString(string(got), "timestamp"), "\n")
	wantLines := strings.Split(timestamp.ReplaceAllString(want.String(), "timestamp"), "\n")
	if len(wantLines) < 10 || len(gotLines) != len(wantLines) {
		t.Fatalf("got %d lines, want %d:\n%s", len(gotLines), len(wantLines), got)
	}
	for i, line := range wantLines {
		if gotLines[i] != line {
			t.Errorf("line %d: got\n%s\nwant\n%s", i, gotLines[i], line)
		}
	}
}
