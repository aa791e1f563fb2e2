package provider

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var fenced = regexp.MustCompile("(?s)```(hcl|console)\n(.*?)```")

// TestPage does what docs/do/terraform.md says: it writes the page's configuration, and compares what its commands print.
func TestPage(t *testing.T) {
	t.Parallel()
	p := newEmptyProduct(t, "page")
	page, err := os.ReadFile("../../../docs/do/terraform.md")
	if err != nil {
		t.Fatal(err)
	}
	w := newWorkspace(t, p, "")
	if err := os.Symlink(w.program, filepath.Join(w.folder, "terraform")); err != nil {
		t.Fatal(err)
	}
	configuration, script, commands := "", "", 0
	for _, block := range fenced.FindAllStringSubmatch(string(page), -1) {
		if block[1] == "hcl" {
			configuration += block[2]
			w.write("main.tf", configuration)
			continue
		}
		for _, one := range strings.Split(block[2], "$ ")[1:] {
			command, want, _ := strings.Cut(one, "\n")
			commands++
			if strings.HasPrefix(command, "export ") {
				script += command + "\n"
				continue
			}
			got, err := w.command("sh", "-c", script+"PATH=.:$PATH\n"+command)
			if err != nil || got != want {
				t.Fatalf("%s: got %v and\n%s\nwant\n%s", command, err, got, want)
			}
		}
	}
	if commands < 5 {
		t.Errorf("got %d commands, want those of the page", commands)
	}
}
