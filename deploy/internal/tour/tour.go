// Package tour takes the README's tours, for tests.
package tour

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

var (
	console  = regexp.MustCompile("(?s)```console\n(.*?)```")
	function = regexp.MustCompile(`(?m)^api\(\) .*$`)
	moment   = regexp.MustCompile(`"iso_8601":"[^"]*","unix":\d+`)
)

// Take pastes the tours line by line for a product that nobody has used yet, and compares the answers with what the README
// prints.
func Take(t *testing.T, readme, url, key string) {
	t.Helper()
	for _, tool := range []string{"sh", "curl", "sed", "cut"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip("the tour needs ", tool)
		}
	}
	text, err := os.ReadFile(readme)
	if err != nil {
		t.Fatal(err)
	}
	script := "ADMIN=" + key + "\nKEY=$ADMIN\n" + strings.ReplaceAll(function.FindString(string(text)), "http://127.0.0.1:8080", url) + "\n"
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
	gotLines, wantLines := strings.Split(
		moment.ReplaceAllString(string(got), "moment"),
		"\n",
	), strings.Split(
		moment.ReplaceAllString(want.String(), "moment"),
		"\n",
	)
	if len(wantLines) < 20 || len(gotLines) != len(wantLines) {
		t.Fatalf("%d lines, want %d:\n%s", len(gotLines), len(wantLines), got)
	}
	for i, line := range wantLines {
		if gotLines[i] != line {
			t.Errorf("line %d is\n%s\nwant\n%s", i, gotLines[i], line)
		}
	}
}
