package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	console  = regexp.MustCompile("(?s)```console\n(.*?)```")
	function = regexp.MustCompile(`(?m)^api\(\) .*$`)
	moment   = regexp.MustCompile(`"iso_8601":"[^"]*","unix":\d+`)
)

// The README's tour, pasted line by line, gives the answers that it prints.
func TestReadmeTour(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"sh", "curl", "sed", "cut"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip("the tour needs ", tool)
		}
	}
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, map[string]string{"IRONPLANE_DATA": filepath.Join(t.TempDir(), "data")})

	script := "KEY=" + r.key() + "\n" + strings.ReplaceAll(function.FindString(string(text)), "http://127.0.0.1:8080", r.URL) + "\n"
	var want strings.Builder
	for _, block := range console.FindAllStringSubmatch(string(text), -1) {
		for line := range strings.Lines(block[1]) {
			want.WriteString(line)
			if command, ok := strings.CutPrefix(line, "$ "); ok {
				script += "cat <<'COMMAND'\n" + line + "COMMAND\n" + command
			}
		}
	}
	tour := exec.Command("sh")
	tour.Stdin = strings.NewReader(script)
	got, err := tour.CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	gotLines, wantLines := strings.Split(moment.ReplaceAllString(string(got), "moment"), "\n"), strings.Split(moment.ReplaceAllString(want.String(), "moment"), "\n")
	if len(wantLines) < 20 || len(gotLines) != len(wantLines) {
		t.Fatalf("%d lines, want %d:\n%s", len(gotLines), len(wantLines), got)
	}
	for i, line := range wantLines {
		if gotLines[i] != line {
			t.Errorf("line %d is\n%s\nwant\n%s", i, gotLines[i], line)
		}
	}
}
