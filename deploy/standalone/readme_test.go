package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/pkg/testkit"
)

var (
	console   = regexp.MustCompile("(?s)```console\n(.*?)```")
	function  = regexp.MustCompile(`(?m)^api\(\) .*$`)
	timestamp = regexp.MustCompile(`"iso_8601":"[^"]*","unix":\d+`)
)

// tourPages are the pages with tours, as paths from the repository. Each tour continues where the one before it ended.
var tourPages = []string{"README.md", "docs/do/address-plan.md", "docs/do/sell.md", "docs/do/webhooks.md", "docs/operate/keys.md"}

// TestReadmeTour runs the commands of tourPages in one shell, on a product without data, and compares the output with the pages.
func TestReadmeTour(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"sh", "curl", "sed", "cut"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip(tool + " is not installed; Debian's packages dash, curl, sed and coreutils have what the tour needs")
		}
	}
	var text strings.Builder
	for _, page := range tourPages {
		content, err := os.ReadFile(filepath.Join("../..", page))
		if err != nil {
			t.Fatal(err)
		}
		text.Write(content)
	}
	r := start(t, map[string]string{"IRONPLANE_DATA": filepath.Join(t.TempDir(), "data")})
	key := r.key()
	if !strings.HasPrefix(r.URL, "http://localhost:") {
		t.Errorf("got the address %s, want localhost, where passkeys work", r.URL)
	}
	testkit.Eventually(t, "a link leads to the console", func() bool {
		link := r.client(key).Do("GET", "/auth/sso", nil)
		return link.Status == 200 && strings.Contains(link.Text, `"url":"`+r.URL+`/-/console/auth/sso#key=`)
	})
	script := "ADMIN=" + key + "\nKEY=$ADMIN\n" + strings.ReplaceAll(function.FindString(text.String()), "http://localhost:8080", r.URL) + "\n"
	var want strings.Builder
	for _, block := range console.FindAllStringSubmatch(text.String(), -1) {
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
	gotLines := strings.Split(timestamp.ReplaceAllString(string(got), "timestamp"), "\n")
	wantLines := strings.Split(timestamp.ReplaceAllString(want.String(), "timestamp"), "\n")
	if len(wantLines) < 20 || len(gotLines) != len(wantLines) {
		t.Fatalf("got %d lines, want %d:\n%s", len(gotLines), len(wantLines), got)
	}
	for i, line := range wantLines {
		if gotLines[i] != line {
			t.Errorf("line %d: got\n%s\nwant\n%s", i, gotLines[i], line)
		}
	}
}
